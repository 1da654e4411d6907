//! Whose progress this process depends on, and what is said of those that make none.

use std::sync::atomic::Ordering;

use engine::Rank;

use super::attendance::Attendance;
use super::{Peer, Peers};
use crate::base::error::Error;
use crate::base::lock::lock;

impl Peers {
    /// The error of a wait for that peer whose time has passed.
    pub(crate) fn late(&self, peer: Rank) -> Error {
        Error::Timeout { peer, unattended: self.is_unattended(peer) }
    }

    /// Whether the peer is known to make progress only in calls of its own, by its setting.
    pub(crate) fn is_unattended(&self, peer: Rank) -> bool {
        self.attendance(peer).is_some_and(|attendance| attendance.is_off)
    }

    fn attendance(&self, peer: Rank) -> Option<&Attendance> {
        Some(match self.known(peer)? {
            Peer::Near(near) => &near.attendance,
            Peer::Far(far) => &far.attendance,
        })
    }

    /// Says in the log, once, that a peer which somebody waits for makes progress only in calls of its own.
    pub(crate) fn tell_unattended(&self, peer: Rank) {
        if self.attendance(peer).is_some_and(Attendance::is_to_be_told) {
            tracing::warn!(
                peer,
                "a call waits for the peer, which makes progress only in calls of its own: \
                 STANDPIPE_PROGRESS is off there"
            );
        }
    }

    /// The peers on this host that make progress only in calls of their own, and have not heard the last
    /// message of this process.
    pub(crate) fn unheard_by(&self) -> impl Iterator<Item = Rank> + '_ {
        (0..self.own.places).filter(|rank| {
            *rank != self.own.rank
                && self.near.get(*rank).is_some_and(|near| {
                    near.attendance.is_off && !near.is_lost() && near.bell.has_rung(near.place as usize)
                })
        })
    }

    /// Lets a peer know that this process depends on its progress. It may be able to attach to all others
    /// itself, and not know that somebody cannot attach to it.
    pub(crate) fn request_progress(&self, peer: Peer<'_>) {
        // A thread that has the network serves by itself.
        let Peer::Near(peer) = peer else { return };
        if peer.asked_to_serve.swap(true, Ordering::Relaxed) {
            return;
        }
        if peer.rank >= self.own.size {
            self.peer_listener().inspect(|peer_listener| peer_listener.request_progress(peer.rank));
        } else if let Some(membership) = &*lock(&self.membership) {
            membership.request_progress(peer.rank);
        }
    }
}

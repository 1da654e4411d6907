//! Notices about the barrier that could not be sent, though their peers are not lost: those would wait for
//! ever.

use std::collections::BTreeMap;

use crate::Rank;
use crate::wire::Message;

/// Polls, at most, between two trials to tell a peer that a barrier is open.
const PAUSE_POLLS_MAX: u32 = 31;

/// One message a peer. It says that the last barrier is open, as nobody waits for an earlier one any more. Or
/// it says that none will open again, which makes the peer look itself whether the last one is.
#[derive(Default)]
pub(super) struct UnsentNotices {
    by_peer: BTreeMap<Rank, Message>,
    /// Polls until they are tried again.
    polls_left: u32,
    /// The value that `polls_left` started from: it doubles with each trial in vain.
    pause: u32,
}

impl UnsentNotices {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }

    /// Keeps the notice for `peer` in place of an older one, to be tried at the next poll.
    pub(super) fn keep(&mut self, peer: Rank, notice: Message) {
        let kept = self.by_peer.entry(peer).or_insert(notice);
        if !matches!(kept, Message::BarrierBroken { .. }) {
            *kept = notice;
        }
        (self.polls_left, self.pause) = (0, 0);
    }

    /// Has `send` try those that are kept, at some polls. Returns whether one has gone.
    pub(super) fn retry(&mut self, mut send: impl FnMut(Rank, &Message) -> bool) -> bool {
        if self.by_peer.is_empty() {
            return false;
        }
        if self.polls_left > 0 {
            self.polls_left -= 1;
            return false;
        }
        let before = self.by_peer.len();
        self.by_peer.retain(|peer, notice| !send(*peer, notice));
        // A trial may cost a talk with a directory, and the reason seldom goes away within a few polls.
        self.pause = (2 * self.pause + 1).min(PAUSE_POLLS_MAX);
        self.polls_left = self.pause;
        self.by_peer.len() < before
    }

    /// Drops the one for a peer that is gone.
    pub(super) fn forget(&mut self, peer: Rank) {
        self.by_peer.remove(&peer);
    }
}

//! Peers that are gone: what the launcher says, what the network finds, and what callers hear.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use engine::{MemId, OpError, Rank, Transport as _};

use super::{Engine, GRACE, LOOK, LOSSES, NodeCore};
use crate::base::error::Error;
use crate::base::lock::lock;
use crate::job::launched::Notice;
use crate::transport::contract::NodeTransport as _;

impl NodeCore {
    /// Does what the watching thread asked for. Whether that may have ended what somebody waits for.
    #[cold]
    pub(super) fn apply_notices(&self, engine: &mut Engine) -> bool {
        let notices = self.notes.pending.swap(0, Ordering::AcqRel);
        self.notes.polls.store(0, Ordering::Relaxed);
        if notices & LOOK != 0 {
            self.publish_engine(engine);
        }
        let due = if notices & LOSSES != 0 { self.due_losses() } else { Vec::new() };
        due.iter().for_each(|rank| self.lose_in(engine, *rank));
        !due.is_empty()
    }

    /// The losses that the engine is to be told of now. Later ones stay notices.
    fn due_losses(&self) -> Vec<Rank> {
        let (mut losses, now) = (lock(&self.notes.losses), Instant::now());
        let due = losses.iter().filter(|(_, from)| *from <= now).map(|(rank, _)| *rank).collect();
        losses.retain(|(_, from)| *from > now);
        if !losses.is_empty() {
            self.notes.pending.fetch_or(LOSSES, Ordering::AcqRel);
        }
        due
    }

    pub(super) fn losses_are_due(&self, now: Instant) -> bool {
        lock(&self.notes.losses).iter().any(|(_, from)| *from <= now)
    }

    /// Tells the engine of a loss, and the other ranks where it is for this one to do so.
    fn lose_in(&self, engine: &mut Engine, rank: Rank) {
        let left = engine.transport().has_left(rank);
        if self.peers.tells_of(rank, left) {
            engine.tell_gone(rank)
        } else {
            engine.lose(rank)
        }
        self.keep_watch(engine);
    }

    /// Tells the engine of peers that the network has lost.
    #[cold]
    pub(super) fn hear_network(&self, engine: &mut Engine) {
        for rank in engine.transport().take_lost() {
            tracing::info!(peer = rank, "the network has lost the peer");
            self.peers.lose(rank);
            self.lose_in(engine, rank);
            self.suspect_host_of(engine, rank);
            self.peers.forget(rank);
        }
    }

    /// Sees to it that the one is heard from whom this process watches for all others.
    pub(crate) fn keep_watch(&self, engine: &mut Engine) {
        if let Some(rank) = self.peers.to_watch() {
            engine.transport().watch(rank);
        }
    }

    /// The network has lost a peer: unless that has left, its whole host may be gone, and it is for this
    /// process to find out.
    fn suspect_host_of(&self, engine: &mut Engine, lost: Rank) {
        if !engine.transport().has_left(lost) {
            self.peers.to_suspect(lost).into_iter().for_each(|rank| engine.transport().suspect(rank));
        }
    }

    /// Takes note of peers that the network has lost: an operation with one may have ended by that before.
    pub(crate) fn note_losses(&self) {
        let mut engine = self.engine();
        if engine.transport().has_lost() {
            self.hear_network(&mut engine);
            drop(engine);
            self.wake();
            self.tell_of_ended();
        }
    }

    /// Takes note of what the launcher says. Called by the thread that watches, which must not wait for the
    /// engine: whoever holds it may be waiting for that very thread.
    pub(crate) fn on_notice(self: &Arc<Self>, notice: &Notice) {
        let gone: Vec<Rank> = match notice {
            Notice::Lost { rank, how } => {
                tracing::info!(peer = rank, %how, "peer lost");
                vec![*rank]
            }
            Notice::Serve => {
                if let Err(error) = self.attend() {
                    tracing::warn!(%error, "no progress thread: some peers wait while this process computes");
                }
                return;
            }
            Notice::Look => {
                self.counted.watched.store(true, Ordering::Relaxed);
                self.publish_direct();
                self.notes.pending.fetch_or(LOOK, Ordering::AcqRel);
                return self.wake_from_afar();
            }
            // Those on other hosts have a broker of their own.
            Notice::BrokerGone => self.peers.others_here(),
        };
        let notices: Vec<Rank> = gone.into_iter().filter(|rank| self.peers.lose(*rank)).collect();
        if !notices.is_empty() {
            let now = Instant::now();
            let from = |rank| if self.peers.is_far(rank) { now + GRACE } else { now };
            lock(&self.notes.losses).extend(notices.into_iter().map(|rank| (rank, from(rank))));
            self.notes.pending.fetch_or(LOSSES, Ordering::AcqRel);
            self.wake_from_afar();
        }
        if let Notice::Lost { rank, .. } = notice {
            self.peers.acknowledge(*rank);
        }
    }

    /// The error that callers are told of a failed operation. Where the node closed while it was under way,
    /// it is that: the transport then takes all peers for lost. The engine may be held.
    #[cold]
    pub(crate) fn error_of(&self, error: OpError) -> Error {
        let by_closing = match error {
            OpError::PeerLost { peer } => !self.peers.is_lost(peer),
            OpError::Protocol { .. } | OpError::Unsupported { .. } => true,
            _ => false,
        };
        let is_barred = match error {
            OpError::Revoked { .. } | OpError::NotGranted { .. } | OpError::Unaligned { .. } => true,
            OpError::Fault { mem, .. } => matches!(mem, MemId::Grant(_)),
            _ => false,
        };
        if is_barred {
            self.counted.barred.fetch_add(1, Ordering::Relaxed);
        }
        match error {
            _ if by_closing && self.peers.clients.are_leaving() => Error::Closed { call: "an operation" },
            OpError::Timeout { peer } => self.peers.late(peer),
            other => Error::of(other),
        }
    }

    /// As [`NodeCore::error_of`], with handlers by their names. Not with the engine held.
    pub(crate) fn named(&self, error: OpError) -> Error {
        match error {
            OpError::NoSuchHandler { peer, handler } => {
                Error::NoSuchHandler { peer, handler: self.handlers.name_of(handler) }
            }
            other => self.error_of(other),
        }
    }
}

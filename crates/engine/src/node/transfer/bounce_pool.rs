//! Bounce buffers, and who has which: `bounce.rs` says what for.

use std::collections::BTreeMap;

use crate::limits::{BOUNCE_BUFFERS_OF_PEER_MAX, BOUNCES_MAX, ORPHANED_BOUNCES_MAX};
use crate::{Direction, Piece, Rank};

/// Long transfers with a peer that go by chunks after it had no bounce buffers at all, before it is asked
/// again.
const REFUSED_TURNS: u32 = 32;

/// Moves pieces of a transfer through a bounce buffer.
pub(in crate::node) struct Bounce {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) direction: Direction,
    /// The piece that it moves now.
    pub(in crate::node) piece: Piece,
    /// Where in the peer's heap its bounce buffer begins.
    pub(in crate::node) buffer: Option<u64>,
    pub(in crate::node) step: BounceStep,
}

/// The event that a bounce waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum BounceStep {
    /// A bounce buffer, for a get with the bytes in it.
    Asked,
    /// The copy between the bounce buffer and this process's memory.
    Copying,
    /// The peer, which is to copy from the bounce buffer.
    Draining,
}

/// The bounce buffers that a node lends its peers, and what it knows of theirs.
#[derive(Default)]
pub(in crate::node) struct BouncePool {
    all: Vec<BounceBuffer>,
    /// Bounces whose transfers have ended, by peer.
    orphans: BTreeMap<Rank, u32>,
    /// Peers that have no bounce buffers, and how many transfers are not to ask them.
    refused: BTreeMap<Rank, u32>,
}

struct BounceBuffer {
    /// Where in this process's heap it begins.
    offset: u64,
    holder: Option<Rank>,
}

impl BouncePool {
    /// How many bounces a new transfer with a peer may have.
    pub(in crate::node) fn bounces_for(&mut self, peer: Rank) -> u8 {
        if let Some(turns) = self.refused.get_mut(&peer) {
            *turns -= 1;
            if *turns == 0 {
                self.refused.remove(&peer);
            }
            return 0;
        }
        let orphans = self.orphans.get(&peer).copied().unwrap_or(0);
        if orphans < ORPHANED_BOUNCES_MAX { BOUNCES_MAX } else { 0 }
    }

    /// A peer has no bounce buffers at all.
    pub(in crate::node) fn was_refused(&mut self, peer: Rank) {
        self.refused.insert(peer, REFUSED_TURNS);
    }

    /// A bounce with a peer has lost its transfer.
    pub(in crate::node) fn add_orphan(&mut self, peer: Rank) {
        *self.orphans.entry(peer).or_default() += 1;
    }

    /// Such a bounce has ended.
    pub(in crate::node) fn end_orphan(&mut self, peer: Rank) {
        if let Some(orphans) = self.orphans.get_mut(&peer) {
            assert!(*orphans > 0, "an orphan comes back once");
            *orphans -= 1;
            if *orphans == 0 {
                self.orphans.remove(&peer);
            }
        }
    }

    /// Whether the peer may have one more.
    pub(in crate::node) fn may_have(&self, peer: Rank) -> bool {
        self.all.iter().filter(|buffer| buffer.holder == Some(peer)).count() < BOUNCE_BUFFERS_OF_PEER_MAX
    }

    /// Lends the peer a bounce buffer that nobody has, if there is one.
    pub(in crate::node) fn lend(&mut self, peer: Rank) -> Option<u64> {
        let free = self.all.iter_mut().find(|buffer| buffer.holder.is_none())?;
        free.holder = Some(peer);
        Some(free.offset)
    }

    /// Whether there are none.
    pub(in crate::node) fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// A new bounce buffer, which begins there.
    pub(in crate::node) fn add(&mut self, offset: u64) {
        self.all.push(BounceBuffer { offset, holder: None });
    }

    /// Whether the peer has a bounce buffer that begins there.
    pub(in crate::node) fn is_held(&self, peer: Rank, offset: u64) -> bool {
        self.all.iter().any(|buffer| (buffer.offset, buffer.holder) == (offset, Some(peer)))
    }

    /// Takes the bounce buffers back that the peer has: the one that begins there, or all.
    pub(in crate::node) fn take_back(&mut self, peer: Rank, offset: Option<u64>) {
        let held = self.all.iter_mut().filter(|buffer| buffer.holder == Some(peer));
        held.filter(|buffer| offset.is_none_or(|offset| buffer.offset == offset))
            .for_each(|s| s.holder = None);
    }
}

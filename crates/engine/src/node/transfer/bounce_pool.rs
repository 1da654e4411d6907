//! Stages, and who has which: `relay.rs` says what for.

use std::collections::BTreeMap;

use crate::limits::{ORPHANS_MAX, RELAYS_MAX, STAGES_OF_PEER_MAX};
use crate::{Direction, Piece, Rank};

/// Long transfers with a peer that go by chunks after it had no stages at all, before it is asked again.
const REFUSED_TURNS: u32 = 32;

/// What moves pieces of a transfer through a stage.
pub(in crate::node) struct Relay {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) direction: Direction,
    /// What it moves now.
    pub(in crate::node) piece: Piece,
    /// Where in the peer's heap its stage begins.
    pub(in crate::node) stage: Option<u64>,
    pub(in crate::node) step: Step,
}

/// What a relay waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum Step {
    /// A stage, for a get with the bytes in it.
    Asked,
    /// The copy between the stage and this process's memory.
    Copying,
    /// The peer, which is to copy from the stage.
    Draining,
}

/// The stages that a node lends its peers, and what it knows of theirs.
#[derive(Default)]
pub(in crate::node) struct Stages {
    all: Vec<Stage>,
    /// Relays whose transfers have ended, by peer.
    orphans: BTreeMap<Rank, u32>,
    /// Peers that have no stages, and how many transfers are not to ask them.
    refused: BTreeMap<Rank, u32>,
}

struct Stage {
    /// Where in this process's heap it begins.
    offset: u64,
    holder: Option<Rank>,
}

impl Stages {
    /// How many relays a new transfer with a peer may have.
    pub(in crate::node) fn relays_for(&mut self, peer: Rank) -> u8 {
        if let Some(turns) = self.refused.get_mut(&peer) {
            *turns -= 1;
            if *turns == 0 {
                self.refused.remove(&peer);
            }
            return 0;
        }
        let orphans = self.orphans.get(&peer).copied().unwrap_or(0);
        if orphans < ORPHANS_MAX { RELAYS_MAX } else { 0 }
    }

    /// A peer has no stages at all.
    pub(in crate::node) fn was_refused(&mut self, peer: Rank) {
        self.refused.insert(peer, REFUSED_TURNS);
    }

    /// A relay with a peer has lost its transfer.
    pub(in crate::node) fn add_orphan(&mut self, peer: Rank) {
        *self.orphans.entry(peer).or_default() += 1;
    }

    /// Such a relay has ended.
    pub(in crate::node) fn end_orphan(&mut self, peer: Rank) {
        if let Some(orphans) = self.orphans.get_mut(&peer) {
            *orphans -= 1;
            if *orphans == 0 {
                self.orphans.remove(&peer);
            }
        }
    }

    /// Whether the peer may have one more.
    pub(in crate::node) fn may_have(&self, peer: Rank) -> bool {
        self.all.iter().filter(|stage| stage.holder == Some(peer)).count() < STAGES_OF_PEER_MAX
    }

    /// Lends the peer a stage that nobody has, if there is one.
    pub(in crate::node) fn lend(&mut self, peer: Rank) -> Option<u64> {
        let free = self.all.iter_mut().find(|stage| stage.holder.is_none())?;
        free.holder = Some(peer);
        Some(free.offset)
    }

    /// Whether there are none.
    pub(in crate::node) fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// A new stage, which begins there.
    pub(in crate::node) fn add(&mut self, offset: u64) {
        self.all.push(Stage { offset, holder: None });
    }

    /// Whether the peer has a stage that begins there.
    pub(in crate::node) fn is_held(&self, peer: Rank, offset: u64) -> bool {
        self.all.iter().any(|stage| (stage.offset, stage.holder) == (offset, Some(peer)))
    }

    /// Takes the stages back that the peer has: the one that begins there, or all.
    pub(in crate::node) fn take_back(&mut self, peer: Rank, offset: Option<u64>) {
        let held = self.all.iter_mut().filter(|stage| stage.holder == Some(peer));
        held.filter(|stage| offset.is_none_or(|offset| stage.offset == offset)).for_each(|s| s.holder = None);
    }
}

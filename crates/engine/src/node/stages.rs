//! Stages, and who has which: `relay.rs` says what for.

use crate::{Direction, Piece, Rank};

/// Relays of one transfer at a time.
pub(super) const RELAYS_MAX: u8 = 3;

/// Stages that one peer may have at a time.
const STAGES_OF_PEER_MAX: usize = 4;

/// What moves pieces of a transfer through a stage.
pub(super) struct Relay {
    pub(super) peer: Rank,
    pub(super) direction: Direction,
    /// What it moves now.
    pub(super) piece: Piece,
    /// Where in the peer's heap its stage begins.
    pub(super) stage: Option<u64>,
    pub(super) step: Step,
}

/// What a relay waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A stage, for a get with the bytes in it.
    Asked,
    /// The copy between the stage and this process's memory.
    Copying,
    /// The peer, which is to copy from the stage.
    Draining,
}

/// The stages that a node lends its peers.
#[derive(Default)]
pub(super) struct Stages {
    all: Vec<Stage>,
}

struct Stage {
    /// Where in this process's heap it begins.
    offset: u64,
    holder: Option<Rank>,
}

impl Stages {
    /// Whether the peer may have one more.
    pub(super) fn may_have(&self, peer: Rank) -> bool {
        self.all.iter().filter(|stage| stage.holder == Some(peer)).count() < STAGES_OF_PEER_MAX
    }

    /// Lends the peer a stage that nobody has, if there is one.
    pub(super) fn lend(&mut self, peer: Rank) -> Option<u64> {
        let free = self.all.iter_mut().find(|stage| stage.holder.is_none())?;
        free.holder = Some(peer);
        Some(free.offset)
    }

    /// A new stage, which begins there.
    pub(super) fn add(&mut self, offset: u64) {
        self.all.push(Stage { offset, holder: None });
    }

    /// Whether the peer has a stage that begins there.
    pub(super) fn is_held(&self, peer: Rank, offset: u64) -> bool {
        self.all.iter().any(|stage| (stage.offset, stage.holder) == (offset, Some(peer)))
    }

    /// Takes the stages back that the peer has: the one that begins there, or all.
    pub(super) fn take_back(&mut self, peer: Rank, offset: Option<u64>) {
        let held = self.all.iter_mut().filter(|stage| stage.holder == Some(peer));
        held.filter(|stage| offset.is_none_or(|offset| stage.offset == offset)).for_each(|s| s.holder = None);
    }
}

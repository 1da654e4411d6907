//! The remains of peers that are gone.

use std::collections::BTreeMap;
use std::time::Instant;

use engine::Rank;
use fabric::Peer;

use super::link::Names;

/// The remains of a peer that there was a link to, for it may live: a connection that broke is enough for a
/// loss at one end. It goes on talking then, and waits for answers until it is told.
pub(super) struct Parted {
    pub(super) peer: Option<Peer>,
    pub(super) names: Names,
    pub(super) remind_at: Instant,
}

/// A peer that is gone.
#[derive(Default)]
pub(super) struct Gone {
    /// `None` where there was no link.
    pub(super) parted: Option<Parted>,
    /// It has said so itself.
    pub(super) has_left: bool,
}

/// Peers that are gone: nothing goes to them or comes from them. None ever comes back.
#[derive(Default)]
pub(super) struct GonePeers {
    all: BTreeMap<Rank, Gone>,
    /// Gone, and nobody has been told.
    untold: Vec<Rank>,
}

impl GonePeers {
    pub(super) fn has(&self, rank: Rank) -> bool {
        self.all.contains_key(&rank)
    }

    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut Gone> {
        self.all.get_mut(&rank)
    }

    /// A peer is gone, which was not known; `parted` is made of its link.
    pub(super) fn enter(&mut self, rank: Rank, parted: Option<Parted>) {
        let known = self.all.insert(rank, Gone { parted, has_left: false });
        assert!(known.is_none(), "peer {rank} is gone once");
    }

    /// Whether the peer has said itself that it is gone.
    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.all.get(&rank).is_some_and(|gone| gone.has_left)
    }

    /// Somebody is to be told of a peer that is gone.
    pub(super) fn tell_of(&mut self, rank: Rank) {
        assert!(self.has(rank), "peer {rank} is told of, and is not gone");
        self.untold.push(rank);
    }

    #[inline(always)]
    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    pub(super) fn take_untold(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.untold)
    }
}

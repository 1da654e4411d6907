//! The grants of peers' that something is known of: a firehose, a question, or a refusal.

use hashbrown::HashMap;

use crate::registration::extent::Extent;
use crate::{GrantId, Rank};

/// Transfers, at most, by a grant whose key was refused before it is asked for once more.
pub(super) const REFUSED_TURNS: u32 = 16;

/// Grants, at most, of which is known that their keys were refused: beyond, all are forgotten.
pub(super) const REFUSED_MAX: usize = 4096;

/// The state of a grant of a peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It has the firehose at this place.
    Held(u32),
    /// This move asks for its key.
    Asked(u32),
    /// Its key was refused, for so many bytes, and is not asked for in so many turns.
    Refused { bytes: u64, turns: u32 },
}

/// The grants of peers' that something is known of.
#[derive(Default)]
pub(super) struct GrantedHoses {
    pub(super) known: HashMap<(Rank, GrantId), Known>,
    /// How many of them were refused.
    refused: usize,
    /// By the places of firehoses.
    pub(super) reach: HashMap<u32, Extent>,
    /// Bytes that questions which are not answered are about, by question.
    pub(super) asked: HashMap<u32, u64>,
}

impl GrantedHoses {
    /// Notes what is known of a grant now: `None` is nothing.
    pub(super) fn set(&mut self, peer: Rank, grant: GrantId, now: Option<Known>) {
        let before = match now {
            Some(now) => self.known.insert((peer, grant), now),
            None => self.known.remove(&(peer, grant)),
        };
        let is_refused = |known: Option<Known>| usize::from(matches!(known, Some(Known::Refused { .. })));
        self.refused = self.refused + is_refused(now) - is_refused(before);
        if self.refused > REFUSED_MAX {
            self.known.retain(|_, known| !matches!(known, Known::Refused { .. }));
            self.refused = 0;
        }
    }

    /// A firehose is not to be found any more. `false`: it is no grant's.
    pub(super) fn forget(&mut self, peer: Rank, at: u32) -> bool {
        let Some(Extent { grant, .. }) = self.reach.get(&at).copied() else { return false };
        if self.known.get(&(peer, grant)) == Some(&Known::Held(at)) {
            self.set(peer, grant, None);
        }
        true
    }

    /// A firehose is no more.
    pub(super) fn remove(&mut self, at: u32) {
        self.reach.remove(&at);
    }

    /// A peer is gone.
    pub(super) fn drop_peer(&mut self, peer: Rank) {
        self.known.retain(|(of, _), _| *of != peer);
        self.refused = self.known.values().filter(|known| matches!(known, Known::Refused { .. })).count();
    }

    /// Bytes of memory that all of this takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.known.allocation_size() + self.reach.allocation_size() + self.asked.allocation_size()
    }
}

//! Atomics by names: counters that owners grant.
//!
//! An owner's arena ends with places for counters. One that is granted begins with 0, and ranks add to it and
//! load it by its name. When the owner revokes that, the count is looked at, and the place is another
//! counter's soon: an atomic by the old name must not change that one.

use std::sync::Arc;

use engine::{Atomic, GrantId, Rank, Rights};
use rustc_hash::FxHashSet;

/// Counters that an owner can have at a time.
pub(super) const PLACES: u32 = 4;

/// Bytes of a place: the counter, a word that is granted with it and that nobody changes, and one that is not
/// granted.
pub(super) const PLACE_BYTES: u64 = 24;
pub(super) const GRANTED_BYTES: u64 = 16;

/// Counters, at most, from the newest on, of which ranks take one.
pub(super) const RECENT_COUNTERS: u64 = 10;

/// Offsets at which there is no counter: not aligned, or partly or wholly beyond the grant.
pub(super) const ASKEW: u64 = 4;
pub(super) const BEYOND: [u64; 3] = [12, 16, 1 << 39];

/// A counter that was granted.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) owner: Rank,
    /// How many processes had the owner's rank before.
    pub(super) incarnation: u32,
    pub(super) id: GrantId,
    pub(super) place: u32,
    pub(super) rights: Rights,
    pub(super) to: Option<Arc<Vec<Rank>>>,
    /// Additions that were begun.
    pub(super) begun: u64,
    /// The words that additions found which have ended; and how many have of which nobody asked for that.
    pub(super) found: FxHashSet<u64>,
    pub(super) blind: u64,
    pub(super) revoked: Option<Revoked>,
}

/// The step at which a counter was revoked, and what lay there then, if that says anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revoked {
    pub(super) step: u64,
    pub(super) words: Option<[u64; 2]>,
}

impl Counter {
    pub(super) fn is_for(&self, rank: Rank, rights: Rights) -> bool {
        let is_named = self.to.as_ref().is_none_or(|to| to.contains(&rank));
        self.rights.include(rights) && (rank == self.owner || is_named)
    }

    pub(super) fn ended(&self) -> u64 {
        self.found.len() as u64 + self.blind
    }

    /// Judges what lies there after all that has ended.
    pub(super) fn judge(&self, [count, beside]: [u64; 2]) -> Result<(), String> {
        let is_counted = (self.ended()..=self.begun).contains(&count);
        if !is_counted || beside != 0 || self.found.iter().any(|found| *found >= count) {
            return Err(format!("{count} lies there, and {beside} beside it: {self:?}"));
        }
        Ok(())
    }
}

/// The counters of all owners.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) all: Vec<Counter>,
    /// By owner and place.
    pub(super) live: Vec<[Option<u32>; PLACES as usize]>,
}

impl Counters {
    pub(super) fn new(ranks: u32) -> Counters {
        Counters { all: Vec::new(), live: vec![[None; PLACES as usize]; ranks as usize] }
    }

    /// Bytes at the end of an arena.
    pub(super) const fn bytes() -> u64 {
        PLACES as u64 * PLACE_BYTES
    }

    /// `rank` is another process, which has granted nothing.
    pub(super) fn restart(&mut self, rank: Rank) {
        self.live[rank as usize] = [None; PLACES as usize];
    }

    /// Counters that an owner grants.
    pub(super) fn live(&self, owner: Rank) -> usize {
        self.live[owner as usize].iter().flatten().count()
    }
}

/// An atomic by a counter's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting {
    pub(super) counter: u32,
    pub(super) atomic: Atomic,
    /// Nobody ever made this name.
    pub(super) forged: bool,
    /// Where in the grant.
    pub(super) at: u64,
    /// Of a load, so many additions had ended before.
    pub(super) floor: u64,
}

//! Active Messages that are on their way.

use engine::{Lane, Rank};
use rustc_hash::FxHashMap;

use super::knowledge::Known;
use super::shadow::Words;

/// A message that has been sent, or will be when its put is over.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) from: Rank,
    pub(super) to: Rank,
    /// How many processes had these ranks before those that it is from and for.
    pub(super) incarnations: (u32, u32),
    pub(super) lane: Lane,
    pub(super) known: Known,
    /// Bytes of a medium payload.
    pub(super) len: usize,
    /// The words that a long message announces, and the puts that must have been before.
    pub(super) landed: Option<(Vec<Words>, u32)>,
}

/// Messages that were not handled yet.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) letters: FxHashMap<u64, Letter>,
    pub(super) written: u64,
    /// The last letter that was handled on each lane.
    pub(super) last: FxHashMap<(Rank, Rank, Lane), u64>,
}

impl Mail {
    pub(super) fn write(&mut self, letter: Letter) -> u64 {
        self.written += 1;
        self.letters.insert(self.written, letter);
        self.written
    }

    /// A message was not sent after all.
    pub(super) fn tear_up(&mut self, letter: u64) {
        self.letters.remove(&letter);
    }
}

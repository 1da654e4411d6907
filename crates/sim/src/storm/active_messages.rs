//! Active Messages that are on their way.

use engine::{Lane, Rank};
use rustc_hash::FxHashMap;

use super::knowledge::Known;
use super::shadow::Words;

/// A message that has been sent, or will be when its put is over.
#[derive(Debug)]
pub(super) struct InFlightMessage {
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
pub(super) struct InFlightMessages {
    pub(super) by_number: FxHashMap<u64, InFlightMessage>,
    pub(super) written: u64,
    /// The last message that was handled on each lane.
    pub(super) last: FxHashMap<(Rank, Rank, Lane), u64>,
}

impl InFlightMessages {
    pub(super) fn write(&mut self, message: InFlightMessage) -> u64 {
        self.written += 1;
        self.by_number.insert(self.written, message);
        self.written
    }

    /// A message was not sent after all.
    pub(super) fn remove(&mut self, number: u64) {
        self.by_number.remove(&number);
    }
}

//! What a node has done, to be looked at.

use engine::{Counters, Mechanism, Operation, PathReason, Tally};

/// Counts of a node's operations since it opened: by operation, by mechanism, and by the reason for the path
/// taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    counters: Counters,
}

impl Stats {
    pub(crate) fn new(counters: Counters) -> Stats {
        Stats { counters }
    }

    /// Operations of this kind that went by this mechanism, and their bytes.
    pub fn get(&self, operation: Operation, mechanism: Mechanism) -> Tally {
        self.counters.get(operation, mechanism)
    }

    /// Operations of this kind by any mechanism.
    pub fn total(&self, operation: Operation) -> Tally {
        Mechanism::ALL.iter().map(|mechanism| self.get(operation, *mechanism)).fold(
            Tally::default(),
            |sum, tally| Tally { count: sum.count + tally.count, bytes: sum.bytes + tally.bytes },
        )
    }

    /// How many operations took their path for this reason.
    pub fn why(&self, why: PathReason) -> u64 {
        self.counters.why(why)
    }

    /// Bytes of this node's puts and gets by message that went through peers' heaps on their way, as long
    /// pieces do over a network that registers no private memory.
    pub fn staged_bytes(&self) -> u64 {
        self.counters.staged
    }

    /// Operations of this node that were cancelled or late while they could still write at their peers.
    /// [`Node::quiet`](crate::Node::quiet) waits for them.
    pub fn given_up(&self) -> u64 {
        self.counters.given_up
    }

    /// Messages from peers that could not be understood, and were dropped.
    pub fn malformed(&self) -> u64 {
        self.counters.malformed
    }

    /// Active Messages from peers whose handlers are not here, and that were refused.
    pub fn refused(&self) -> u64 {
        self.counters.refused
    }
}

//! Messages that are held back until no peer uses any more what is no longer this process's memory. For a
//! process that sees what this one does next may know of what it did before.

use crate::node::transfer::state::HeldStart;
use crate::op_id::OpKey;

/// Operations that have not been started, or do not go on.
#[derive(Default)]
pub(in crate::node) struct Held {
    /// Puts by keys.
    pub(in crate::node) puts: Vec<OpKey>,
    /// Puts and atomics without a key.
    pub(in crate::node) starts: Vec<(OpKey, HeldStart)>,
    /// This rank's arrival at the barrier.
    pub(in crate::node) arrival: bool,
}

impl Held {
    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.arrival && self.puts.is_empty() && self.starts.is_empty()
    }
}

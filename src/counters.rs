//! What a node counts, and how long its calls take.

pub(crate) mod latency;
pub(crate) mod stats;
pub(crate) mod tally;

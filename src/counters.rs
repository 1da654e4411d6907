//! Counts of a node's operations, and times of its calls.

pub(crate) mod latency;
pub(crate) mod stats;
pub(crate) mod thread_counters;

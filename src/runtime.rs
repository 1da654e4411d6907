//! How a node runs: progress, waiting, losses, and what goes on after calls.

pub(crate) mod far;
pub(crate) mod inner;
pub(crate) mod patience;
pub(crate) mod progress;
pub(crate) mod show;
pub(crate) mod works;

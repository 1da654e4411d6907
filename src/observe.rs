//! Views of running jobs from outside, and of this host.

pub mod host;
pub mod metrics;
pub mod watch;

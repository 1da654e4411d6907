//! What can be seen of jobs from outside, and of this host.

pub mod host;
pub mod watch;

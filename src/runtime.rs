//! How a node runs: progress, waiting, losses, and what goes on after calls.

pub(crate) mod background_steps;
pub(crate) mod bring_up_network;
pub(crate) mod collective_scratch;
pub(crate) mod core;
pub(crate) mod failures;
pub(crate) mod grant_users;
pub(crate) mod handlers;
pub(crate) mod life;
pub(crate) mod payloads;
pub(crate) mod progress_thread;
pub(crate) mod publish_counters;
pub(crate) mod shared;
pub(crate) mod wait_policy;
pub(crate) mod watchers;

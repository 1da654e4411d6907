//! The parts of all ways to meet: secrets, addresses of sockets, channels, and the job's name.

pub(crate) mod addresses;
pub(in crate::job) mod blocking_call;
pub(in crate::job) mod channel;
pub(in crate::job) mod env;
pub(in crate::job) mod host_id;
pub(in crate::job) mod identity_proof;
pub(in crate::job) mod marks;
pub(crate) mod poll;
pub(in crate::job) mod secret;
pub(in crate::job) mod staggered;
pub(in crate::job) mod tcp_server;

pub use env::{JobEnv, JobEnvError, RANKS_MAX};
#[cfg(test)]
pub(crate) use secret::Secret;
pub(crate) use secret::random_bytes;
pub use tcp_server::check_rendezvous_words;

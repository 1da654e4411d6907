//! A job that the library's own launcher started: the broker, its members, and those who look at it.

mod broker;
pub(in crate::job) mod connection;
pub(in crate::job) mod member;
pub(in crate::job) mod roster;
pub(in crate::job) mod socket;
pub(in crate::job) mod unauthenticated;
mod watcher;
pub(in crate::job) mod watchers;
pub(in crate::job) mod wire;

pub use broker::{Broker, BrokerError};
pub use member::{JoinError, Membership, Notice, OnNotice, PeerHandles, PeerHandlesError};
pub use watcher::LookError;
pub(crate) use watcher::{Watcher, find_launcher};
pub use wire::{Decline, How, JOIN_HEADER, Refusal};

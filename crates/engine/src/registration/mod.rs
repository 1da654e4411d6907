//! Registered memory: what this process has pinned for its peers and for itself, and what it costs.
//!
//! A transport between hosts reaches only memory that is *registered*: pinned, and known to the network card
//! by a key. That takes long, and pinned memory is scarce. So registrations are kept while that pays, and
//! peers keep the right to use them (a *firehose*), in bytes never more than a budget. That is Firehose
//! (Bonachea, Bell), and the pin-down cache of PM (Tezuka et al.) at both ends.

mod counters;
pub(crate) mod extent;
pub mod firehose;
pub(crate) mod message;
mod miss_policy;
mod quota;
mod settings;
mod slots;
pub mod table;
mod victims;

pub use counters::{ByPeer, PeerCounters, TableCounters};
pub use settings::{Keep, Order, Quota, Settings, Strategy};
pub use table::entry::PinId;
pub use table::pins::Pinning;

/// Names one registration of this process, to the transport. Never reused while the transport may still refer
/// to it: it carries a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegId {
    /// Its place in the table.
    pub index: u32,
    /// How often that place was used before.
    pub generation: u32,
}

/// The key that a peer's transport needs, besides the address, to reach registered memory; the owner's
/// transport makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// Adjacent buckets, registered as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first bucket's number.
    pub first: u64,
    /// How many.
    pub count: u32,
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RegisterError {
    /// The system or the card pins no more.
    #[error("the system pins no more memory for this process")]
    Limit,
    /// Part of it is not mapped, or may not be accessed.
    #[error("part of the memory is not mapped, or may not be accessed")]
    Fault,
    /// It could change without this process being told, so that a registration must not be kept.
    #[error("changes of the memory would not be told")]
    Untold,
}

/// The first bucket after a run.
pub(crate) const fn end_of(run: Run) -> u64 {
    run.first + run.count as u64
}

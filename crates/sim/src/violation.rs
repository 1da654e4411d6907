//! Accesses that a card refused, or should not have been asked for.

use engine::{Nanos, Rank};

/// An access to memory that was not registered as it should have been. A correct protocol makes none that is
/// [avoidable](Violation::is_avoidable), whatever the seed; except that an operation that was under way when
/// its owner cut the initiator off is refused, too: who judges knows whom it was that the owner had given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// When the card looked.
    pub at: Nanos,
    /// When the operation was started, in the order of events: its initiator's own clock may have been ahead.
    pub started: Nanos,
    /// How many one-sided operations had been started in the whole cluster when it was, itself included.
    pub serial: u64,
    /// Who started it.
    pub initiator: Rank,
    /// Whose memory was to be accessed: the initiator's own, at the local end.
    pub owner: Rank,
    /// The first byte of the access.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What was wrong.
    pub breach: Breach,
}

impl Violation {
    /// Whether the protocol should have prevented it: everything but an access to memory of whose change the
    /// initiator could not know when it started.
    pub fn is_avoidable(&self) -> bool {
        match self.breach {
            Breach::Stale { knew, .. } => knew,
            _ => true,
        }
    }
}

/// What was wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breach {
    /// No registration ever had this key; refused.
    Unknown,
    /// The registration is no more; refused.
    Revoked,
    /// The registration is not there yet; refused.
    Early,
    /// The registration does not reach so far; refused.
    Beyond,
    /// The registration does not begin where the initiator counts from; refused.
    Base,
    /// More bytes at the local end than need no registration; refused.
    Unregistered,
    /// The memory was unmapped after it was registered: the card reads or writes what lay there, as real ones
    /// do.
    Stale {
        /// When it was unmapped.
        since: Nanos,
        /// Whether the initiator could know of it when it started: it was its own memory; or there was news
        /// of its owner from after, through Active Messages, barriers and words that both use atomics on,
        /// however many ranks lie between.
        knew: bool,
    },
}

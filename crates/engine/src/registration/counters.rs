//! What the registration table counts.

/// What happened, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Runs that were wanted and registered already.
    pub hits: u64,
    /// Of these, victims.
    pub rescues: u64,
    /// Runs that were registered.
    pub registrations: u64,
    /// Victims that were deregistered to make room.
    pub evictions: u64,
    /// Requests for which there was no room.
    pub refusals: u64,
    /// Registrations that failed.
    pub failures: u64,
    /// Runs whose memory changed.
    pub invalidations: u64,
    /// Times that peers were asked to give back what they did not need.
    pub recalls: u64,
    /// Bytes that are registered now.
    pub pinned: u64,
    /// The most that ever were.
    pub pinned_peak: u64,
    /// M + MAXVICTIM, or what the system has allowed of it.
    pub budget: u64,
}

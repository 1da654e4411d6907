//! Senders that rang, and could not be connected to yet.

use std::time::{Duration, Instant};

use engine::Rank;

/// How long a sender that rings may take to be connected to, at the first attempt and at most. It has joined
/// before it could ring, so this takes no time; but any peer can ring in the name of one that never comes.
const HEAR_WITHIN: Duration = Duration::from_millis(100);
const HEAR_WITHIN_MAX: Duration = Duration::from_millis(500);

/// A sender that rang, and has not been connected to.
pub(super) struct Unheard {
    pub(super) rank: Rank,
    /// How long the next attempt may take; doubled by each that fails.
    pub(super) timeout: Duration,
    pub(super) not_before: Instant,
}

impl Unheard {
    pub(super) fn new(rank: Rank) -> Unheard {
        Unheard { rank, timeout: HEAR_WITHIN, not_before: Instant::now() }
    }

    /// After an attempt that failed. A thread that polls holds the engine during attempts, so they are kept
    /// rare.
    pub(super) fn put_off(&mut self) {
        self.timeout = (self.timeout * 2).min(HEAR_WITHIN_MAX);
        self.not_before = Instant::now() + self.timeout * 4;
    }
}

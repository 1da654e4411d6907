//! Senders that rang, and could not be connected to yet.

use std::collections::VecDeque;
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
    not_before: Instant,
}

impl Unheard {
    fn new(rank: Rank) -> Unheard {
        Unheard { rank, timeout: HEAR_WITHIN, not_before: Instant::now() }
    }

    /// After an attempt that failed. A thread that polls holds the engine during attempts, so they are kept
    /// rare.
    fn put_off(&mut self) {
        self.timeout = (self.timeout * 2).min(HEAR_WITHIN_MAX);
        self.not_before = Instant::now() + self.timeout * 4;
    }
}

/// All of them, those that have waited longest first.
#[derive(Default)]
pub(super) struct UnheardSenders {
    waiting: VecDeque<Unheard>,
}

impl UnheardSenders {
    /// A sender has rung.
    pub(super) fn rang(&mut self, rank: Rank) {
        if self.waiting.iter().all(|waiting| waiting.rank != rank) {
            self.waiting.push_back(Unheard::new(rank));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Where in the list the first of them is whose time has come, as that of one that is `known` has.
    pub(super) fn due(&self, known: impl Fn(Rank) -> bool) -> Option<usize> {
        let now = if self.waiting.is_empty() { return None } else { Instant::now() };
        self.waiting.iter().position(|waiting| waiting.not_before <= now || known(waiting.rank))
    }

    /// Takes one out.
    pub(super) fn take(&mut self, at: usize) -> Option<Unheard> {
        self.waiting.remove(at)
    }

    /// Puts one back, after an attempt that failed.
    pub(super) fn put_off(&mut self, mut waiting: Unheard) {
        waiting.put_off();
        self.waiting.push_back(waiting);
    }
}

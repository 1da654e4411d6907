//! How long a wait goes on: polling, sleeping, at all.

use std::time::{Duration, Instant};

/// How long a wait goes on polling, sleeping and waiting at all.
#[derive(Default)]
pub(crate) struct Patience {
    timeout: Option<Duration>,
    /// Set when the clock is first read; `None` inside: never.
    deadline: Option<Option<Instant>>,
    /// Set at the first poll in vain since something moved, with how many moves there had been.
    polls_until: Option<(Instant, u64)>,
}

/// What a wait does next.
pub(crate) enum Next {
    Poll,
    Sleep(Duration),
    GiveUp,
}

impl Patience {
    /// For a wait that may take so long.
    pub(crate) fn new(timeout: Option<Duration>) -> Patience {
        Patience { timeout, ..Patience::default() }
    }

    fn deadline(&mut self, now: Instant) -> Option<Instant> {
        let timeout = self.timeout;
        *self.deadline.get_or_insert_with(|| timeout.and_then(|timeout| now.checked_add(timeout)))
    }

    /// Whether the wait's time has passed. Reads the clock.
    #[inline(never)]
    pub(crate) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.deadline(now).is_some_and(|deadline| deadline <= now)
    }

    /// After a poll in vain, before which there had been so many moves.
    #[inline(never)]
    pub(crate) fn next(&mut self, now: Instant, moves: u64, spin: Duration) -> Next {
        let polls_until = match self.polls_until {
            Some((until, before)) if before == moves => until,
            _ => now.checked_add(spin).unwrap_or(now),
        };
        self.polls_until = Some((polls_until, moves));
        match self.deadline(now) {
            Some(deadline) if deadline <= now => Next::GiveUp,
            _ if now < polls_until => Next::Poll,
            deadline => Next::Sleep(deadline.map_or(Duration::MAX, |deadline| deadline - now)),
        }
    }
}

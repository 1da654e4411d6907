//! How long a wait goes on: polling, sleeping, at all.

use std::time::{Duration, Instant};

/// How long a wait goes on polling, sleeping and waiting at all.
#[derive(Default)]
pub(crate) struct WaitPolicy {
    timeout: Option<Duration>,
    /// Set when the clock is first read; `None` inside: never.
    deadline: Option<Option<Instant>>,
    /// Set at the first poll in vain since something moved, with how many moves there had been.
    polls_until: Option<(Instant, u64)>,
    /// That it has polled longer since then, for what is under way.
    polled_longer: bool,
}

/// How a node's waits poll.
pub(crate) struct Polling {
    /// How long, before they sleep.
    pub(crate) spin: Duration,
    /// Polls of the engine at a time: one where polling in vain would only keep the awaited from running,
    /// without a core to spare.
    pub(crate) polls: u32,
}

/// What a wait does next.
pub(crate) enum Next {
    Poll,
    Sleep(Duration),
    GiveUp,
}

impl WaitPolicy {
    /// For a wait that may take so long.
    pub(crate) fn new(timeout: Option<Duration>) -> WaitPolicy {
        WaitPolicy { timeout, ..WaitPolicy::default() }
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

    /// What is left of its time; `None`: it may wait for ever.
    pub(crate) fn left(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.deadline(now).map(|deadline| deadline.saturating_duration_since(now))
    }

    /// After a poll in vain, before which there had been so many moves.
    #[inline(never)]
    pub(crate) fn next(&mut self, now: Instant, moves: u64, spin: Duration) -> Next {
        let polls_until = match self.polls_until {
            Some((until, before)) if before == moves => until,
            _ => {
                self.polled_longer = false;
                now.checked_add(spin).unwrap_or(now)
            }
        };
        self.polls_until = Some((polls_until, moves));
        match self.deadline(now) {
            Some(deadline) if deadline <= now => Next::GiveUp,
            _ if now < polls_until => Next::Poll,
            deadline => Next::Sleep(deadline.map_or(Duration::MAX, |deadline| deadline - now)),
        }
    }

    /// Where the wait was to sleep: has it go on polling for so long after `now`, once since anything moved.
    /// `false`: it has done so, or there is nothing to poll for.
    pub(crate) fn poll_longer(&mut self, now: Instant, by: impl FnOnce() -> Duration) -> bool {
        let Some((polls_until, _)) = self.polls_until.as_mut().filter(|_| !self.polled_longer) else {
            return false;
        };
        self.polled_longer = true;
        let by = by();
        *polls_until = now.checked_add(by).unwrap_or(now);
        !by.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);
    const LONGER: Duration = Duration::from_millis(2);

    #[test]
    fn a_wait_polls_longer_once_since_anything_moved() {
        let (mut wait_policy, begun) = (WaitPolicy::new(None), Instant::now());
        let polls = |wait_policy: &mut WaitPolicy, after, moves| {
            matches!(wait_policy.next(begun + after, moves, SPIN), Next::Poll)
        };
        assert!(polls(&mut wait_policy, Duration::ZERO, 0));
        assert!(!polls(&mut wait_policy, SPIN, 0));
        assert!(wait_policy.poll_longer(begun + SPIN, || LONGER));
        assert!(polls(&mut wait_policy, LONGER, 0));
        assert!(!polls(&mut wait_policy, SPIN + LONGER, 0));
        assert!(!wait_policy.poll_longer(begun + SPIN + LONGER, || LONGER), "it has done so");
        assert!(polls(&mut wait_policy, LONGER * 2, 1), "something moved");
        assert!(!polls(&mut wait_policy, LONGER * 2 + SPIN, 1));
        assert!(
            !wait_policy.poll_longer(begun + LONGER * 2 + SPIN, || Duration::ZERO),
            "nothing is under way"
        );
        assert!(!wait_policy.poll_longer(begun + LONGER * 2 + SPIN, || LONGER), "it was asked");
    }

    #[test]
    fn a_deadline_ends_longer_polls() {
        let (mut wait_policy, begun) = (WaitPolicy::new(Some(LONGER)), Instant::now());
        assert!(matches!(wait_policy.next(begun, 0, SPIN), Next::Poll));
        assert!(
            matches!(wait_policy.next(begun + SPIN, 0, SPIN), Next::Sleep(left) if left == LONGER - SPIN)
        );
        assert!(wait_policy.poll_longer(begun + SPIN, || LONGER * 2));
        assert!(matches!(wait_policy.next(begun + LONGER, 0, SPIN), Next::GiveUp));
    }
}

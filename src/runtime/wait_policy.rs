//! How long a wait goes on: polling, sleeping, at all; and when who only polls gives the processor away.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// When the clock was first read before a sleep; `None` inside: the wait has been found long.
    slept_since: Option<Option<Instant>>,
}

/// How long a wait sleeps before whoever it waits for is looked at.
const LONG: Duration = Duration::from_secs(1);

/// How a node's waits poll.
pub(crate) struct Polling {
    /// How long, before they sleep.
    pub(crate) spin: Duration,
    /// Polls of the engine at a time: one where polling in vain would only keep the awaited from running,
    /// without a core to spare.
    pub(crate) polls: u32,
    /// Those in vain of callers that never wait.
    pub(crate) vain: VainPolls,
    /// Calls that poll nothing, and could not do at once what they were to do.
    pub(crate) tries: VainPolls,
}

impl Polling {
    pub(crate) fn new(spin: Duration, polls: u32) -> Polling {
        Polling { spin, polls, vain: VainPolls::new(), tries: VainPolls::new() }
    }
}

/// Polls in vain, one after the other, after which one looks whether the program does nothing but poll.
const VAIN_LOOK: u64 = 64;

/// Those after which it gives its processor away, once in so many, where the job has a core for each process:
/// others may run on these cores that nobody here knows of.
const VAIN_YIELD: u64 = 256;

/// The time between two polls, on average, up to which a program does nothing but poll. One that computes in
/// between keeps its processor.
const VAIN_APART: Duration = Duration::from_micros(20);

/// Polls that found nothing, by callers that poll and never wait. Where there are more processes than cores,
/// whoever they wait for may need the very core on which they poll.
///
/// Several threads may count at once, and then count too few: that only puts a yield off.
pub(crate) struct VainPolls {
    /// Since anything has moved: in the high half how much had, in the low half how many polls.
    count: AtomicU64,
    /// When the last look was, in nanoseconds since `epoch`, and in the lowest bit whether nothing but polls
    /// came before it.
    looked: AtomicU64,
    /// Whether the processor is to be given away.
    is_due: AtomicBool,
    epoch: Instant,
}

impl VainPolls {
    fn new() -> VainPolls {
        VainPolls {
            count: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
            epoch: Instant::now(),
        }
    }

    /// Whether to give the processor away before the next poll. The one that does says when it has it
    /// [back](VainPolls::is_back).
    #[inline]
    pub(crate) fn is_yield_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// After a poll in vain at that time, before which so much had moved. To give the processor away is due
    /// after each one where the job has more processes than cores (`crowded`), else now and then.
    #[inline]
    pub(crate) fn note(&self, now: Instant, moved: u32, crowded: bool) {
        let before = self.count.load(Ordering::Relaxed);
        let is_first = before >> 32 != u64::from(moved);
        let word = if is_first { u64::from(moved) << 32 } else { before }.wrapping_add(1);
        self.count.store(word, Ordering::Relaxed);
        let count = word & u64::from(u32::MAX);
        if is_first || count.is_multiple_of(VAIN_LOOK) || (crowded && count > VAIN_LOOK) {
            let is_due = self.look(now, count, crowded);
            self.is_due.store(is_due, Ordering::Relaxed);
        }
    }

    /// Looks whether the polls since the last look came one right after the other.
    #[inline(never)]
    fn look(&self, now: Instant, count: u64, crowded: bool) -> bool {
        let (at, before) = (self.at(now), self.looked.load(Ordering::Relaxed));
        if count == 1 {
            self.looked.store(at, Ordering::Relaxed);
            return false;
        }
        let did_nothing_else = before & 1 != 0;
        let polls = match (crowded, did_nothing_else) {
            (true, true) => 1,
            (true, false) if !count.is_multiple_of(VAIN_LOOK) => return false,
            _ => VAIN_LOOK,
        };
        let does_nothing_else = at.saturating_sub(before & !1) < polls * VAIN_APART.as_nanos() as u64;
        self.looked.store(at | u64::from(does_nothing_else), Ordering::Relaxed);
        does_nothing_else && (crowded || count.is_multiple_of(VAIN_YIELD))
    }

    /// The processor is back after it was given away: others may have had it for long.
    #[inline(never)]
    pub(crate) fn is_back(&self, now: Instant) {
        self.is_due.store(false, Ordering::Relaxed);
        self.looked.store(self.at(now) | 1, Ordering::Relaxed);
    }

    /// A number that changes with each poll in vain.
    pub(crate) fn counted(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn at(&self, now: Instant) -> u64 {
        (now.saturating_duration_since(self.epoch).as_nanos() as u64) & !1
    }
}

/// The next step of a wait.
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

    /// The rest of its time; `None`: it may wait for ever.
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

    /// Before a sleep: whether the wait is long by now, once.
    pub(crate) fn turns_long(&mut self, now: Instant) -> bool {
        let since = self.slept_since.get_or_insert(Some(now));
        since.take_if(|since| now.saturating_duration_since(*since) >= LONG).is_some()
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

    /// After which of 600 polls in vain, so far apart, the processor is given away, each time for so long.
    fn yields(polls: &VainPolls, now: &mut Instant, apart: Duration, moved: u32, crowded: bool) -> Vec<u64> {
        let mut yields = Vec::new();
        for poll in 1..=600 {
            *now += apart;
            polls.note(*now, moved, crowded);
            if polls.is_yield_due() {
                yields.push(poll);
                *now += LONGER;
                polls.is_back(*now);
            }
        }
        yields
    }

    #[test]
    fn who_only_polls_gives_the_processor_away_after_some_polls_in_vain() {
        let (polls, apart) = (VainPolls::new(), Duration::from_nanos(200));
        let (mut now, each) = (polls.epoch, (VAIN_LOOK..=600).collect::<Vec<u64>>());
        assert_eq!(yields(&polls, &mut now, apart, 0, true), each);
        assert_eq!(yields(&polls, &mut now, apart, 1, true), each, "something has moved: it counts anew");
        assert_eq!(yields(&polls, &mut now, apart, 2, false), [VAIN_YIELD, 2 * VAIN_YIELD]);
    }

    #[test]
    fn who_computes_between_polls_keeps_the_processor() {
        let (polls, apart) = (VainPolls::new(), Duration::from_nanos(200));
        let mut now = polls.epoch;
        assert_eq!(yields(&polls, &mut now, VAIN_APART * 2, 0, true), []);
        assert_eq!(yields(&polls, &mut now, VAIN_APART * 2, 0, false), []);
        assert_ne!(yields(&polls, &mut now, apart, 1, true), []);
        assert_eq!(yields(&polls, &mut now, VAIN_APART * 2, 1, true), [], "it computes from now on");
    }

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
    fn a_wait_turns_long_once() {
        let (mut wait_policy, begun) = (WaitPolicy::new(None), Instant::now());
        let turns = [0, 1, 999, 1000, 1001, 5000].map(Duration::from_millis);
        let long = turns.map(|after| wait_policy.turns_long(begun + after));
        assert_eq!(long, [false, false, false, true, false, false]);
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

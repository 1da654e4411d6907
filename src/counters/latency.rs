//! How long calls took: a histogram for each kind of call that waits, of some of the calls.
//!
//! Operations that complete at the call by a plain copy are not among them: reading the clock takes longer
//! than that.
//!
//! A call that waits is timed there. An operation that goes on after its call is looked after by the thread
//! that makes progress. A request carries the time of its call as a stamp, which the reply or the word of the
//! handler's end brings back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The calls whose time is taken: those that wait for others, or for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timed {
    /// Puts by cross-memory attach, by message, or over a network, from the call to their end; non-blocking
    /// ones, too.
    Put,
    /// Gets, likewise.
    Get,
    /// Atomics by message; non-blocking ones, too.
    Atomic,
    /// Collectives of teams; non-blocking ones, too.
    Collective,
    /// [`Node::barrier`](crate::Node::barrier), with the waiting for the node's puts.
    Barrier,
    /// Requests by Active Message, from the call to the arrival of the reply; where the handler does not
    /// reply, of the word that it has run.
    Request,
}

impl Timed {
    /// All of them.
    pub const ALL: [Timed; 6] =
        [Timed::Put, Timed::Get, Timed::Atomic, Timed::Collective, Timed::Barrier, Timed::Request];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Timed::Put => "put",
            Timed::Get => "get",
            Timed::Atomic => "atomic",
            Timed::Collective => "collective",
            Timed::Barrier => "barrier",
            Timed::Request => "request",
        }
    }

    /// Of so many calls one is timed: of requests fewer, as the word of a handler's end is a message more.
    pub const fn sampled_of(self) -> u32 {
        match self {
            Timed::Request => 64,
            _ => 16,
        }
    }
}

/// The first bucket ends here, and each power of two from here on is cut into four: the end of a bucket is
/// less than a quarter more than its beginning.
const FIRST_NS: u64 = 64;
const PARTS: usize = 4;

/// The last bucket begins at 2^36 ns, somewhat more than a minute.
const BUCKETS: usize = (36 - FIRST_NS.ilog2() as usize) * PARTS + 2;

/// No count is larger, so that a kind's add up.
const COUNT_MAX: u64 = u64::MAX >> 16;

/// Words that show the latency of one kind: its buckets, its time in all, and the longest.
const KIND_WORDS: usize = BUCKETS + 2;
const TOTAL: usize = BUCKETS;
const LONGEST: usize = BUCKETS + 1;

/// Words that show the latencies of all kinds.
pub(crate) const WORDS: usize = Timed::ALL.len() * KIND_WORDS;

/// The bucket of a duration.
fn bucket(ns: u64) -> usize {
    if ns < FIRST_NS {
        return 0;
    }
    let power = ns.ilog2();
    let part = (ns >> (power - PARTS.ilog2())) as usize % PARTS;
    ((power - FIRST_NS.ilog2()) as usize * PARTS + part + 1).min(BUCKETS - 1)
}

/// Where a bucket ends: no duration in it is as long. The last one has no end.
fn end_of(bucket: usize) -> Option<u64> {
    if bucket + 1 >= BUCKETS {
        return None;
    }
    let (power, part) = (bucket / PARTS, (bucket % PARTS) as u64);
    Some((FIRST_NS << power) + (FIRST_NS << power) / PARTS as u64 * part)
}

/// How long calls of one kind took, as far as they were timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    counts: [u64; BUCKETS],
    total_ns: u64,
    max_ns: u64,
}

impl Latency {
    /// Calls that were timed: about one in [so many](Timed::sampled_of).
    pub fn sampled(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The time of all that were timed.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns)
    }

    /// The longest of those that were timed, as it was measured; `None` where none was.
    pub fn max(&self) -> Option<Duration> {
        (self.sampled() > 0).then(|| Duration::from_nanos(self.max_ns))
    }

    /// The time that no more than that share of the calls took longer than; `None` where none was timed.
    /// `0.5` gives the median, `1.0` the longest. It is the end of a bucket, up to a quarter more than what
    /// was measured, but never more than the longest.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let sampled = self.sampled();
        let wanted = ((share.clamp(0.0, 1.0) * sampled as f64).ceil() as u64).max(1);
        let mut seen = 0_u64;
        let found = self.counts.iter().position(|count| {
            seen = seen.saturating_add(*count);
            seen >= wanted
        })?;
        Some(Duration::from_nanos(end_of(found).unwrap_or(u64::MAX).min(self.max_ns)))
    }

    /// The buckets: of each its end, and how many calls were in it. The last has no end.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let ends = (0..BUCKETS).map(|bucket| end_of(bucket).map(Duration::from_nanos));
        ends.zip(self.counts.iter().copied())
    }

    fn merge(&mut self, other: &Latency) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// How long calls took, kind by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies(Vec<Latency>);

impl Latencies {
    /// Those of one kind.
    pub fn get(&self, what: Timed) -> &Latency {
        &self.0[what as usize]
    }

    /// Adds those of another rank.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// The latencies that were shown. Any words mean something, and add up.
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Latencies {
        let one = |words: &[u64]| Latency {
            counts: std::array::from_fn(|bucket| words[bucket].min(COUNT_MAX)),
            total_ns: words[TOTAL],
            max_ns: words[LONGEST],
        };
        Latencies(words.chunks_exact(KIND_WORDS).map(one).collect())
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::from_words(&[0; WORDS])
    }
}

/// Takes the time of some calls. Any thread may use it.
pub(crate) struct Recorder {
    turns: [AtomicU32; Timed::ALL.len()],
    words: Box<[AtomicU64; WORDS]>,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder { turns: Default::default(), words: Box::new([const { AtomicU64::new(0) }; WORDS]) }
    }

    /// Whether a call that begins is to be timed.
    #[inline]
    pub(crate) fn is_turn(&self, what: Timed) -> bool {
        // Threads that come at once may take the same turn: one sample more or less.
        let turn = self.turns[what as usize].load(Ordering::Relaxed);
        self.turns[what as usize].store(turn.wrapping_add(1), Ordering::Relaxed);
        turn.is_multiple_of(what.sampled_of())
    }

    /// Makes a call, and takes its time if it is its turn. Failures count as much as all else: their callers
    /// waited.
    #[inline]
    pub(crate) fn time<R>(&self, what: Timed, call: impl FnOnce() -> R) -> R {
        if !self.is_turn(what) {
            return call();
        }
        let begun = Instant::now();
        let result = call();
        self.record(what, begun.elapsed());
        result
    }

    /// Enters what a call took.
    #[cold]
    pub(crate) fn record(&self, what: Timed, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let first = what as usize * KIND_WORDS;
        // First, so that none is seen that is longer.
        self.words[first + LONGEST].fetch_max(ns, Ordering::Relaxed);
        self.words[first + bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.words[first + TOTAL].fetch_add(ns, Ordering::Relaxed);
    }

    /// All that was timed so far, as it is shown.
    pub(crate) fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_below_the_end_of_its_bucket_and_not_below_the_one_before() {
        let powers = (0..64).map(|power| 1_u64 << power);
        for ns in powers.flat_map(|power| [power - 1, power, power + power / 3]).chain([u64::MAX]) {
            let found = bucket(ns);
            assert!(end_of(found).is_none_or(|end| ns < end), "{ns} ns in bucket {found}");
            let before = found.checked_sub(1).and_then(end_of);
            assert!(before.is_none_or(|end| ns >= end), "{ns} ns in bucket {found}");
        }
        let ends: Vec<u64> = (0..BUCKETS).filter_map(end_of).collect();
        assert_eq!((ends.len(), ends[0], ends[1], ends[4]), (BUCKETS - 1, 64, 80, 128));
        assert!(ends.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= pair[0] + pair[0] / 4));
    }

    #[test]
    fn one_call_in_sixteen_is_timed_and_quantiles_are_found() {
        let recorder = Recorder::new();
        for _ in 0..160 {
            assert_eq!(recorder.time(Timed::Get, || 7), 7);
        }
        let latencies = Latencies::from_words(&recorder.words());
        assert_eq!((latencies.get(Timed::Get).sampled(), latencies.get(Timed::Put).sampled()), (10, 0));
        assert_eq!(latencies.get(Timed::Put).quantile(0.5), None);
        let recorder = Recorder::new();
        for us in 1..=100 {
            recorder.record(Timed::Put, Duration::from_micros(us));
        }
        let mut latencies = Latencies::from_words(&recorder.words());
        latencies.merge(&latencies.clone());
        let put = latencies.get(Timed::Put);
        assert_eq!((put.sampled(), put.total()), (200, Duration::from_micros(10_100)));
        for (share, us) in [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let (found, real) = (put.quantile(share).expect("some"), Duration::from_micros(us));
            assert!(found >= real && found <= real * 5 / 4 + Duration::from_nanos(1), "{share}: {found:?}");
        }
        let longest = Some(Duration::from_micros(100));
        assert_eq!((put.max(), put.quantile(1.0)), (longest, longest), "as it was, and no bucket's end");
        assert_eq!(latencies.get(Timed::Get).max(), None);
    }

    #[test]
    fn whatever_is_shown_adds_up() {
        let mut latencies = Latencies::from_words(&[u64::MAX; WORDS]);
        latencies.merge(&latencies.clone());
        let put = latencies.get(Timed::Put);
        assert_eq!(put.sampled(), 2 * COUNT_MAX * BUCKETS as u64);
        assert!(put.quantile(0.5).is_some());
        assert_eq!(put.total(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn a_year_of_waiting_is_a_year() {
        let (recorder, day) = (Recorder::new(), Duration::from_secs(86_400));
        (0..365).for_each(|_| recorder.record(Timed::Barrier, day));
        let latencies = Latencies::from_words(&recorder.words());
        assert_eq!(latencies.get(Timed::Barrier).total(), 365 * day);
    }
}

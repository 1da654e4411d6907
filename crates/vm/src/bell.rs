//! A process's doorbell: who rang is a bitmap, and a futex wakes whoever sleeps.
//!
//! It lies in memory that every peer writes. A hostile one can therefore wake the owner for nothing or clear
//! what others rang. It can never do worse, and since a sleep has a limit, a cleared bit is found when it
//! ends.

use std::ops::Deref;
use std::time::Duration;

use crate::futex;
pub use crate::futex::Wake;
use crate::sync::{AtomicU64, Ordering, fence};

/// Word whose low half the kernel compares: it changes whenever sleepers are woken.
const SEQUENCE: usize = 0;
/// Word that counts the owner's threads that sleep or are about to.
const SLEEPERS: usize = 1;
/// The bitmap starts on the next cache line.
const PENDING: usize = 8;

/// How many 64-bit words a bell for `peers` peers takes. They must be zero at the start.
pub const fn bell_words(peers: usize) -> usize {
    PENDING + peers.div_ceil(64)
}

/// One end of a doorbell: the owner's, who sleeps on it, or a peer's, who rings it. Any thread may use
/// either.
#[derive(Debug)]
pub struct Bell<M> {
    words: M,
    peers: usize,
}

impl<M: Deref<Target = [AtomicU64]>> Bell<M> {
    /// The bell for `peers` peers that lies in `words`; `None` if there are fewer words than [`bell_words`]
    /// says.
    pub fn new(words: M, peers: usize) -> Option<Bell<M>> {
        (words.len() >= bell_words(peers)).then_some(Bell { words, peers })
    }

    /// Says that peer `from` has something for the owner, and wakes it if it sleeps. A thread that finds the
    /// bit sees all that was written before.
    ///
    /// A bit that is set already makes this one atomic operation: whoever set it does the waking. A number
    /// that the bell has no bit for rings without saying who.
    pub fn ring(&self, from: usize) {
        if from >= self.peers {
            return self.poke();
        }
        let bit = 1 << (from % 64);
        let before = self.words[PENDING + from / 64].fetch_or(bit, Ordering::AcqRel);
        if before & bit == 0 {
            self.poke();
        }
    }

    /// Wakes the owner's sleepers, if there are any, without saying who. All that they should see must be
    /// written before.
    pub fn poke(&self) {
        // Against the fence in `announce`: either we see the sleeper here, or it sees what we wrote.
        fence(Ordering::SeqCst);
        if self.words[SLEEPERS].load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// As [`poke`](Bell::poke), without its fence: for who has just changed what sleepers look at by an
    /// atomic read-modify-write that is sequentially consistent.
    pub fn poke_after_change(&self) {
        // In the one order of all that is sequentially consistent, the change is before this load. A sleeper
        // that is not seen here has its fence in `announce` after this load, so that it sees the change when
        // it looks again.
        if self.words[SLEEPERS].load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.words[SEQUENCE].fetch_add(1, Ordering::Release);
        futex::wake_all(&self.words[SEQUENCE]);
    }

    /// Whether anybody has rung since the last [`take_pending`](Bell::take_pending).
    pub fn has_pending(&self) -> bool {
        self.bitmap().iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Whether peer `from` has rung, and nobody has taken note of it since.
    pub fn has_rung(&self, from: usize) -> bool {
        from < self.peers && self.bitmap()[from / 64].load(Ordering::Relaxed) & 1 << (from % 64) != 0
    }

    /// Calls `f` with each peer that has rung since the last call, in rising order.
    pub fn take_pending(&self, mut f: impl FnMut(usize)) {
        for (index, word) in self.bitmap().iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let from = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // The last word may have bits that are nobody's.
                if from < self.peers {
                    f(from);
                }
            }
        }
    }

    /// Announces that this thread is about to sleep. **Afterwards** look again at everything that it waits
    /// for, and only then [`sleep`](Ticket::sleep): whatever is rung from here on ends that sleep.
    pub fn announce(&self) -> Ticket<'_, M> {
        self.words[SLEEPERS].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let sequence = self.words[SEQUENCE].load(Ordering::Acquire) as u32;
        Ticket { bell: self, sequence }
    }

    /// How often sleepers have been woken, wrapping.
    pub fn rung(&self) -> u32 {
        self.words[SEQUENCE].load(Ordering::Acquire) as u32
    }

    fn bitmap(&self) -> &[AtomicU64] {
        &self.words[PENDING..bell_words(self.peers)]
    }
}

/// A thread's announcement that it will sleep. Dropping it takes the announcement back.
#[must_use = "the announcement is taken back when this is dropped"]
#[derive(Debug)]
pub struct Ticket<'a, M: Deref<Target = [AtomicU64]>> {
    bell: &'a Bell<M>,
    sequence: u32,
}

impl<M: Deref<Target = [AtomicU64]>> Ticket<'_, M> {
    /// How often sleepers had been woken at the announcement, as [`Bell::rung`] says it.
    pub fn rung_before(&self) -> u32 {
        self.sequence
    }

    /// Whether the bell has been rung since the announcement: a sleep would end at once. For who sleeps on
    /// something else besides.
    pub fn is_rung(&self) -> bool {
        self.bell.words[SEQUENCE].load(Ordering::Acquire) as u32 != self.sequence
    }

    /// Sleeps until the bell is rung, `timeout` has passed (`None`: no limit), or for no reason at all.
    pub fn sleep(self, timeout: Option<Duration>) -> Wake {
        futex::wait(&self.bell.words[SEQUENCE], self.sequence, timeout)
    }
}

impl<M: Deref<Target = [AtomicU64]>> Drop for Ticket<'_, M> {
    fn drop(&mut self) {
        self.bell.words[SLEEPERS].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    const LIMIT: Option<Duration> = Some(Duration::from_secs(10));

    fn bell(peers: usize) -> Bell<Arc<[AtomicU64]>> {
        let words = (0..bell_words(peers)).map(|_| AtomicU64::new(0)).collect();
        Bell::new(words, peers).expect("enough words")
    }

    fn taken(bell: &Bell<Arc<[AtomicU64]>>) -> Vec<usize> {
        let mut taken = Vec::new();
        bell.take_pending(|from| taken.push(from));
        taken
    }

    #[test]
    fn whoever_rang_is_reported_once() {
        let bell = bell(130);
        for from in [129, 0, 63, 64, 64] {
            bell.ring(from);
        }
        assert!(bell.has_pending() && bell.has_rung(129) && !bell.has_rung(1) && !bell.has_rung(130));
        assert_eq!(taken(&bell), [0, 63, 64, 129]);
        assert!(!bell.has_pending() && !bell.has_rung(129));
        assert_eq!(taken(&bell), [0; 0]);
    }

    #[test]
    fn bits_of_nobody_are_ignored() {
        let bell = bell(3);
        bell.ring(3);
        bell.ring(usize::MAX);
        assert_eq!(taken(&bell), [0; 0]);
        bell.words[PENDING].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(taken(&bell), [0, 1, 2]);
    }

    #[test]
    fn too_few_words_make_no_bell() {
        let words: Arc<[AtomicU64]> = (0..8).map(|_| AtomicU64::new(0)).collect();
        assert!(Bell::new(Arc::clone(&words), 0).is_some());
        assert!(Bell::new(words, 1).is_none());
    }

    #[test]
    fn a_ring_between_announcing_and_sleeping_ends_the_sleep_at_once() {
        let bell = bell(1);
        let ticket = bell.announce();
        assert!(!ticket.is_rung());
        bell.ring(0);
        assert!(ticket.is_rung());
        assert_eq!(ticket.sleep(LIMIT), Wake::Rung);
        assert_eq!(bell.words[SLEEPERS].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_sleep_ends_with_its_time() {
        let bell = bell(1);
        let start = Instant::now();
        let wait = Duration::from_millis(20);
        while bell.announce().sleep(Some(wait)) != Wake::TimedOut {}
        assert!(start.elapsed() >= wait);
    }

    #[test]
    fn a_dropped_ticket_counts_no_more() {
        let bell = bell(1);
        let first = bell.announce();
        let second = bell.announce();
        drop(first);
        assert_eq!(bell.words[SLEEPERS].load(Ordering::Relaxed), 1);
        drop(second);
        assert_eq!(bell.words[SLEEPERS].load(Ordering::Relaxed), 0);
        bell.ring(0);
        assert_eq!(bell.words[SEQUENCE].load(Ordering::Relaxed), 0, "nobody to wake, no system call");
    }

    #[test]
    #[cfg_attr(miri, ignore = "rings the bell thousands of times")]
    fn every_sleeper_is_woken_every_time() {
        let bell = Arc::new(bell(2));
        let seen: Arc<[AtomicU64]> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let round = Arc::new(AtomicU64::new(0));
        let rounds = 2000;
        let sleepers: Vec<_> = (0..3)
            .map(|me| {
                let (bell, seen, round) = (Arc::clone(&bell), Arc::clone(&seen), Arc::clone(&round));
                thread::spawn(move || {
                    for next in 1..=rounds {
                        while round.load(Ordering::Acquire) < next {
                            let ticket = bell.announce();
                            if round.load(Ordering::Acquire) < next {
                                assert_eq!(ticket.sleep(LIMIT), Wake::Rung);
                            }
                        }
                        seen[me].store(next, Ordering::Release);
                    }
                })
            })
            .collect();
        for next in 1..=rounds {
            round.store(next, Ordering::Release);
            bell.poke();
            while seen.iter().any(|s| s.load(Ordering::Acquire) < next) {
                thread::yield_now();
            }
        }
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc as StdArc;

    type LoomBell = Bell<StdArc<[AtomicU64]>>;

    fn bell(peers: usize) -> (LoomBell, LoomBell) {
        let words: StdArc<[AtomicU64]> = (0..bell_words(peers)).map(|_| AtomicU64::new(0)).collect();
        let other = Bell::new(StdArc::clone(&words), peers).expect("enough words");
        (Bell::new(words, peers).expect("enough words"), other)
    }

    /// Sleeps without a limit until peers were taken `wanted` times: a lost wake-up is a deadlock, which loom
    /// finds.
    fn collect(bell: &LoomBell, wanted: usize) {
        let mut got = 0;
        loop {
            bell.take_pending(|_| got += 1);
            if got >= wanted {
                return;
            }
            let ticket = bell.announce();
            if !bell.has_pending() {
                ticket.sleep(None);
            }
        }
    }

    #[test]
    fn loom_two_ringers_one_sleeper() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mine, theirs) = bell(2);
            let words = StdArc::clone(&theirs.words);
            let first = thread::spawn(move || theirs.ring(0));
            let second = thread::spawn(move || Bell::new(words, 2).expect("enough words").ring(1));
            collect(&mine, 2);
            first.join().unwrap();
            second.join().unwrap();
        });
    }

    #[test]
    fn loom_one_bit_rung_twice() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mine, theirs) = bell(1);
            let data = StdArc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let other = StdArc::clone(&data);
            let words = StdArc::clone(&theirs.words);
            let first = thread::spawn(move || {
                other[0].store(1, Ordering::Relaxed);
                theirs.ring(0);
            });
            let other = StdArc::clone(&data);
            let second = thread::spawn(move || {
                other[1].store(1, Ordering::Relaxed);
                Bell::new(words, 1).expect("enough words").ring(0);
            });
            while data.iter().any(|d| d.load(Ordering::Relaxed) == 0) {
                collect(&mine, 1);
            }
            first.join().unwrap();
            second.join().unwrap();
        });
    }

    #[test]
    fn loom_a_poke_wakes_two_sleepers() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let (mine, theirs) = bell(0);
            let flag = StdArc::new(AtomicU64::new(0));
            let sleep = |bell: LoomBell, flag: StdArc<AtomicU64>| {
                move || {
                    while flag.load(Ordering::Acquire) == 0 {
                        let ticket = bell.announce();
                        if flag.load(Ordering::Acquire) == 0 {
                            ticket.sleep(None);
                        }
                    }
                }
            };
            let third = Bell::new(StdArc::clone(&mine.words), 0).expect("enough words");
            let one = thread::spawn(sleep(theirs, StdArc::clone(&flag)));
            let two = thread::spawn(sleep(third, StdArc::clone(&flag)));
            flag.store(1, Ordering::Release);
            mine.poke();
            one.join().unwrap();
            two.join().unwrap();
        });
    }
}

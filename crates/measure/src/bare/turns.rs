//! The best that processes can do which pass turns by words of memory: nothing but the words, and the
//! kernel's call where they sleep.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use standpipe::{Error, GlobalPtr, Node, underneath};
use vm::{SharedMemory, futex};

/// A word of some heap, mapped here, for the limits that need nothing but memory.
#[derive(Debug)]
pub struct Word {
    memory: SharedMemory,
    offset: u64,
}

impl Word {
    /// The word that `ptr` points to.
    ///
    /// # Errors
    /// As for [`Node::atomic_load`].
    pub fn new(node: &Node, ptr: GlobalPtr<u64>) -> Result<Word, Error> {
        node.atomic_load(ptr)?;
        // SAFETY: only this word is touched, which the load has just reached; what is open in a mapping stays
        // open for as long as a handle to it lives.
        let memory = unsafe { underneath::heap(node, ptr.peer())? }.clone();
        Ok(Word { memory, offset: ptr.offset() })
    }

    /// The word.
    pub fn get(&self) -> &AtomicU64 {
        self.memory.atomic_u64(self.offset).expect("an atomic was done there when this was made")
    }
}

/// Arithmetic that takes a processor about so long, as software takes on its way from one cache line to the
/// next. A line takes longer or shorter by what its holder does in between.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    rounds: u32,
}

impl Work {
    /// None at all.
    pub const NONE: Work = Work { rounds: 0 };

    /// Of about so many nanoseconds, as this processor does it now.
    pub fn of_ns(ns: u32) -> Work {
        const ROUNDS: u32 = 20_000;
        let took = || {
            let begun = Instant::now();
            Work { rounds: ROUNDS }.run();
            begun.elapsed().as_nanos() as u64
        };
        // Disturbances make a try longer, never shorter.
        let least = (0..9).map(|_| took()).min().unwrap_or(1).max(1);
        let rounds = u64::from(ns) * u64::from(ROUNDS) / least;
        Work { rounds: u32::try_from(rounds).unwrap_or(u32::MAX).max(u32::from(ns > 0)) }
    }

    /// Does it.
    #[inline]
    pub fn run(self) {
        let mut value = u64::from(self.rounds);
        for _ in 0..self.rounds {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        }
    }
}

/// Adds to a word of another process's and waits until that has added to one of this one's, `times` times
/// there and back, each `work` before it adds. Both call it with the same two words (`mine` of one is
/// `theirs` of the other), which both must hold `start`. Returns at once with the time so far if `stop` says
/// so.
pub fn signals(
    [mine, theirs]: [&AtomicU64; 2],
    first: bool,
    start: u64,
    times: u32,
    work: Work,
    stop: impl Fn() -> bool,
) -> Duration {
    let begun = Instant::now();
    for wanted in start + 1..=start + u64::from(times) {
        if !first && !await_at_least(mine, wanted, &stop) {
            break;
        }
        work.run();
        theirs.fetch_add(1, Ordering::AcqRel);
        if first && !await_at_least(mine, wanted, &stop) {
            break;
        }
    }
    begun.elapsed()
}

/// Tells another process of a round and waits until that has told of it, too, `times` times, both at once,
/// each `work` before it tells. Words and `stop` are as for [`signals`].
pub fn crossing(
    [mine, theirs]: [&AtomicU64; 2],
    start: u64,
    times: u32,
    work: Work,
    stop: impl Fn() -> bool,
) -> Duration {
    let begun = Instant::now();
    for wanted in start + 1..=start + u64::from(times) {
        work.run();
        theirs.store(wanted, Ordering::Release);
        if !await_at_least(mine, wanted, &stop) {
            break;
        }
    }
    begun.elapsed()
}

/// Whether the word has come to `wanted`, before `stop` said so.
#[inline]
fn await_at_least(word: &AtomicU64, wanted: u64, stop: &impl Fn() -> bool) -> bool {
    let mut spins = 0u32;
    while word.load(Ordering::Acquire) < wanted {
        spin_loop();
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(1 << 16) && stop() {
            return false;
        }
    }
    true
}

/// Bounces a cache line with another process `times` times there and back; both call it with the same word,
/// which must hold `start`, and exactly one of them is `first`. Returns at once with the time so far if
/// `stop` says so.
pub fn bounce(word: &AtomicU64, first: bool, start: u64, times: u32, stop: impl Fn() -> bool) -> Duration {
    bounce_after(word, first, start, times, Work::NONE, stop)
}

/// The same, each `work` before it passes the line on.
pub fn bounce_after(
    word: &AtomicU64,
    first: bool,
    start: u64,
    times: u32,
    work: Work,
    stop: impl Fn() -> bool,
) -> Duration {
    let begun = Instant::now();
    let parity = u64::from(!first);
    for turn in 0..u64::from(times) {
        let mine = start + 2 * turn + parity;
        let mut spins = 0u32;
        while word.load(Ordering::Acquire) != mine {
            spin_loop();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(1 << 16) && stop() {
                return begun.elapsed();
            }
        }
        work.run();
        word.store(mine + 1, Ordering::Release);
    }
    while first && word.load(Ordering::Acquire) != start + 2 * u64::from(times) {
        spin_loop();
        if stop() {
            break;
        }
    }
    begun.elapsed()
}

/// Passes a turn with another process `times` times there and back, each sleeping on a futex while it is not
/// its turn. Both call it with the same two words (`mine` of one is `theirs` of the other), which both must
/// hold `start`.
pub fn futex_ping_pong(
    mine: &AtomicU64,
    theirs: &AtomicU64,
    first: bool,
    start: u64,
    times: u32,
) -> Duration {
    let begun = Instant::now();
    for turn in 1..=u64::from(times) {
        if first {
            pass(theirs, start + turn);
        }
        await_turn(mine, start + turn);
        if !first {
            pass(theirs, start + turn);
        }
    }
    begun.elapsed()
}

fn pass(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
    futex::wake_all(word);
}

fn await_turn(word: &AtomicU64, value: u64) {
    const LOST: Duration = Duration::from_secs(2);
    loop {
        let now = word.load(Ordering::Acquire);
        if now == value || futex::wait(word, now as u32, Some(LOST)) == futex::Wake::TimedOut {
            return;
        }
    }
}

/// A barrier of nothing but a counter and a futex: `arrived` counts, `round` holds the number of rounds done.
/// Every one of `size` processes calls it as often.
pub fn futex_barrier(arrived: &AtomicU64, round: &AtomicU64, size: u64, times: u32) -> Duration {
    let begun = Instant::now();
    for _ in 0..times {
        let before = round.load(Ordering::Acquire);
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 == size {
            arrived.store(0, Ordering::Relaxed);
            pass(round, before + 1);
        } else {
            while round.load(Ordering::Acquire) == before {
                if futex::wait(round, before as u32, Some(Duration::from_secs(2))) == futex::Wake::TimedOut {
                    return begun.elapsed();
                }
            }
        }
    }
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_go_both_ways_come_to_their_last_value() {
        let words: [AtomicU64; 2] = Default::default();
        let give_up = Instant::now() + Duration::from_secs(20);
        let stop = || Instant::now() > give_up;
        let (near, far) = ([&words[0], &words[1]], [&words[1], &words[0]]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                signals(far, false, 0, 50, Work::of_ns(25), stop);
                crossing(far, 50, 50, Work::NONE, stop);
            });
            assert!(signals(near, true, 0, 50, Work::of_ns(25), stop) > Duration::ZERO);
            assert!(crossing(near, 50, 50, Work::NONE, stop) > Duration::ZERO);
        });
        assert_eq!(words.map(AtomicU64::into_inner), [100, 100]);
        assert!(Work::of_ns(25).rounds > 0 && Work::of_ns(0).rounds == 0);
    }
}

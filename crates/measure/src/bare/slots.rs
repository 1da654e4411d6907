//! The best that two processes can do of which one floods the other: memory that both have mapped, and words
//! that say who may touch it.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use standpipe::{Error, GlobalPtr, Node, underneath};
use vm::SharedMemory;

use super::memory::{Mapped, mapped};
use super::turns::Word;

/// Two slots of payload in the receiver's heap, with a flag each: 1 while the slot is full.
#[derive(Debug)]
pub struct Slots {
    flags: [Word; 2],
    slots: [Mapped; 2],
    next: usize,
}

impl Slots {
    /// Two slots of `len` bytes at `slots`, whose flags lie at `flags` and are 0. Each of both sides makes
    /// its own of the same pointers.
    ///
    /// # Errors
    /// As for [`Node::get_bytes`] and [`Node::atomic_load`].
    pub fn new(
        node: &Node,
        flags: [GlobalPtr<u64>; 2],
        slots: [GlobalPtr<u8>; 2],
        len: usize,
    ) -> Result<Slots, Error> {
        let [first, second] = flags.map(|flag| Word::new(node, flag));
        let [lower, upper] = slots.map(|slot| mapped(node, slot, len));
        Ok(Slots { flags: [first?, second?], slots: [lower?, upper?], next: 0 })
    }

    /// Copies a payload into the next slot; `false` while that is full.
    #[inline]
    pub fn put(&mut self, from: &[u8]) -> bool {
        self.turn(0, |slot| slot.copy_in(from))
    }

    /// Copies the payload of the next slot out; `false` while that is empty.
    #[inline]
    pub fn take(&mut self, into: &mut [u8]) -> bool {
        self.turn(1, |slot| slot.copy_out(into))
    }

    /// Whether all that was put has been taken.
    pub fn are_empty(&self) -> bool {
        self.flags.iter().all(|flag| flag.get().load(Ordering::Acquire) == 0)
    }

    #[inline]
    fn turn(&mut self, mine: u64, copy: impl FnOnce(&Mapped)) -> bool {
        let flag = self.flags[self.next].get();
        if flag.load(Ordering::Acquire) != mine {
            return false;
        }
        copy(&self.slots[self.next]);
        flag.store(1 - mine, Ordering::Release);
        self.next = 1 - self.next;
        true
    }
}

/// Cache lines that hold a short message each.
const LINES: u64 = 64;

/// Words that [`Lines`] take: a line each, and one more that says how many have been taken.
pub const LINES_WORDS: usize = 8 * (LINES as usize + 1);

/// The receiver says what it has taken once in so many messages.
const TAKEN_ONCE_IN: u64 = 16;

/// A ring of lines in the receiver's heap, each of which holds four words and its message's number.
#[derive(Debug)]
pub struct Lines {
    memory: SharedMemory,
    offset: u64,
    /// Messages so far.
    done: u64,
}

impl Lines {
    /// The ring of [`LINES_WORDS`] words from `at` on, which are 0. Each of both sides makes its own.
    ///
    /// # Errors
    /// As for [`Node::atomic_load`].
    pub fn new(node: &Node, at: GlobalPtr<u64>) -> Result<Lines, Error> {
        node.atomic_load(at)?;
        node.atomic_load(at.add(LINES_WORDS - 1))?;
        // SAFETY: only words of the ring are touched, whose ends the loads have just reached; what is open in
        // a mapping stays open for as long as a handle to it lives.
        let memory = unsafe { underneath::heap(node, at.peer())? }.clone();
        Ok(Lines { memory, offset: at.offset(), done: 0 })
    }

    /// Sends so many messages, and waits until all have been taken, or `stop` says so.
    pub fn send(&mut self, times: u32, stop: impl Fn() -> bool) -> Duration {
        let words = self.words();
        let taken = words[8 * LINES as usize];
        let (first, mut seen) = (self.done, self.done);
        let last = first + u64::from(times);
        let begun = Instant::now();
        for number in first..last {
            if number - seen == LINES {
                let room = spin(&stop, || {
                    seen = taken.load(Ordering::Acquire);
                    number - seen < LINES
                });
                if !room {
                    break;
                }
            }
            let line = &words[8 * (number % LINES) as usize..][..8];
            line[..4].iter().for_each(|word| word.store(number, Ordering::Relaxed));
            line[7].store(number + 1, Ordering::Release);
        }
        spin(&stop, || taken.load(Ordering::Acquire) == last);
        let took = begun.elapsed();
        self.done = last;
        took
    }

    /// Takes so many messages, unless `stop` says so first.
    pub fn take(&mut self, times: u32, stop: impl Fn() -> bool) {
        let words = self.words();
        let taken = words[8 * LINES as usize];
        let last = self.done + u64::from(times);
        for number in self.done..last {
            let line = &words[8 * (number % LINES) as usize..][..8];
            if !spin(&stop, || line[7].load(Ordering::Acquire) == number + 1) {
                break;
            }
            std::hint::black_box(line[..4].iter().fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed)));
            if (number + 1).is_multiple_of(TAKEN_ONCE_IN) || number + 1 == last {
                taken.store(number + 1, Ordering::Release);
            }
        }
        self.done = last;
    }

    fn words(&self) -> Vec<&AtomicU64> {
        let word = |index| self.memory.atomic_u64(self.offset + 8 * index as u64);
        (0..LINES_WORDS).map(|index| word(index).expect("reached when this was made")).collect()
    }
}

/// Waits for `ready` without sleeping; `false` if `stop` says so first, which is asked once in a thousand
/// looks.
pub fn spin(stop: &impl Fn() -> bool, mut ready: impl FnMut() -> bool) -> bool {
    loop {
        for _ in 0..1000 {
            if ready() {
                return true;
            }
            spin_loop();
        }
        if stop() {
            return false;
        }
    }
}

//! Changes, from the one thread that reads them to all who must know before they go on.
//!
//! The kernel lets go whoever changed memory as soon as the news of it is *read*, which is before anybody can
//! act on it. So the reader makes the sequence word odd, reads, writes down what changed, and makes the word
//! even. A thread that starts something later compares the word with what it was. The same, and nothing has
//! changed; odd, and there may be something that is read and not written down, so it waits.
//!
//! Changes are written down in a ring that the reader never waits for. A thread that is so late that part of
//! it is overwritten takes everything to have changed.

use crate::futex;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Looks at an odd sequence word before sleeping.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 200 };

/// Memory that is not any more what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The addresses from `start` to before `end`.
    Range {
        /// The first.
        start: u64,
        /// The one after the last.
        end: u64,
    },
    /// Perhaps all of it: too much has changed to say.
    Everything,
}

struct Slot {
    start: AtomicU64,
    end: AtomicU64,
}

/// The sequence word and the ring.
pub(crate) struct ChangeLog {
    sequence: AtomicU64,
    /// Threads that sleep until the word is even.
    sleepers: AtomicU32,
    /// Slots that are or are being written, since the beginning; slots that are written.
    begun: AtomicU64,
    written: AtomicU64,
    slots: Box<[Slot]>,
}

/// How much of it somebody has taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    sequence: u64,
    written: u64,
}

impl ChangeLog {
    /// A ring of so many slots.
    pub(crate) fn new(slots: usize) -> ChangeLog {
        let slot = |_| Slot { start: AtomicU64::new(0), end: AtomicU64::new(0) };
        ChangeLog {
            sequence: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            written: AtomicU64::new(0),
            slots: (0..slots).map(slot).collect(),
        }
    }

    /// To be called before something is read: makes others wait. Only by the thread that reads, as the next
    /// two.
    pub(crate) fn open(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        debug_assert!(sequence.is_multiple_of(2), "begun twice");
        // The kernel wakes who changed memory under a lock that it takes after this and that the woken takes,
        // too.
        self.sequence.store(sequence + 1, Ordering::Relaxed);
    }

    /// Writes down what changed, after [`ChangeLog::open`].
    pub(crate) fn record(&self, start: u64, end: u64) {
        let at = self.written.load(Ordering::Relaxed);
        self.begun.store(at + 1, Ordering::Relaxed);
        // A thread that sees the slot change sees that it was begun.
        fence(Ordering::Release);
        let slot = self.slot(at);
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(end, Ordering::Relaxed);
        self.written.store(at + 1, Ordering::Release);
    }

    /// All that was read is written down: others may go on.
    pub(crate) fn close(&self) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
        // Either this sees the sleeper, or the sleeper sees the even word.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            futex::wake_all(&self.sequence);
        }
    }

    /// Where somebody begins who has nothing from before.
    pub(crate) fn cursor(&self) -> Cursor {
        let sequence = self.settled();
        Cursor { sequence, written: self.written.load(Ordering::Acquire) }
    }

    /// Whether nothing has changed since `mark`. Words that are read after a `false`, and before another
    /// look, may be torn.
    #[inline]
    pub(crate) fn is_current(&self, mark: &Cursor) -> bool {
        self.sequence.load(Ordering::Acquire) == mark.sequence
    }

    /// Waits until all that was read by now is written down, and tells what of it is new since `mark`, which
    /// moves on.
    pub(crate) fn catch_up(&self, mark: &mut Cursor, mut changed: impl FnMut(Changed)) {
        mark.sequence = self.settled();
        let written = self.written.load(Ordering::Acquire);
        let room = self.slots.len() as u64;
        let mut at = mark.written;
        while at < written && written - at <= room {
            let slot = self.slot(at);
            let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.begun.load(Ordering::Relaxed) > at + room {
                break;
            }
            changed(Changed::Range { start, end });
            at += 1;
        }
        if at < written {
            changed(Changed::Everything);
        }
        mark.written = written;
    }

    /// The sequence word, once it is even.
    pub(crate) fn settled(&self) -> u64 {
        for _ in 0..LOOKS {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence.is_multiple_of(2) {
                return sequence;
            }
            std::hint::spin_loop();
        }
        self.sleep()
    }

    #[cold]
    fn sleep(&self) -> u64 {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let settled = loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence.is_multiple_of(2) {
                break sequence;
            }
            futex::wait(&self.sequence, sequence as u32, None);
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        settled
    }

    /// Whether the word is still `sequence`, so that all that was read before this being from then.
    pub(crate) fn is_unchanged(&self, sequence: u64) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }

    fn slot(&self, at: u64) -> &Slot {
        &self.slots[(at % self.slots.len() as u64) as usize]
    }
}

#[cfg(all(test, loom))]
#[path = "change_log_loom.rs"]
mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What somebody with this mark is told.
    fn told(of: &ChangeLog, mark: &mut Cursor) -> Vec<Changed> {
        let mut all = Vec::new();
        of.catch_up(mark, |changed| all.push(changed));
        all
    }

    fn tell(of: &ChangeLog, start: u64) {
        of.open();
        of.record(start, start + 10);
        of.close();
    }

    #[test]
    fn everybody_is_told_once_what_came_after_their_mark() {
        let of = ChangeLog::new(8);
        let mut early = of.cursor();
        assert!(of.is_current(&early));
        tell(&of, 100);
        assert!(!of.is_current(&early));
        let mut late = of.cursor();
        tell(&of, 200);
        let (first, second) =
            (Changed::Range { start: 100, end: 110 }, Changed::Range { start: 200, end: 210 });
        assert_eq!(told(&of, &mut early), [first, second]);
        assert_eq!(told(&of, &mut late), [second]);
        assert!(of.is_current(&early) && of.is_current(&late) && told(&of, &mut early).is_empty());
    }

    #[test]
    fn who_is_too_late_takes_everything_to_have_changed() {
        let of = ChangeLog::new(8);
        let mut mark = of.cursor();
        (0..8).for_each(|at| tell(&of, at));
        let mut same = mark;
        assert_eq!(told(&of, &mut same).len(), 8);
        tell(&of, 8);
        assert_eq!(told(&of, &mut mark), [Changed::Everything]);
        assert!(told(&of, &mut mark).is_empty());
    }

    #[test]
    fn who_looks_while_something_is_read_waits() {
        let of = ChangeLog::new(8);
        let mut mark = of.cursor();
        of.open();
        assert!(!of.is_current(&mark));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| told(&of, &mut mark));
            std::thread::sleep(std::time::Duration::from_millis(5));
            of.record(1, 2);
            of.close();
            assert_eq!(waiting.join().expect("no panic"), [Changed::Range { start: 1, end: 2 }]);
        });
    }
}

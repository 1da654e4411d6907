//! Sleeping on a 64-bit word of shared memory: the kernel compares its low half.

use std::time::Duration;

use crate::sync::AtomicU64;

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Somebody woke us, or had changed the word already, or a signal came: look again.
    Rung,
    /// The time given has passed.
    TimedOut,
}

#[cfg(not(loom))]
pub use real::{wait, wake_all};

#[cfg(loom)]
pub use model::{wait, wake_all};

#[cfg(not(loom))]
mod real {
    use super::{AtomicU64, Duration, Wake};
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags, Timespec};
    use std::sync::atomic::AtomicU32;

    /// The half of the word that the kernel looks at.
    fn low_half(word: &AtomicU64) -> &AtomicU32 {
        // SAFETY: the first four bytes of eight valid ones, aligned to eight, for as long as the word is
        // borrowed. Only the kernel reads through it, with its own atomic access.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Sleeps while the low half of `word` is `expected`, until woken, for `timeout` at most.
    pub fn wait(word: &AtomicU64, expected: u32, timeout: Option<Duration>) -> Wake {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        // Not private to the process: the wakers are others, who map the word elsewhere.
        match futex::wait(low_half(word), Flags::empty(), expected, timeout.as_ref()) {
            Err(Errno::TIMEDOUT) => Wake::TimedOut,
            _ => Wake::Rung,
        }
    }

    /// Wakes all who sleep on `word`.
    pub fn wake_all(word: &AtomicU64) {
        // It fails only where there is nothing to wake.
        let _ = futex::wake(low_half(word), Flags::empty(), i32::MAX as u32);
    }
}

/// The kernel's promise, in loom's terms: comparing and falling asleep is one step with regard to waking. One
/// queue serves all words, so a model sees wakings that were meant for others, as a real sleeper may.
#[cfg(loom)]
mod model {
    use super::{AtomicU64, Duration, Wake};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref QUEUE: Mutex<()> = Mutex::new(());
        static ref SLEEPERS: Condvar = Condvar::new();
    }

    /// Sleeps while the low half of `word` is `expected`, until woken; time does not pass in a model.
    pub fn wait(word: &AtomicU64, expected: u32, _timeout: Option<Duration>) -> Wake {
        let queue = QUEUE.lock().unwrap();
        if word.load(crate::sync::Ordering::Relaxed) as u32 == expected {
            drop(SLEEPERS.wait(queue).unwrap());
        }
        Wake::Rung
    }

    /// Wakes all who sleep on any word.
    pub fn wake_all(_word: &AtomicU64) {
        let _queue = QUEUE.lock().unwrap();
        SLEEPERS.notify_all();
    }
}

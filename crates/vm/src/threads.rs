//! Threads of ours in a program that is somebody else's: its handlers of signals do not run on them.
//!
//! A program may block a signal to take it with `sigwait` or a `signalfd`. The kernel gives a signal to any
//! thread that does not block it, so a single thread of ours that blocked none would take it away.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Signals that a thread's own code causes. The program's handlers of these, a runtime's check of stacks or a
/// reporter of crashes, are to run wherever its code does.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread of that name which takes no signal but its own faults. Any thread may call; a signal that
/// the caller is sent meanwhile waits.
///
/// # Errors
/// The kernel's, when it gives no thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.to_owned());
    with_blocked(&FAULTS, || builder.spawn(work))
}

/// As [`spawn`], for work that runs nothing of the program's on a stack too small for its handlers. This
/// thread takes no signal at all, and a fault of its ends the process.
pub(crate) fn spawn_small(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let builder = Builder::new().name(name.to_owned()).stack_size(stack_bytes);
    with_blocked(&[], || builder.spawn(work))
}

/// Calls `f`, which may start threads: they, and all that they start, take no signal but their own faults.
/// For threads of other libraries. Any thread may call; a signal that it is sent meanwhile waits.
pub fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    with_blocked(&FAULTS, f)
}

/// Calls `f` with all signals blocked but these.
fn with_blocked<T>(but: &[i32], f: impl FnOnce() -> T) -> T {
    let _mask = Mask::all(but);
    f()
}

/// All signals but some are blocked while this lives, also when it is dropped by a panic.
struct Mask(libc::sigset_t);

impl Mask {
    fn all(but: &[i32]) -> Mask {
        // SAFETY: both sets are ours, and valid as sets of no signals until they are filled; the calls write
        // them only, and change nothing but which signals this thread takes.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            for signal in but {
                libc::sigdelset(&raw mut all, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Mask(before)
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel gave; it is read only.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// Whether the calling thread blocks that signal.
    fn blocks(signal: i32) -> bool {
        // SAFETY: the set is ours, and written by the call; no mask is given, so none is changed.
        unsafe {
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked);
            libc::sigismember(&raw const blocked, signal) == 1
        }
    }

    #[test]
    fn threads_of_ours_take_faults_of_their_own_alone() {
        let before = blocks(libc::SIGUSR1);
        let masks = spawn("test", || [libc::SIGUSR1, libc::SIGTERM, libc::SIGSEGV].map(blocks));
        assert_eq!(masks.expect("a thread").join().expect("no panic"), [true, true, false]);
        assert_eq!(blocks(libc::SIGUSR1), before, "the caller's mask is as it was");
    }

    #[test]
    fn a_panic_leaves_the_mask_as_it_was() {
        let before = blocks(libc::SIGUSR1);
        assert!(std::panic::catch_unwind(|| without_signals(|| panic!("on purpose"))).is_err());
        assert_eq!(blocks(libc::SIGUSR1), before);
    }
}

//! Keeping the process's signal handlers as they are.
//!
//! Libraries that providers are linked with take handlers for themselves. Of Debian 12's libfabric, loading
//! it alone puts PSM's in the place of those for SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV and SIGTERM, which
//! print a backtrace and exit with status 1. Other versions' `shm` takes some when it opens. A program would
//! then no longer be seen to end by a signal, and Rust's own handler, which tells a stack overflow, would be
//! gone.

use std::mem::MaybeUninit;

/// The handlers that libraries are known to take, and those like them.
const TAKEN: [libc::c_int; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGTERM,
];

/// A signal that a thread causes itself: it cannot wait.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Calls something, and puts the handlers back that it has changed. A handler that another thread sets
/// meanwhile is lost. Debian's PSM takes 0.2 s to be loaded. Signals that this thread is sent meanwhile wait
/// for the program's own handlers; a signal that another thread takes runs into PSM's. Threads that the call
/// starts take no signals: none is theirs to take from the program.
pub(crate) fn kept<T>(call: impl FnOnce() -> T) -> T {
    let before = TAKEN.map(|signal| (signal, current(signal)));
    let mask = hold_back();
    let result = call();
    for (signal, before) in before {
        if let Some(before) = before {
            // SAFETY: it is what the system itself gave for this signal a moment ago, and was valid before
            // the call.
            unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
        }
    }
    // SAFETY: the set is a live local, and what this thread had blocked before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    result
}

/// Blocks all signals but faults in this thread; returns what was blocked before.
fn hold_back() -> libc::sigset_t {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are live locals. `sigfillset` makes the first whole before anything reads it.
    // `pthread_sigmask` writes the second before it is read: with `SIG_BLOCK` and two valid pointers that
    // call cannot fail.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in &FAULTS {
            libc::sigdelset(set.as_mut_ptr(), *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn current(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: with no new action this only writes the old one, which is read only after success.
    unsafe {
        let got = libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0;
        got.then(|| action.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn handler(_: libc::c_int) {}

    /// One test at a time changes handlers, and none while the library is loaded, which puts back those of
    /// before.
    fn turn() -> std::sync::MutexGuard<'static, ()> {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _ = crate::Fabric::load();
        TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[test]
    fn a_signal_that_is_sent_waits_for_the_programs_own_handler() {
        use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
        let _turn = turn();
        static OURS: AtomicU32 = AtomicU32::new(0);
        static THEIRS: AtomicU32 = AtomicU32::new(0);
        extern "C" fn ours(_: libc::c_int) {
            OURS.fetch_add(1, SeqCst);
        }
        extern "C" fn theirs(_: libc::c_int) {
            THEIRS.fetch_add(1, SeqCst);
        }
        // SAFETY: both handlers may run at any time, and the signal goes to this thread.
        unsafe {
            libc::signal(libc::SIGHUP, ours as *const () as libc::sighandler_t);
            kept(|| {
                libc::signal(libc::SIGHUP, theirs as *const () as libc::sighandler_t);
                libc::pthread_kill(libc::pthread_self(), libc::SIGHUP);
            });
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
        }
        assert_eq!((OURS.load(SeqCst), THEIRS.load(SeqCst)), (1, 0));
    }

    #[test]
    fn a_handler_that_was_taken_is_put_back() {
        let _turn = turn();
        let before = current(libc::SIGQUIT).expect("a signal").sa_sigaction;
        assert_ne!(before, handler as *const () as usize);
        let during = kept(|| {
            // SAFETY: this handler does nothing, so it may run at any time.
            unsafe { libc::signal(libc::SIGQUIT, handler as *const () as libc::sighandler_t) };
            current(libc::SIGQUIT).expect("a signal").sa_sigaction
        });
        assert_eq!(during, handler as *const () as usize);
        assert_eq!(current(libc::SIGQUIT).expect("a signal").sa_sigaction, before);
    }
}

//! Keeping the process's signal handlers as they are.
//!
//! Libraries that providers are linked with take handlers for themselves: of Debian 12's libfabric, loading it alone
//! puts PSM's in the place of those for SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV and SIGTERM, which print a backtrace
//! and exit with status 1; other versions' `shm` takes some when it opens. A program would then no longer be seen to
//! end by a signal, and Rust's own handler, which tells a stack overflow, would be gone.

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

/// Calls something, and puts the handlers back that it has changed. What another thread sets meanwhile is lost.
pub(crate) fn kept<T>(call: impl FnOnce() -> T) -> T {
    let before = TAKEN.map(|signal| (signal, current(signal)));
    let result = call();
    for (signal, before) in before {
        if let Some(before) = before {
            // SAFETY: it is what the system itself gave for this signal a moment ago, and was valid before the call.
            unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
        }
    }
    result
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

    #[test]
    fn a_handler_that_was_taken_is_put_back() {
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

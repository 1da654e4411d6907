//! Threads of ours that take no signals: a program's handlers are not to run on them, nor on their small
//! stacks.

/// Calls `f`, which starts a thread, so that no handler of a signal ever runs on that thread. Signals that
/// this thread is sent meanwhile wait. Any thread may call.
pub fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are ours, and valid as sets of no signals until they are filled; the calls write them
    // only, and change nothing but which signals this thread takes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let done = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        done
    }
}

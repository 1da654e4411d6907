//! Sleeping until a file descriptor is ready or a moment has come.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Sleeps until one of `fds` is ready, or until `until` (for ever if `None`). Signals do not wake it. Returns
/// how many are ready: zero when the moment has come.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], until: Option<Instant>) -> Result<usize, Errno> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // More seconds than a timespec holds are as good as for ever.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Wakes another thread out of [`poll_until`].
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Whether the sleeper wakes: not if the program has closed the descriptor, as it must not.
    pub(crate) fn wake(&self) -> bool {
        let written = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        // The counter is at its end: the sleeper is awake already.
        written.is_ok() || written == Err(Errno::AGAIN)
    }

    /// Forgets the wakes so far; to be called before looking at what they were about.
    pub(crate) fn clear(&self) {
        // Fails only when nobody woke us.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_wake_that_reaches_nobody_is_told() {
        let waker = Waker::new().expect("a descriptor");
        assert!(waker.wake() && waker.wake(), "once or twice is the same");
        // As of one that somebody has closed.
        let unwritable = File::open("/dev/null").expect("every machine has it");
        assert!(!Waker(unwritable.into()).wake());
    }

    #[test]
    fn a_counter_at_its_end_is_a_wake() {
        let waker = Waker::new().expect("a descriptor");
        rustix::io::write(&waker.0, &(u64::MAX - 1).to_ne_bytes()).expect("room for one number");
        assert!(waker.wake());
    }
}

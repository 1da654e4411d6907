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

    pub(crate) fn wake(&self) {
        // Fails only when the counter is at its end, and then the sleeper is awake already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
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

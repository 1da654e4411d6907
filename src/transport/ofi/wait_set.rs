//! One descriptor to sleep on for several.

use std::os::fd::{BorrowedFd, OwnedFd};

use fabric::Error;
use rustix::event::epoll;

/// A descriptor that becomes readable when this one is, or one that is [added](add) to it.
pub(super) fn watch(fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let failed = |errno: rustix::io::Errno| {
        tracing::warn!(%errno, "no descriptor to sleep on");
        Error::Absent { call: "epoll_create1" }
    };
    let wait = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    add(&wait, fd).map_err(failed)?;
    Ok(wait)
}

/// Takes one out again that was added, and is about to be closed: it may stay open, and ready for ever.
pub(super) fn remove(wait: &OwnedFd, fd: BorrowedFd<'_>) {
    if let Err(errno) = epoll::delete(wait, fd) {
        tracing::debug!(%errno, "a descriptor stays among those to sleep on");
    }
}

/// Adds one more.
pub(super) fn add(wait: &OwnedFd, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    epoll::add(wait, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
}

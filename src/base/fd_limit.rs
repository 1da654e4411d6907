//! Room for the file descriptors that a large job takes, and for those that every program has.

use std::os::fd::{AsRawFd, IntoRawFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The number of standard error, the last of the three.
const STDERR: i32 = 2;

/// Opens `/dev/null` where standard input, output or error is closed, for good. Otherwise a socket or memory
/// of ours would get that number, and what the program prints would go there.
pub(crate) fn fill_standard() {
    // The lowest number that is free.
    while let Ok(fd) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()) {
        if fd.as_raw_fd() > STDERR {
            return;
        }
        let _ = fd.into_raw_fd();
    }
}

/// The limit on file descriptors as it was, where it had to be raised.
pub(crate) struct Raised {
    before: Rlimit,
}

/// More file descriptors are needed than this process may have.
#[derive(Debug)]
pub(crate) struct TooFew {
    pub(crate) needed: u64,
    pub(crate) allowed: u64,
}

/// Makes room for so many `more` than are open, raising this process's soft limit as far as needed. It stays
/// raised: another job of this process may have come to need it.
pub(crate) fn make_room(more: u64) -> Result<Option<Raised>, TooFew> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count() as u64);
    let needed = open + more;
    let before = getrlimit(Resource::Nofile);
    // No limit at all is written as `None`.
    if before.current.is_none_or(|current| current >= needed) {
        return Ok(None);
    }
    if let Some(allowed) = before.maximum.filter(|maximum| *maximum < needed) {
        return Err(TooFew { needed, allowed });
    }
    let raised = Rlimit { current: Some(needed), maximum: before.maximum };
    let allowed = before.current.unwrap_or(u64::MAX);
    setrlimit(Resource::Nofile, raised).map_err(|_| TooFew { needed, allowed })?;
    Ok(Some(Raised { before }))
}

impl Raised {
    /// Gives a child the limit that the launcher was started with: programs that use select(2) rely on it.
    pub(crate) fn lower_for(&self, child: Pid) {
        // Where it cannot be set back, the child has more than it needs.
        let _ = prlimit(Some(child), Resource::Nofile, Rlimit { ..self.before });
    }
}

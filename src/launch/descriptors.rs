//! Room for the file descriptors of a large job.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The broker holds a connection, a process and two segments of each rank, the launcher a process and two pipes.
const PER_RANK: u64 = 7;
/// Guests, watchers, listener and the launcher's own.
const FIXED: u64 = 128;

/// The limit on file descriptors as it was, where it had to be raised.
pub(super) struct Raised {
    before: Rlimit,
}

/// More file descriptors are needed than this process may have.
#[derive(Debug)]
pub(super) struct TooFew {
    pub(super) needed: u64,
    pub(super) allowed: u64,
}

/// Makes room for a job of `ranks`, raising this process's soft limit as far as needed. It stays raised: another
/// job of this process may have come to need it.
pub(super) fn make_room(ranks: u32) -> Result<Option<Raised>, TooFew> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count() as u64);
    let needed = open + FIXED + PER_RANK * u64::from(ranks);
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
    pub(super) fn lower_for(&self, child: Pid) {
        // Where it cannot be set back, the child has more than it needs.
        let _ = prlimit(Some(child), Resource::Nofile, Rlimit { ..self.before });
    }
}

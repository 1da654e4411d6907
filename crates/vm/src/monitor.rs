//! Watching this process's memory for changes, so that what was registered of it is never used after them.
//!
//! [`Monitor::watch`] has the kernel tell when private anonymous mappings are unmapped, mapped over or moved,
//! and when their pages are removed (userfaultfd, for these events only: no page ever faults for it). The law
//! that a cache of registrations can then hold: **no operation that starts after a change has returned uses a
//! registration from before it.** A cache keeps a [`Follower`] and does three things:
//!
//! 1. Before it looks anything up, it [catches up](Follower::catch_up), and gives up what it is told.
//! 2. It has memory that it is to keep watched *before* it registers it. It does not keep memory that cannot
//!    be watched.
//! 3. A registration that was being made when step 1 told of its range counts as told.
//!
//! Why this is enough. A change of watched memory returns only when the monitor's thread has read of it, and
//! that thread makes a sequence word odd before it reads. So a thread that starts after the return sees an
//! odd word, and waits, or one that has moved on, and is told. A change that happened before the memory was
//! watched happened before it was registered. A removal of pages (`MADV_DONTNEED`) alone is announced before
//! it is done. So its range cannot be watched anew ([`NotWatchable::Removing`]) until each thread has been
//! seen in another call, where only its return can bring the thread that removes.
//!
//! **Not seen** is a removal by a process that shares this memory and is no thread (`CLONE_VM` alone).
//!
//! **Not told** are `MADV_GUARD_INSTALL`, `shmat` with `SHM_REMAP` and `mprotect` over watched memory.
//! Mappings of files and shared memory can be changed by others, by truncation among other things, and are
//! never watched.
//!
//! After a `fork` the child is watched by nobody and harms nobody; in it, everything is
//! [`NotWatchable::Forked`].

mod maps;
mod removals;
mod shared;
mod threads;
mod uffd;
mod watcher;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use rustix::io::Errno;

use maps::{Mapping, Maps};
use shared::Shared;
use watcher::Watcher;

use crate::change_log::Cursor;
use crate::threads::spawn_small;

pub use crate::change_log::Changed;
pub use shared::{MonitorCounters, NotAvailable};

/// The kernel's name of the watching thread: at most 15 bytes of a name.
pub const THREAD: &str = "standpipe-monit";

/// Bytes of the watching thread's stack.
const STACK_BYTES: usize = 128 << 10;

/// This process's monitor, while anybody has it: a mapping can be watched by one userfaultfd only.
static OF_PROCESS: Mutex<Weak<Monitor>> = Mutex::new(Weak::new());

/// Why memory cannot be watched, and hence nothing of it be kept registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWatchable {
    /// Part of it is not mapped.
    #[error("part of the memory is not mapped")]
    NotMapped,
    /// Part of it is a file's or shared: others may change it.
    #[error("part of the memory is a file's or shared")]
    Shared,
    /// Its pages are being removed, or that was announced and has not been seen to be over.
    #[error("pages of the memory may be about to be removed")]
    Removing,
    /// This process is a child of the one that watches.
    #[error("the memory is that of a forked process")]
    Forked,
    /// The kernel refuses: EBUSY where another userfaultfd of this process watches it, EINVAL where it is of
    /// a kind that cannot be watched.
    #[error("the kernel does not watch the memory: {0}")]
    Refused(Errno),
}

/// Watches memory of this process; see the [module](self). It has a thread of its own, which ends with it,
/// and nothing is watched any more then.
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Monitor {
    /// This process's monitor, started if there is none.
    ///
    /// # Errors
    /// [`NotAvailable`]; then no private memory may be kept registered.
    pub fn of_process() -> Result<Arc<Monitor>, NotAvailable> {
        let mut known = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(monitor) = known.upgrade().filter(|monitor| !monitor.is_forked()) {
            return Ok(monitor);
        }
        let monitor = Arc::new(Monitor::start()?);
        *known = Arc::downgrade(&monitor);
        Ok(monitor)
    }

    /// As another copy of the library in this process has one, which knows nothing of this one's: for tests.
    ///
    /// # Errors
    /// As for [`Monitor::of_process`].
    #[doc(hidden)]
    pub fn another() -> Result<Monitor, NotAvailable> {
        Monitor::start()
    }

    fn start() -> Result<Monitor, NotAvailable> {
        let shared = Arc::new(Shared::open()?);
        let watcher = Watcher::new(Arc::clone(&shared));
        let thread = spawn_small(THREAD, STACK_BYTES, move || watcher.run())?;
        Ok(Monitor { shared, thread: Some(thread), process: std::process::id() })
    }

    /// Has changes of `len` bytes from `addr` on told from now on, and of all else in the same mappings. A
    /// few microseconds; any thread.
    ///
    /// # Errors
    /// [`NotWatchable`]; then the memory is not to be kept registered.
    pub fn watch(&self, addr: u64, len: u64) -> Result<(), NotWatchable> {
        if self.is_forked() {
            return Err(NotWatchable::Forked);
        }
        let end = addr.checked_add(len).ok_or(NotWatchable::NotMapped)?;
        let mut at = addr;
        while at < end {
            let mapping = self.private_at(at)?;
            self.shared.uffd.register(mapping.start, mapping.end).map_err(NotWatchable::Refused)?;
            // The watched memory is what was looked at, or what has been mapped there since.
            at = self.private_at(at)?.end.min(mapping.end);
        }
        if self.shared.may_be_removing(addr, end) { Err(NotWatchable::Removing) } else { Ok(()) }
    }

    /// Somebody who is to be told of changes from now on.
    pub fn follow(self: &Arc<Self>) -> Follower {
        Follower { mark: self.shared.changes.cursor(), monitor: Arc::clone(self) }
    }

    /// The counts so far.
    pub fn counters(&self) -> MonitorCounters {
        self.shared.counters()
    }

    fn private_at(&self, addr: u64) -> Result<Mapping, NotWatchable> {
        let mapping = self.shared.maps.at_or_after(addr).filter(|mapping| mapping.start <= addr);
        match mapping.ok_or(NotWatchable::NotMapped)? {
            Mapping { shared: true, .. } | Mapping { file: true, .. } => Err(NotWatchable::Shared),
            mapping => Ok(mapping),
        }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// A child may still have the descriptor open, so that closing it here does not end the watching; and
    /// with nobody to read, whoever then unmaps waits for ever.
    fn watch_nothing(&self) {
        let private = Maps::all().into_iter().filter(|mapping| !mapping.shared && !mapping.file);
        for Mapping { start, end, .. } in private {
            // Refused for what another userfaultfd watches, which old kernels would take from it.
            if self.shared.uffd.register(start, end).is_ok() {
                // It was registered a moment ago; if it has gone since, it is not watched any more either.
                let _ = self.shared.uffd.unregister(start, end);
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // A child has neither the thread nor anything that is watched.
        if self.is_forked() {
            return;
        }
        self.watch_nothing();
        if rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes()).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// A cache that keeps registrations, and must hear of all changes before using one.
pub struct Follower {
    monitor: Arc<Monitor>,
    mark: Cursor,
}

impl Follower {
    /// Tells `changed` what has changed since the last call: at least all changes of watched memory that have
    /// returned. In nearly all cases nothing has, which is found out by one load. Otherwise it may wait,
    /// microseconds.
    #[inline]
    pub fn catch_up(&mut self, changed: impl FnMut(Changed)) {
        if !self.is_current() {
            self.hear(changed);
        }
    }

    #[cold]
    fn hear(&mut self, changed: impl FnMut(Changed)) {
        self.monitor.shared.changes.catch_up(&mut self.mark, changed);
    }

    /// Whether nothing has changed since the last call of [`Follower::catch_up`], which is what that finds
    /// out first.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.monitor.shared.changes.is_current(&self.mark)
    }

    /// The monitor that is followed.
    pub fn monitor(&self) -> &Arc<Monitor> {
        &self.monitor
    }
}

//! The state that the watching thread and those who ask have in common.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::maps::Maps;
use super::removals::InDoubt;
use super::threads::Threads;
use super::uffd::Uffd;
use crate::change_log::ChangeLog;

/// Changes that somebody may be late by before all seems to have changed.
const TOLD_SLOTS: usize = 4096;

/// Why memory of this process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum NotAvailable {
    /// The kernel is too old, or a filter of system calls or the administrator forbids it.
    #[error("userfaultfd is refused: {0}")]
    Userfaultfd(Errno),
    /// There is no `/proc`, no thread, no descriptor to be had.
    #[error("memory cannot be watched: {0}")]
    Os(#[from] std::io::Error),
}

/// Counts since the watching began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounters {
    /// Ranges that were unmapped or mapped over.
    pub unmapped: u64,
    /// Removals of pages that were announced.
    pub removed: u64,
    /// Ranges that were moved.
    pub moved: u64,
    /// Removals that were shown to be over.
    pub removals_over: u64,
    /// Ranges under removals that may not be over, now.
    pub in_doubt: u64,
    /// How often memory was not watched because it was under such a removal.
    pub removing: u64,
}

/// The same, counting.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) unmapped: AtomicU64,
    pub(super) removed: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) removing: AtomicU64,
}

/// One process's.
pub(super) struct Shared {
    pub(super) uffd: Uffd,
    pub(super) changes: ChangeLog,
    pub(super) in_doubt: InDoubt,
    pub(super) maps: Maps,
    pub(super) counts: Counts,
    /// Only for those who want memory watched: the watching thread takes no lock.
    threads: Mutex<Threads>,
    /// The watching thread.
    pub(super) thread: AtomicU32,
    /// Readable when the thread is to end.
    pub(super) stop: OwnedFd,
}

impl Shared {
    pub(super) fn open() -> Result<Shared, NotAvailable> {
        Ok(Shared {
            uffd: Uffd::open().map_err(NotAvailable::Userfaultfd)?,
            changes: ChangeLog::new(TOLD_SLOTS),
            in_doubt: InDoubt::new(),
            maps: Maps::open()?,
            counts: Counts::default(),
            threads: Mutex::new(Threads::open()?),
            thread: AtomicU32::new(0),
            stop: rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?,
        })
    }

    pub(super) fn counters(&self) -> MonitorCounters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MonitorCounters {
            unmapped: of(&self.counts.unmapped),
            removed: of(&self.counts.removed),
            moved: of(&self.counts.moved),
            removals_over: self.in_doubt.over(),
            in_doubt: self.in_doubt.count(),
            removing: of(&self.counts.removing),
        }
    }

    /// Whether a removal that may not be over touches the range. Not for the watching thread.
    pub(super) fn may_be_removing(&self, start: u64, end: u64) -> bool {
        if !self.is_in_doubt(start, end) {
            return false;
        }
        // Later announcements do not concern this look: their owners are told of them.
        let announced = self.counts.removed.load(Ordering::Acquire);
        if let Ok(mut threads) = self.threads.try_lock() {
            self.in_doubt.end(threads.over(announced, self.thread.load(Ordering::Relaxed)));
        }
        let removing = self.is_in_doubt(start, end);
        self.counts.removing.fetch_add(removing.into(), Ordering::Relaxed);
        removing
    }

    fn is_in_doubt(&self, start: u64, end: u64) -> bool {
        loop {
            let sequence = self.changes.settled();
            let in_doubt = self.in_doubt.touch(start, end);
            if self.changes.is_unchanged(sequence) {
                return in_doubt;
            }
        }
    }
}

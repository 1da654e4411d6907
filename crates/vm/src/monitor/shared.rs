//! What the watching thread and those who ask have in common.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::maps::Maps;
use super::present::PageMap;
use super::removals::InDoubt;
use super::uffd::Uffd;
use crate::told::Told;

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

/// What was seen since the watching began.
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
}

/// The same, counting.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) unmapped: AtomicU64,
    pub(super) removed: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) removals_over: AtomicU64,
}

/// One process's.
pub(super) struct Shared {
    pub(super) uffd: Uffd,
    pub(super) told: Told,
    pub(super) in_doubt: InDoubt,
    pub(super) pages: PageMap,
    pub(super) maps: Maps,
    pub(super) counts: Counts,
    /// Readable when the thread is to end.
    pub(super) stop: OwnedFd,
}

impl Shared {
    pub(super) fn open() -> Result<Shared, NotAvailable> {
        Ok(Shared {
            uffd: Uffd::open().map_err(NotAvailable::Userfaultfd)?,
            told: Told::new(TOLD_SLOTS),
            in_doubt: InDoubt::new(),
            pages: PageMap::open()?,
            maps: Maps::open()?,
            counts: Counts::default(),
            stop: rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?,
        })
    }

    pub(super) fn counters(&self) -> MonitorCounters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MonitorCounters {
            unmapped: of(&self.counts.unmapped),
            removed: of(&self.counts.removed),
            moved: of(&self.counts.moved),
            removals_over: of(&self.counts.removals_over),
            in_doubt: self.in_doubt.count(),
        }
    }
}

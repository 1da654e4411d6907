//! How a peer makes progress, by its setting.

use std::sync::atomic::{AtomicBool, Ordering};

/// How a peer makes progress.
pub(crate) struct Attendance {
    /// In calls of its own only.
    pub(super) is_off: bool,
    /// Whether the log has said so.
    is_told: AtomicBool,
}

impl Attendance {
    pub(super) fn of(is_off: bool) -> Attendance {
        Attendance { is_off, is_told: AtomicBool::new(false) }
    }

    /// Whether the log is to say now that it does so in calls of its own only: once.
    pub(super) fn is_to_be_told(&self) -> bool {
        self.is_off && !self.is_told.swap(true, Ordering::Relaxed)
    }
}

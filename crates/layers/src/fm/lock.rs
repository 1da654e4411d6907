//! Locks that nobody panics with.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A handler that panics may have ended a call in its middle, never a change of what a lock guards.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Locks that a panicking handler does not spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not a thread panicked meanwhile: what our locks guard is valid after every single step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

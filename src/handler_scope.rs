//! Whether this thread runs a handler, which must not wait.

use std::cell::Cell;

use crate::error::Error;

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// The time that a handler runs on this thread, be it ended by a panic.
pub(crate) struct HandlerScope(());

impl HandlerScope {
    #[inline(always)]
    pub(crate) fn enter() -> HandlerScope {
        IN_HANDLER.set(true);
        HandlerScope(())
    }
}

impl Drop for HandlerScope {
    fn drop(&mut self) {
        IN_HANDLER.set(false);
    }
}

/// Refuses a call that may wait while a handler runs on this thread.
#[inline]
pub(crate) fn may_wait(call: &'static str) -> Result<(), Error> {
    if IN_HANDLER.get() { Err(Error::InHandler { call }) } else { Ok(()) }
}

//! Whether this thread runs a handler, which must not wait.

use std::cell::Cell;

use crate::error::Error;

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// The time that a handler runs on this thread, be it ended by a panic. Holds whether another one runs around it, as
/// where a handler drives a second node.
pub(crate) struct HandlerScope(bool);

impl HandlerScope {
    #[inline(always)]
    pub(crate) fn enter() -> HandlerScope {
        HandlerScope(IN_HANDLER.replace(true))
    }
}

impl Drop for HandlerScope {
    fn drop(&mut self) {
        IN_HANDLER.set(self.0);
    }
}

/// Refuses a call that may wait while a handler runs on this thread.
#[inline]
pub(crate) fn may_wait(call: &'static str) -> Result<(), Error> {
    if IN_HANDLER.get() { Err(Error::InHandler { call }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_inner_handler_is_not_the_end_of_the_outer_one() {
        let outer = HandlerScope::enter();
        drop(HandlerScope::enter());
        assert!(may_wait("this").is_err());
        drop(outer);
        assert_eq!(may_wait("this"), Ok(()));
    }
}

//! Whether this thread runs a handler, which must not wait, or is that of a child made by `fork`, which must
//! not use its parent's node.

use std::cell::Cell;

use crate::base::error::Error;

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Unknown) };
}

/// What a thread is at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody has looked yet whether its process was forked, or it was.
    Unknown,
    Free,
    InHandler,
}

/// The time that a handler runs on this thread, be it ended by a panic. Holds what the thread was at, as
/// where a handler drives a second node.
pub(crate) struct HandlerScope(State);

impl HandlerScope {
    #[inline(always)]
    pub(crate) fn enter() -> HandlerScope {
        HandlerScope(STATE.replace(State::InHandler))
    }
}

impl Drop for HandlerScope {
    fn drop(&mut self) {
        // Else the handler has forked, and this is the child.
        if STATE.get() == State::InHandler {
            STATE.set(self.0);
        }
    }
}

/// Refuses a call that may wait while a handler runs on this thread, and to a child of the process whose node
/// it is: that of this [generation](vm::forks::generation).
#[inline]
pub(crate) fn may_wait(call: &'static str, generation: u32) -> Result<(), Error> {
    if STATE.get() == State::Free { Ok(()) } else { look(call, generation) }
}

#[cold]
fn look(call: &'static str, generation: u32) -> Result<(), Error> {
    if STATE.get() == State::InHandler {
        return Err(Error::InHandler { call });
    }
    vm::forks::call_in_children(|| STATE.set(State::Unknown));
    match vm::forks::generation() {
        0 => STATE.set(State::Free),
        own if own == generation => {}
        _ => return Err(Error::Forked { call }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_inner_handler_is_not_the_end_of_the_outer_one() {
        let outer = HandlerScope::enter();
        drop(HandlerScope::enter());
        assert!(may_wait("this", vm::forks::generation()).is_err());
        drop(outer);
        assert_eq!(may_wait("this", vm::forks::generation()), Ok(()));
    }
}

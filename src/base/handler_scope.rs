//! Whether a call may be made. A child made by `fork` may make none, as its node is its parent's. Nor may a
//! call be made of a node that has closed, nor, if it may wait, in a handler.

use std::cell::Cell;

use crate::base::error::Error;

thread_local! {
    /// The [generation](vm::forks::generation) that runs a handler on this thread; 0 where none runs. A child
    /// that a handler forks is of another one.
    static IN_HANDLER_OF: Cell<u32> = const { Cell::new(0) };
}

/// The time that a handler runs on this thread, be it ended by a panic. Holds what the thread was at, as
/// where a handler drives a second node.
pub(crate) struct HandlerScope(u32);

impl HandlerScope {
    #[inline(always)]
    pub(crate) fn enter() -> HandlerScope {
        HandlerScope(IN_HANDLER_OF.replace(vm::forks::known_generation()))
    }
}

impl Drop for HandlerScope {
    #[inline(always)]
    fn drop(&mut self) {
        IN_HANDLER_OF.set(self.0);
    }
}

/// Refuses a call that may wait while a handler runs on this thread, and to a child of the process whose node
/// it is: that of this [generation](vm::forks::generation).
#[inline]
pub(crate) fn may_wait(call: &'static str, generation: u32) -> Result<(), Error> {
    may_call(call, generation)?;
    if IN_HANDLER_OF.get() == generation { Err(Error::InHandler { call }) } else { Ok(()) }
}

/// In the place of the generation of a node that has closed.
pub(crate) const CLOSED: u32 = u32::MAX;

/// In the place of the generation of a client that nobody is.
pub(crate) const NOBODYS: u32 = u32::MAX - 1;

/// Refuses a call once the node has [closed](CLOSED), and to a child of the process whose node it is. To be
/// asked before any lock is taken: who held it when the child was made is not there to let go.
#[inline]
pub(crate) fn may_call(call: &'static str, generation: u32) -> Result<(), Error> {
    if vm::forks::known_generation() == generation { Ok(()) } else { Err(refusal(call, generation)) }
}

#[cold]
fn refusal(call: &'static str, generation: u32) -> Error {
    if generation >= NOBODYS { Error::Closed { call } } else { Error::Forked { call } }
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

//! The layer's demands on the program whose functions it calls.

use standpipe::Rank;

use super::message::{Arguments, Function};

/// The program, which can call its functions by their addresses.
pub trait Program: Send + Sync {
    /// Whether all processes have a function at this address, as far as anybody can tell.
    fn has_function(&self, function: Function) -> bool;

    /// Calls the function: as a handler, with the process that the message came from, or at the end of a get
    /// or of an asynchronous store, with the process that it was with.
    fn call(&self, function: Function, from: Rank, arguments: Arguments<'_>);
}

//! Standpipe: put to and get from any address of any peer, one-sided and zero-copy, without registering memory.

#[doc(hidden)]
pub mod bootstrap;

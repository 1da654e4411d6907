//! The floor that programs call: nodes and their configuration, memory, operations and collectives.

#[doc(hidden)]
pub mod baseline;
pub(crate) mod collective;
pub mod config;
pub(crate) mod connect;
pub(crate) mod directory;
pub(crate) mod exposure;
#[cfg(test)]
mod forked_tests;
pub(crate) mod heap;
pub(crate) mod node;
pub(crate) mod open;
pub(crate) mod ops;

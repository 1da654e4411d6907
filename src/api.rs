//! The floor that programs call: nodes and their configuration, memory, operations and collectives.

pub(crate) mod all_memory;
pub(crate) mod close;
pub(crate) mod collective;
pub mod config;
pub(crate) mod connect;
pub(crate) mod directory;
pub(crate) mod exposure;
pub(crate) mod grant;
pub(crate) mod heap;
pub(crate) mod near;
pub(crate) mod node;
pub(crate) mod open;
pub(crate) mod ops;
pub(crate) mod pin;
#[cfg(test)]
mod refused_tests;
pub(crate) mod share;
#[doc(hidden)]
pub mod underneath;

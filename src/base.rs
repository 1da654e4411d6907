//! The lowest floor, which all others use: errors, pointers, locks, and names of handlers.

pub(crate) mod control_group;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod global;
pub(crate) mod handler_names;
pub(crate) mod handler_scope;
pub mod limits;
pub(crate) mod readable;
pub(crate) mod sync;

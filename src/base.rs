//! The lowest floor, which all others use: errors, pointers, locks, and names of handlers.

pub(crate) mod code;
pub(crate) mod control_group;
pub(crate) mod debug_is_display;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod fd_limit;
pub(crate) mod grant_name;
pub(crate) mod handler_id;
pub(crate) mod handler_scope;
pub(crate) mod interrupt;
pub mod limits;
pub(crate) mod lock;
pub(crate) mod pointers;
pub(crate) mod until;

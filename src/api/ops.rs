//! Operations between two nodes.

pub(crate) mod active_message;
pub(crate) mod atomics;
pub(crate) mod buffer;
pub(crate) mod completions;
pub(crate) mod event;
pub(crate) mod group;
mod mapped;
pub(crate) mod message;
pub(crate) mod payload;
pub(crate) mod put_signal;
pub(crate) mod raw;
pub(crate) mod requests;
pub(crate) mod rma;
pub(crate) mod room;
pub(crate) mod strided;
pub(crate) mod vector_indexed;
pub(crate) mod wait_signal;

//! Operations between two nodes.

pub(crate) mod am;
pub(crate) mod atomics;
pub(crate) mod event;
pub(crate) mod group;
pub(crate) mod rma;
pub(crate) mod runs;
pub(crate) mod signal;
pub(crate) mod strided;

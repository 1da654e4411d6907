//! Collectives of a word of each member, polled for by whoever begins them.

mod run;
pub(in crate::node) mod state;

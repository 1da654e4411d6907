//! The node's end of registration: what it asks of peers, answers and takes back. The tables themselves,
//! which know no node, are in `engine::registration`.

mod actions;
mod early_revocations;
mod granted;
mod moves;
mod revocations;
pub(super) mod state;
mod trace_spans;

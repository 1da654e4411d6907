//! The calls of a node: a file for each part. Nothing within the node calls these; each by which
//! something may end comes to [`work`](super::work) last.

mod barrier;
mod grants;
mod hints;
mod messages;
mod operations;
pub(super) mod pins;
mod registration;
mod teams;
mod transfers;

//! Teams and their collectives: carries out the plans that `engine::collective` makes.

pub(super) mod buffers;
mod protocol;
mod rendezvous;
pub(super) mod runner;
pub(super) mod small;
pub(super) mod state;
pub(super) mod teams;

//! Teams and their collectives: carries out the plans that `engine::collective` makes.
//!
//! From below: a [`team`], a collective under way ([`run`]), what collectives want of the node (`wants`); all
//! teams and what their members are told (`roster`); the `steps` of a collective; [`Teams`](state::Teams),
//! and of its methods how collectives end (`ending`) and go on (`running`), those by rounds that are polled
//! for (`small`), what members say (`protocol`), and what callers do (`calls`).

pub(super) mod buffers;
pub(super) mod calls;
mod ending;
mod protocol;
pub(super) mod roster;
mod run;
mod running;
pub(super) mod small;
pub(super) mod state;
mod steps;
mod team;
#[cfg(test)]
mod tests;
pub(super) mod wants;

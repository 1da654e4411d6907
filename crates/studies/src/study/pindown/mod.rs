//! The bandwidth of PM's pin-down cache by its hit ratio (Tezuka and others, 1998), in virtual time and
//! between real processes.

pub(crate) mod args;
mod by_pm;
mod command;
mod measured;
mod paper;
mod pm_rank;
mod simulated;

pub(crate) use command::STUDY;

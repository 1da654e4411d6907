//! The bandwidth of PM's pin-down cache by its hit ratio (Tezuka and others, 1998), in virtual time and
//! between real processes.

pub(crate) mod args;
mod command;
mod measured;
mod simulated;

pub(crate) use command::STUDY;

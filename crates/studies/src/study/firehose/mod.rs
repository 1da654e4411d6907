//! The Firehose paper's figures and its table (Bell and Bonachea, 2003), in virtual time and between real
//! processes.

mod advantage;
mod applications;
pub(crate) mod args;
mod command;
mod display;
mod experiment;
mod measured;
mod outcome;
mod simulated;

pub(crate) use command::STUDY;

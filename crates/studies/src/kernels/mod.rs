//! The two application kernels that the Firehose paper (Bell and Bonachea, 2003) measured, on real data:
//! Cannon's matrix multiply and bitonic sort. Their ranks put runs of words into each other's ordinary memory
//! (`Vec`s, not the heap), one put at a time. What they did can be recorded to the last put and read back by
//! [`sim::recording`].

mod args;
mod bitonic;
mod cannon;
mod command;
mod job;
mod keys;
mod outcome;
mod plan;
mod product;
mod rank_lines;
mod recorder;
mod worker;

pub use args::KernelArgs;
pub use command::run;
pub(crate) use worker::Worker;

//! The two application kernels that the Firehose paper (Bell and Bonachea, 2003) measured, on real data: Cannon's
//! matrix multiply and bitonic sort. Their ranks put runs of words into each other's ordinary memory (`Vec`s, not the
//! heap), one put at a time. What they did can be recorded to the last put and read back by [`sim::recording`].

pub mod args;
pub mod bitonic;
pub mod cannon;
pub mod command;
pub mod job;
pub mod keys;
pub mod lines;
pub mod outcome;
pub mod plan;
pub mod product;
pub mod recorder;
pub mod worker;

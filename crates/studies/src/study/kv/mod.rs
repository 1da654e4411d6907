//! The key-value-cache study: workers that hold blocks of a language model's cache in ordinary memory replay a
//! trace of requests and pull each other's blocks.

pub mod args;
pub mod charts;
mod command;
pub mod directory;
#[cfg(test)]
mod directory_tests;
pub mod elastic;
pub mod generate;
pub mod guest;
pub mod job;
pub mod lines;
pub mod outcome;
pub mod phased;
pub mod phases;
pub mod plan;
pub mod progress;
pub mod report;
pub mod statistics;
pub mod store;
pub mod sweep;
pub mod trace;
pub mod worker;
pub mod worker_process;

pub(crate) use command::STUDY;

//! The key-value-cache study: workers that hold blocks of a language model's cache in ordinary memory replay
//! a trace of requests and pull each other's blocks.

mod alternatives;
pub(crate) mod args;
pub(crate) mod charts;
mod command;
pub(crate) mod elastic;
pub(crate) mod elastic_worker;
pub(crate) mod generate;
pub(crate) mod job;
pub(crate) mod outcome;
mod part;
pub(crate) mod phased;
pub(crate) mod phases;
pub(crate) mod pieces;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod statistics;
pub(crate) mod sweep;
pub(crate) mod trace;
mod verdict;
pub(crate) mod worker;
pub(crate) mod worker_lines;
pub(crate) mod worker_process;
pub(crate) mod worth;
pub(crate) mod yardsticks;

pub(crate) use command::STUDY;

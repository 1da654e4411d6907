//! What is studied with Standpipe: the papers' figures and programs, what a machine costs, and their reports.
//! The command `standpipe-study` starts these and shows what comes of them.

mod all_cores;
mod cost_file;
pub mod kernels;
mod pattern;
mod processor;
mod qemu;
pub mod sim_costs;
pub mod study;
#[cfg(test)]
mod survival;

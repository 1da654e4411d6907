//! The studies that run in the simulator: the papers' figures and tables, and what lies beyond them.

pub mod firehose;
pub mod pindown;
mod show;
mod work;

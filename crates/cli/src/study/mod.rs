//! The studies that run in the simulator: the papers' figures and tables, and what lies beyond them.

mod ahead;
mod applications;
pub mod firehose;
pub mod pindown;
pub mod policies;
mod recording;
pub mod scale;
mod show;
mod work;

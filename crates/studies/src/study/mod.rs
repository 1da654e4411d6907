//! The papers' figures and tables, and what lies beyond them: in the simulator, and between real processes.

pub mod firehose;
pub mod gups;
pub mod isx;
pub mod kv;
pub mod live;
pub mod pindown;
pub mod policies;
mod ranks;
mod recording;
pub mod scale;

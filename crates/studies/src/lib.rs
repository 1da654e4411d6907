//! What is measured with Standpipe: `perf`, `tune`, the papers' figures and programs, and their reports. The
//! command starts these and shows what comes of them.

pub mod attach;
pub mod kernels;
mod lines;
mod machine;
pub mod measure;
mod own;
mod pattern;
pub mod perf;
pub mod printed;
mod processor;
pub mod progress;
pub mod refused;
mod report;
mod scratch;
pub mod signals;
pub mod study;
pub mod table;
pub mod transport;
pub mod tune;
pub mod units;
mod vm;
mod work;
pub mod worker;

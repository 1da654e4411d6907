//! What is measured with Standpipe: `perf`, `tune`, the papers' figures and programs, and their reports. The command starts
//! these and shows what comes of them.

pub mod attach;
pub mod kernels;
pub mod lines;
pub mod machine;
pub mod measure;
mod own;
pub mod pattern;
pub mod perf;
pub mod printed;
pub mod processor;
pub mod progress;
pub mod refused;
pub mod report;
pub mod scratch;
pub mod signals;
pub mod study;
pub mod table;
pub mod transport;
pub mod tune;
pub mod units;
pub mod vm;
mod work;

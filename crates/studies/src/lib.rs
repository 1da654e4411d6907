//! What is measured with Standpipe: `perf`, `tune`, the papers' figures and programs, and their reports. The
//! command starts these and shows what comes of them.

mod all_cores;
pub mod attach;
mod job_config;
mod json_lines;
pub mod kernels;
mod machine;
pub mod measure;
mod pattern;
pub mod perf;
mod processor;
pub mod progress;
mod qemu;
mod report;
mod scratch;
pub mod signals;
pub mod stdout;
pub mod study;
pub mod table;
pub mod transport;
pub mod tune;
pub mod units;
pub mod usage_error;
pub mod worker;

//! What both commands, `standpipe` and `standpipe-study`, measure by and show: `perf` and `tune`; and the
//! tables, signals, progress and report pages of every command.

pub mod attach;
pub mod bare;
pub mod frame;
pub mod job_config;
pub mod json_lines;
pub mod machine;
pub mod pages;
pub mod perf;
pub mod progress;
pub mod report;
pub mod scratch;
pub mod signals;
pub mod stdout;
pub mod table;
pub mod transport;
pub mod tune;
pub mod units;
pub mod usage_error;
pub mod worker;

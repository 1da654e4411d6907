//! What the `standpipe` command is made of. The library of the same name is what programs build on; this crate
//! only reads arguments, starts processes, and shows what came of it.

mod calls;
pub mod doctor;
pub mod info;
pub mod kernels;
pub mod kv;
pub mod lines;
pub mod machine;
pub mod measure;
mod own;
pub mod perf;
pub mod printed;
pub mod progress;
pub mod refused;
pub mod rendezvous;
pub mod report;
pub mod scratch;
pub mod signals;
pub mod sim;
pub mod study;
pub mod table;
pub mod top;
pub mod transport;
pub mod units;
pub mod vm;

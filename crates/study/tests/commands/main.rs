//! The command `standpipe-study`, as its users run it.

mod gups;
mod isx;
mod kernel;
mod signals;
mod sim;
mod studies;
mod study_kv;
mod study_layers;
mod words;

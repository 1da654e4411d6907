//! A bench for tests: they say aloud that they skip, and get a terminal of any width.
//!
//! Development only.
#![forbid(unsafe_code)]

mod skips;
mod terminal;

pub use skips::{SKIPS, Skip, skip};
pub use terminal::{LIMIT, Opened, Terminal};

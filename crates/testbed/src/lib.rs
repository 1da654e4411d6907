//! What tests need and an ordinary test has not: to say aloud that they skip, and a terminal of any width.
//!
//! Development only.
#![forbid(unsafe_code)]

mod skips;
mod terminal;

pub use skips::{SKIPS, Skip, skip};
pub use terminal::{LIMIT, Opened, Terminal};

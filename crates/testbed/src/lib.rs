//! A bench for tests: they say aloud that they skip, and get a terminal of any width.
//!
//! Development only.
#![forbid(unsafe_code)]

mod commands;
mod mapped;
mod skips;
mod terminal;
mod under_way;

pub use commands::{PATIENCE, assert_refused, finish};
pub use mapped::{Mapped, mapped};
pub use skips::{LONG, SKIPS, Skip, has_time_for, skip};
pub use terminal::{LIMIT, Opened, Terminal};
pub use under_way::ends_in_order;

/// The variable of the environment that names libfabric's providers to test, with commas between them, on
/// whatever device: `cargo xtask verbs` sets it where there are devices. They have to be there.
pub const PROVIDERS: &str = "STANDPIPE_TEST_PROVIDERS";

//! The machine with nothing of the library in between: the limits that benchmarks measure against.
//!
//! Every function does its operation a number of times and returns how long that took. So what surrounds it
//! is measured like what surrounds the library's.

mod attach;
mod locked_pages;
mod memory;
mod slots;
mod turns;
mod wire;

pub use attach::{attach_get, attach_put};
pub use locked_pages::LockablePages;
pub use memory::{Mapped, mapped};
pub use slots::{LINES_WORDS, Lines, Slots, spin};
pub use standpipe::underneath::LANE_MESSAGES;
pub use turns::{Word, Work, bounce, bounce_after, crossing, futex_barrier, futex_ping_pong, signals};
pub use vm::Blocks;
pub use wire::{Due, Frames, Wire};

//! The simulator: its time, its cards, its faults.

mod drive;
mod faults;
mod gathering;
mod grants;
mod hints;
mod keyed;
mod law;
mod storm;
mod timing;

//! The simulator: its time, its cards, its faults.

mod drive;
mod keyed;
mod timing;

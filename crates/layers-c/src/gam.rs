//! Generic Active Messages: `am.h` (ICSI's spelling) and `gam.h` (Berkeley's).

pub mod berkeley;
pub mod dummies;
mod forms;
pub mod icsi;
mod layer;
mod layout;
mod processes;
mod program;

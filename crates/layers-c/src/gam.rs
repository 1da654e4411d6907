//! Generic Active Messages: `am.h` (ICSI's spelling) and `gam.h` (Berkeley's).

pub mod berkeley;
pub mod counters;
mod forms;
pub mod icsi;
mod layer;
mod layout;
pub mod own;
mod processes;
mod program;
mod system_buffer;
pub mod variables;

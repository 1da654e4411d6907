//! The C interface: `include/standpipe.h`, and the symbols that it declares.
//!
//! The header says what each function does, and is the only place that does. Here is no logic of its own:
//! each function checks its arguments, turns pointers into what the Rust library takes, and turns what comes
//! back into statuses. All that is unsafe about it is that a C program's pointers are believed, as the header
//! asks.
//!
//! No panic crosses into C: `border::call` makes a status of it, keeps `errno`, and notes the error.

#[macro_use]
mod exported;

pub mod border;
mod call;
pub mod config;
pub mod copies;
pub mod event;
mod failure;
pub mod figures;
pub mod grant;
pub mod handle;
pub mod heap;
pub mod meeting;
pub mod messages;
pub mod node;
pub mod pointer;
pub mod queue;
pub mod shapes;
pub mod signals;
pub mod team;
pub mod words;

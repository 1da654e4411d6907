//! The C interfaces of the historic layers: `libstandpipe_layers.so`, with a header a layer in `include/`.
//!
//! No logic of its own: each exported function checks that its layer is open, turns pointers into what
//! [`layers`] takes, and turns what comes back into what the layer's manual says. This is where the one
//! unsafe promise is made: a program that calls these functions vouches for the addresses that it passes, as
//! it did in the 1990s.
//!
//! Nothing but the layers' own symbols is exported. No function lets a panic out into C: it would end the
//! process with a message, as Rust does at an `extern "C"` border.

pub mod bip;
mod border;
mod fm;
pub mod gam;
pub mod pm;
pub mod via;

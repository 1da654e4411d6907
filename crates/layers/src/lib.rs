//! Historic communication layers, each faithful to its interface and its semantics, on one engine.
//!
//! They are the layers of *User-Space Communication: A Quantitative Study* (SC'98) that carry messages, PM
//! with its pin-down cache, and VIA. Every layer is safe Rust on the public interface of [`standpipe`] alone.
//! C programs of the 1990s reach them by `libstandpipe_layers.so` and its headers (`crates/layers-c`).
//!
//! A layer takes a [`standpipe::Node`], and an [`AllMemory`](standpipe::AllMemory) where its interface names
//! memory by address. It runs handlers, and moves anything, in its own calls only: give it a node whose
//! progress is [`Off`](standpipe::ProgressThread::Off). VIA alone has threads of its own, which make progress
//! while the program makes none.
//!
//! Facts about the interfaces come from manuals and headers; each item says which are known from memory only
//! (*recalled*).
#![forbid(unsafe_code)]

pub mod bip;
mod copies;
pub mod features;
pub mod fm;
pub mod gam;
mod list;
pub mod pm;
pub mod via;

pub use copies::Copies;
pub use layer_list::{ALL, Id, Layer};
pub use list::features_of;

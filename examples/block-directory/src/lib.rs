//! A cache of blocks that a whole job shares: every process keeps blocks in its own ordinary memory, finds
//! those of the others in a directory, and pulls their bytes. Nobody is asked for anything; all of it is
//! one-sided.
//!
//! The engines that serve language models hold key-value caches so: a block has one allocation a layer, and
//! any process may want it. `standpipe-study kv` measures this crate; `src/main.rs` is the smallest program
//! with it:
//!
//! ```text
//! cargo build --release -p block-directory
//! cargo run --release -- run -n 4 -- target/release/block-directory
//! ```
//!
//! # The parts
//! - [`Store`]: one process's blocks under a cap of memory. It gives up the least recently used, unless a
//!   peer reads it.
//! - [`Directory`]: who holds which block. It is made of [`Words`] that all reach, and its documentation has
//!   the protocol.
//! - [`NodeWords`]: such words in the heaps of Standpipe's nodes. Tests have others.
//!
//! # A block's life
//! 1. Its owner [inserts](Store::insert) it into its store, which gives it a slot, and
//!    [publishes](Directory::publish) the slot with the [`addresses`] of its pieces.
//! 2. A reader [looks it up](Directory::look_up), [pins](Directory::pin) it, which gives it the addresses,
//!    gets the bytes from there, and [unpins](Directory::unpin) it.
//! 3. The owner's store wants its memory back and [recycles](Directory::recycle) it. No reader can pin it
//!    from then on, and those that looked it up before learn that it is gone.
//!
//! A reader that dies leaves its pins, which the owner [releases](Directory::release) once it knows of the
//! death.
#![forbid(unsafe_code)]

mod directory;
mod node_words;
mod store;

pub use directory::{Directory, Layout, Location, Place, Status, WORKERS_MAX, Words};
pub use node_words::{NodeWords, read, write};
pub use store::{Pieces, Pins, Slot, Store, addresses};

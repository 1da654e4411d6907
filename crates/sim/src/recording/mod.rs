//! A recorded run of a kernel in one file: what each rank asked of the others, in which order, and how long
//! it computed in between, so that a simulator can replay it.
//!
//! **Layout.** All integers outside postcard are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 2 | [`VERSION`] |
//! | 4 | length of the header |
//! | … | the [`Header`], in [postcard](https://postcard.jamesmunns.com)'s encoding |
//! | … | a section for each rank, in order; the header says how long each is and how many steps it has |
//!
//! A section is its rank's [`Step`]s, each in postcard's encoding, with one difference: the addresses of a
//! transfer are given as signed distances from the ends of the rank's transfer before (0 for the first), so
//! that what goes on where the last put ended takes one byte for each address. A step is 2 to
//! [`STEP_BYTES_MAX`] bytes long, 8 or so in the traces of the kernels.
//!
//! **What a replay needs to know.** A rank does its steps in order. It computes for `compute_ns`, then does
//! what the step says, and goes on when that is complete: a put when the bytes are at the target. A
//! [`Action::Barrier`] is passed when every rank has come to it. A [`Action::Signal`] never waits; a
//! [`Action::Wait`] uses up one signal of that peer, and waits for one if there is none. Whatever was put to
//! a peer before a signal to it is seen by that peer after the matching wait.
//!
//! **Reading** bounds everything by the file's own length and checks all that the header promises, so that
//! any file gives steps that make sense or an error that names the offset. There is no checksum: a changed
//! byte that still makes sense is not noticed.

mod error;
mod header;
mod reader;
mod step;
#[cfg(test)]
mod tests;
mod writer;

pub use error::TraceError;
pub use header::{Array, HEADER_BYTES_MAX, Header, MAGIC, RankHeader, VERSION};
pub use reader::{Steps, Totals, Trace};
pub use step::{Action, STEP_BYTES_MAX, Step, Transfer};
pub use writer::{Part, SectionWriter, assemble};

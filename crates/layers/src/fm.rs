//! Fast Messages 2.x: messages as streams of pieces, and handlers that receive them piece by piece.
//!
//! A sender [begins](Fm::begin) a message, sends it [in pieces](Fm::send_piece) and [ends](Fm::end) it. At
//! its receiver [`Fm::extract`] starts the message's handler when the first packet has come. The handler
//! [receives](Incoming::receive) as many bytes as it likes at a time; where they have not come it waits, on a
//! stack of its own, and others run. Nothing runs but in the program's own calls, and what a program does not
//! extract stays bounded: senders wait.

mod arrival;
mod arrivals;
mod assembly;
mod body;
mod credits;
mod endpoint;
mod extract;
mod features;
mod incoming;
mod lock;
mod notices;
mod outgoing;
mod port;
mod runner;
mod send;
mod shared;
mod stream;
mod table;
#[doc(hidden)]
pub mod wire;

pub use endpoint::{Counts, Fm, OpenError};
pub use extract::NESTING_MAX;
pub use features::FEATURES;
pub use incoming::{Dispatch, Done, Incoming};
pub use notices::Notice;
pub use send::{BeginError, SendError, Sending};
pub use table::{HANDLERS, HANDLERS_MAX, Table, TableError};

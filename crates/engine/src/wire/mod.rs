//! Messages have a header of seven 64-bit words, and a payload.
//!
//! [`Message`] says what there is to say, and becomes words and comes out of them in one place, by way of a
//! [`Header`], which says where in the words each field stands. A new message is a variant of [`Message`], a
//! [`Kind`], and the arm of `Node::on_service` that hands it to its handler.

/// The version of what engines say to each other: which messages there are, their numbers, what each of a
/// header's words means, and how networks frame them. Raise it by one with every change that a peer without
/// it would misread, a new message included. Near peers have it in the mark of their control segments; far
/// ones tell it when they meet, and their messages' tokens are made with it.
pub const MESSAGES_VERSION: u8 = 5;

mod am;
mod atomics;
mod chunk;
mod grants;
mod handlers;
mod header;
mod message;
mod moves;
mod status;
mod team;

pub use am::{Am, AmForm, STAMP_BITS};
pub(crate) use am::{AmHead, am_args, am_stamp};
pub use atomics::{AtomicAsk, AtomicDone};
pub use chunk::{BounceAct, BounceAsk, Bounced, Chunk, ChunkDone, Signal};
pub use grants::{GivenKey, GrantAsk, GrantIs, KeyAsk, KeyIs};
pub use handlers::{Found, HandlerAsk, HandlerIs};
pub use header::{HEAD_WORDS, Header, Kind, WireError};
pub use message::Message;
pub(crate) use moves::RELEASE_MAX;
pub use moves::{Because, Move, MoveId, Moved, Release};
pub use status::Status;
pub(crate) use status::{atomic_result, chunk_result};
pub use team::{BreakReason, Pace, Step, StepData, TeamBroken, TeamMessage};
pub(crate) use team::{WordHead, head};

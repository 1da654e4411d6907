//! What messages look like: a header of seven 64-bit words, and a payload.
//!
//! [`Message`] says what there is to say, and becomes words and comes out of them in one place, by way of a [`Header`],
//! which says where in the words each field stands. A new message is a variant of [`Message`], a [`Kind`], and the arm of
//! `Node::on_service` that hands it to its handler.

#[allow(dead_code, reason = "senders and handlers go over to it next")]
mod am;
#[allow(dead_code, reason = "senders and handlers go over to it next")]
mod chunk;
mod header;
mod message;
#[allow(dead_code, reason = "senders and handlers go over to it next")]
mod moves;
#[allow(dead_code, reason = "senders and handlers go over to it next")]
mod status;
#[allow(dead_code, reason = "senders and handlers go over to it next")]
mod team;

#[cfg(test)]
mod before_tests;

pub(crate) use am::AmHead;
pub use am::{Am, AmForm};
pub use chunk::{Chunk, ChunkDone, Signal, StageAct, StageAsk, Staged};
pub(crate) use header::{
    CHUNK_FAULT, CHUNK_NO_WORD, CHUNK_NOT_EXPOSED, CHUNK_OK, STAGE_NEVER, STAGE_NONE, chunk_result,
    chunk_status,
};
pub use header::{HEAD_WORDS, Header, Kind, WireError};
pub use message::Message;
pub use moves::{Because, Move, MoveId, Moved, Release};
pub use status::Status;
pub use team::{BreakReason, Pace, Step, StepData, TeamBroken, TeamMessage};

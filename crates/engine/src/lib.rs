//! Standpipe's sans-IO engine: spans, operations, wire formats and the transport trait.
//!
//! The engine decides; it never acts by itself. It has no clock, socket, pointer or thread: time comes in as
//! [`Nanos`], memory is named by [`Place`], and everything that touches the world goes through a
//! [`Transport`]. The same code therefore runs over shared memory, over a network and inside a simulator,
//! where a seed decides every delay and failure.
//!
//! Read in this order: [`span`] (how memory is named), [`transport`] (what a transport offers), [`node`]
//! (every operation's state), [`wire`] (what messages look like).
#![forbid(unsafe_code)]

mod atomic;
pub mod collective;
pub mod counters;
pub mod error;
mod exposure;
mod grant_counters;
mod grant_id;
mod grants;
mod handlers;
pub mod limits;
pub mod node;
mod op_id;
pub mod path;
pub mod registration;
pub mod span;
pub mod transport;
pub mod wire;

pub use atomic::{Atomic, AtomicOp, Change, WordType};
pub use counters::{Counters, Operation, Tally};
pub use error::OpError;
pub use exposure::Rights;
pub use grant_counters::{GrantPeerCounters, GrantsByPeer};
pub use grant_id::{GRANT_BYTES, GRANTS_MAX, GrantId};
pub use grants::{Granted, NotGranted};
pub use handlers::HandlerKey;
pub use node::{AmBody, AmSend, Delivery, Node, Outcome, PEERS_WITH_FAILURES_MAX};
pub use op_id::OpId;
pub use path::{Mechanism, PathReason};
pub use registration::{Key, RegId};
pub use span::{Direction, MemId, Piece, Place};
pub use transport::{
    Copied, Deregistering, Event, Inbox, KeyedPiece, Lane, Registering, SendError, Submit, Transport,
};
pub use wire::{HEAD_WORDS, Header, MESSAGES_VERSION};

/// A process's number within its job, from 0 to the job's size less one.
pub type Rank = u32;

/// Nanoseconds on any clock that does not go backwards; the engine only compares them.
pub type Nanos = u64;

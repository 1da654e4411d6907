//! Standpipe: put to and get from any address of any peer, one-sided and zero-copy, without registering
//! memory.
//!
//! A program started by `standpipe run -n 4 -- ./program` opens its [`Node`] and is one rank of a job:
//!
//! ```
//! use standpipe::{Config, Node};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::open(Config::from_env()?)?;
//! let counters = node.heap().alloc_zeroed::<u64>(16)?;
//! node.directory().publish(&format!("counters of {}", node.rank()), bytemuck::bytes_of(&counters.ptr(0).to_words()))?;
//! node.barrier()?;
//! let right = (node.rank() + 1) % node.size();
//! let words = node.directory().wait(&format!("counters of {right}"), std::time::Duration::from_secs(10))?;
//! let theirs = standpipe::GlobalPtr::<u64>::from_words(bytemuck::pod_read_unaligned(&words));
//! node.put(theirs.add(3), 42)?;
//! node.fetch_add(theirs, 1)?;
//! node.barrier()?;
//! assert_eq!((counters.read(0), counters.read(3)), (1, 42));
//! # Ok(())
//! # }
//! ```
//!
//! - [`Node::put`], [`Node::get`] and their kin move data, to heaps ([`GlobalPtr`]) and to any other memory
//!   ([`Remote::raw`]); [`Event`]s stand for operations under way, and a [`Completions`] says which of many
//!   have ended.
//! - [`Node::put_signal`] also tells the target, which [waits](Node::wait_signal) for it asleep.
//! - [`Node::request`] runs a handler at a peer, [`Node::try_request`] never waits; [`Call`] says what
//!   handlers may do.
//! - [`Node::fetch_add`], other atomics ([`Node::fetch`]), [`Node::barrier`] and [`Node::directory`]
//!   coordinate.
//! - [`Node::world`] is the team of all ranks: [`Team`]s have collectives, and split. Their
//!   [`Reduction`]s are of numbers, also of types that are known at run time only ([`ElementType`]).
//! - [`Node::stats`] tells what happened, and why it took the path that it took; [`watch`] tells it of a
//!   running job, from outside.

mod api;
mod base;
mod counters;
mod job;
pub mod launch;
mod observe;
mod runtime;
mod transport;

pub use api::all_memory::AllMemory;
pub use api::close::CloseError;
pub use api::collective::reduction::{Element, Located};
pub use api::collective::team::{Team, TeamEvent};
pub use api::config;
pub use api::config::{Config, ConfigError, Exposure, Listen, ProgressThread, Tracer, Transport};
pub use api::connect::ConnectError;
pub use api::directory::{Directory, DirectoryError, NAME_MAX, VALUE_MAX};
pub use api::exposure::Exposed;
pub use api::grant::{Audience, Grant, GrantError};
pub use api::heap::{Heap, HeapArray, HeapError};
pub use api::node::Node;
pub use api::open::OpenError;
pub use api::ops::active_message::{Call, Landed};
pub use api::ops::atomics::{AtomicWord, FetchRoom};
pub use api::ops::buffer::{Append, Buffer, Foreign, GetBuffer, Grow, Part, PutBuffer};
pub use api::ops::completions::{Completion, Completions, Next, Permit};
pub use api::ops::event::Event;
pub use api::ops::group::Group;
pub use api::ops::message::MEDIUM_MAX;
pub use api::ops::payload::{Payload, Prepared};
pub use api::ops::put_signal::Signal;
pub use api::ops::raw::RawPiece;
pub use api::ops::rma::{GetPiece, PutPiece, STAGED_MIN};
pub use api::ops::room::Room;
pub use api::ops::strided::Strided;
pub use api::ops::vector_indexed::{Indexed, RemoteRun};
pub use api::ops::wait_signal::{SignalWait, SignalWord};
pub use api::pin::{PinError, Pinned};
#[doc(hidden)]
pub use api::underneath;
pub use base::code::Code;
pub use base::error::{Error, Memory};
pub use base::grant_name::GrantName;
pub use base::handler_id::HandlerId;
pub use base::interrupt::{Interrupt, interrupt_waits};
#[doc(hidden)]
pub use base::limits;
pub use base::pointers::{GlobalPtr, Remote, Word};
pub use base::until::{UnmetSignal, Until};
pub use counters::latency::{Latencies, Latency, Timed};
pub use counters::stats::Stats;
pub use engine::collective::{ElementType, NumberType, Reduction};
pub use engine::path;
pub use engine::registration::Strategy;
pub use engine::{AtomicOp, GrantId, Mechanism, Operation, PathReason, Rank, Rights, Tally, WordType};
#[doc(hidden)]
pub use job::bootstrap;
pub use job::bootstrap::{Address, AddressError, Decline};
pub use job::rendezvous;
pub use observe::{host, metrics, watch};
pub use transport::ofi::provider as network;
#[cfg(feature = "allocator")]
pub use vm::GlobalHeap;

/// The snippets of the documents, so that `cargo test` runs them.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/EXAMPLES.md")]
    struct Examples;
    #[doc = include_str!("../docs/API.md")]
    struct Guide;
    #[doc = include_str!("../docs/OPENING.md")]
    struct Opening;
    #[doc = include_str!("../docs/ADDRESSES.md")]
    struct Addresses;
    #[doc = include_str!("../docs/RENDEZVOUS.md")]
    struct Meeting;
    #[doc = include_str!("../docs/GLOBALHEAP.md")]
    struct EverythingInTheHeap;
    #[doc = include_str!("../docs/EXPOSING.md")]
    struct Exposing;
    #[doc = include_str!("../docs/GRANTS.md")]
    struct Grants;
    #[doc = include_str!("../docs/GRANTED-WORDS.md")]
    struct GrantedWords;
    #[doc = include_str!("../docs/TEAMS.md")]
    struct Teams;
    #[doc = include_str!("../docs/DIRECTORY.md")]
    struct DirectoryPage;
    #[doc = include_str!("../docs/DEADLINES.md")]
    struct Deadlines;
    #[doc = include_str!("../docs/NETWORK.md")]
    struct Network;
    #[doc = include_str!("../docs/STATISTICS.md")]
    struct Statistics;
    #[doc = include_str!("../docs/ATOMICS.md")]
    struct Atomics;
    #[doc = include_str!("../docs/COMPLETION.md")]
    struct Completion;
    #[doc = include_str!("../docs/ASYNC.md")]
    struct Async;
    #[doc = include_str!("../docs/RECIPES.md")]
    struct Recipes;
    #[doc = include_str!("../docs/MEMORY.md")]
    struct MemoryPage;
    #[doc = include_str!("../docs/SHARING.md")]
    struct Sharing;
    #[doc = include_str!("../docs/MESSAGES.md")]
    struct Messages;
    #[doc = include_str!("../docs/FLOODS.md")]
    struct Floods;
    #[doc = include_str!("../docs/TRANSFER.md")]
    struct Transfer;
    #[doc = include_str!("../docs/PIECES.md")]
    struct Pieces;
    #[doc = include_str!("../docs/REDUCTIONS.md")]
    struct Reductions;
    #[doc = include_str!("../docs/PROCESS.md")]
    struct Process;
}

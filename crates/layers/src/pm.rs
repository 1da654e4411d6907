//! PM: messages in the library's own buffers, and remote writes between locked memory.
//!
//! The interface is that of PMv2, of which manual pages exist; PM 1.2, which the founding papers describe, is
//! known by its abstracts only. A message is written where it is sent from and read where it has come, and no
//! call waits: each does what can be done now, or says that it cannot. Memory that is locked stays so, beyond
//! its unlocking, until its room is needed: the *pin-down cache*.
//!
//! | PM | here |
//! |---|---|
//! | context, channel | a number in a message's first words; each has its own windows |
//! | send buffer | [`Node::prepare_medium`] |
//! | receive buffer | [`Call::take_payload`](standpipe::Call::take_payload) |
//! | ACK/NACK flow control | a window of messages for each pair and channel: the receiver gives places back |
//! | `pmMLock` | [`Node::pin`], or a table of addresses ([`LockBy`]) |
//! | `pmWrite`, `pmRead` | a put, a get |
//!
//! [`mpi`] is a small message-passing interface on it, with the protocol of MPICH-PM.

mod arrived;
mod error;
mod features;
mod locks;
pub mod mpi;
mod opening;
mod pin_down;
mod progress;
mod receiving;
mod sending;
mod transfers;
#[doc(hidden)]
pub mod wire;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use standpipe::{AllMemory, HandlerId, Node, Prepared, Rank};

use self::arrived::{Arrived, Received};
pub use self::error::PmError;
pub use self::features::FEATURES;
use self::locks::Locks;
pub use self::locks::{Handle, LOCKS_MAX, LockBy};
pub use self::opening::PmOpenError;
pub use self::pin_down::PinDownCounters;
pub use self::transfers::TRANSFERS_MAX;
use self::transfers::{Asked, Direction, Ended, Transfers};
pub use self::wire::{CHANNELS_MAX, MTU};
use crate::Copies;

/// Messages that have a send buffer, of all contexts together, at most.
pub const SEND_BUFFERS: usize = 256;

/// A context that is open here: its channel's number, below [`CHANNELS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(u16);

/// PM of this process. One thread at a time calls it.
pub struct Pm {
    node: Node,
    memory: AllMemory,
    handler: HandlerId,
    arrived: Arc<Mutex<Arrived>>,
    contexts: Vec<Option<State>>,
    launched: Launched,
    /// Whose credits could not be sent yet.
    due: Vec<(u16, Rank)>,
    locks: Locks,
    transfers: Transfers,
    ended: Vec<Ended>,
    idle: u32,
    /// A peer is lost.
    is_reset: bool,
    /// All others have left in order.
    are_alone: bool,
    /// Messages refused of which the program was told.
    refused_told: u64,
}

/// Messages of all contexts that have been launched.
#[derive(Default)]
struct Launched {
    /// Those that are not sent yet.
    pending: usize,
    /// Messages that waited and were never sent, as their receivers were gone.
    dropped: u64,
    /// Bytes of short ones that were copied.
    copied_bytes: u64,
}

/// What is the matter with one context.
struct State {
    is_composite: bool,
    /// The buffer that the program writes, with its receiver and length.
    sending: Option<Outgoing>,
    /// The buffers of short messages: of one that the program writes, and of one that it reads.
    short_out: Vec<u64>,
    short_in: Vec<u64>,
    pending: VecDeque<Outgoing>,
    received: Option<Received>,
    /// The first failures of sends, writes and reads that nobody has been told of.
    failed: [Option<PmError>; 3],
    /// Writes of [`mpi`]'s that have ended, by its numbers.
    written: Vec<(u64, Result<(), PmError>)>,
}

struct Outgoing {
    dest: Rank,
    len: usize,
    buffer: Buffer,
}

/// What a message is sent from.
enum Buffer {
    /// [`State::short_out`], until the message is launched.
    Short,
    /// The bytes of a short message that is launched.
    Words([u64; 2]),
    Long(Prepared),
}

/// What a test of completion asks after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Started {
    /// Messages.
    Sends = 0,
    /// Remote writes.
    Writes = 1,
    /// Remote reads.
    Reads = 2,
}

impl Pm {
    /// This process's number, and how many processes there are.
    pub fn rank_and_size(&self) -> (Rank, u32) {
        (self.node.rank(), self.node.size())
    }

    /// The node that it is on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// What the layer itself has copied: messages of up to 16 bytes, and of longer ones only, at their
    /// receiver, those beyond what can be kept where it came.
    pub fn copies(&self) -> Copies {
        Copies { sent: self.launched.copied_bytes, received: self.arrived().copied_bytes }
    }

    /// Messages of peers that were malformed, or beyond their windows.
    pub fn refused(&self) -> u64 {
        self.arrived().refused
    }
}

/// Locked memory.
impl Pm {
    /// Locks memory of this process, for transfers with `peer`, or with all: `pmMLock`. The handle names its
    /// first byte; a handle and an offset below the length name another.
    ///
    /// # Errors
    /// [`PmError::Invalid`] for a node that there is not, `None` where the context is not composite, no bytes
    /// or an address that cannot be; [`PmError::NoSpace`] where budget or table are used up;
    /// [`PmError::NotOffered`].
    pub fn lock(
        &mut self,
        context: Context,
        peer: Option<i64>,
        start: *mut u8,
        len: usize,
    ) -> Result<Handle, PmError> {
        let peer = self.partner(context, peer)?;
        self.locks.lock(&self.node, start, len, peer)
    }

    /// Takes back a lock of exactly that memory for exactly that peer: `pmMUnlock`. The memory stays pinned
    /// until its room is needed.
    ///
    /// # Errors
    /// [`PmError::Invalid`] as for [`Pm::lock`], [`PmError::NotLocked`], [`PmError::NotOffered`].
    pub fn unlock(
        &mut self,
        context: Context,
        peer: Option<i64>,
        start: *mut u8,
        len: usize,
    ) -> Result<(), PmError> {
        let peer = self.partner(context, peer)?;
        if len == 0 {
            return Err(PmError::Invalid);
        }
        let unlocked = self.locks.unlock(start, len, peer);
        match unlocked {
            Err(PmError::NotLocked) if !self.has_locks() => Err(PmError::NotOffered),
            unlocked => unlocked,
        }
    }

    fn partner(&mut self, context: Context, peer: Option<i64>) -> Result<Option<Rank>, PmError> {
        let is_composite = self.state(context)?.is_composite;
        match peer {
            Some(node) => self.rank_of(node).map(Some),
            None if is_composite => Ok(None),
            None => Err(PmError::Invalid),
        }
    }

    /// Whether memory can be locked, and so written and read from afar: PM's optional levels.
    pub fn has_locks(&self) -> bool {
        self.locks.is_offered(&self.node)
    }

    /// What the pin-down cache has done.
    pub fn pin_down(&self) -> PinDownCounters {
        self.locks.counters(&self.node)
    }

    /// Starts to write locked memory of this process to locked memory of a peer: `pmWrite`. Nothing of the
    /// peer's program takes part. [`Pm::is_done`] tells when it is there.
    ///
    /// # Errors
    /// [`PmError::Invalid`] for a node that there is not, no bytes, and bytes that are not locked;
    /// [`PmError::NoBuffers`] while [`TRANSFERS_MAX`] are under way; [`PmError::NotOffered`];
    /// [`PmError::Reset`] where the peer is lost. Of a peer over a network the first transfer with a region
    /// tells by [`Pm::is_done`] that the region is not locked.
    pub fn write(
        &mut self,
        context: Context,
        peer: i64,
        remote: Handle,
        local: Handle,
        len: usize,
    ) -> Result<(), PmError> {
        self.transfer(context, Direction::Write, peer, (remote, local), len, None).map(|_| ())
    }

    /// As [`Pm::write`], with a number by which [`Pm::written`] tells how it ended; [`Pm::is_done`] tells
    /// only that it has.
    fn write_as(
        &mut self,
        context: Context,
        number: u64,
        peer: Rank,
        (remote, local): (Handle, Handle),
        len: usize,
    ) -> Result<(), PmError> {
        let (direction, peer) = (Direction::Write, peer.into());
        if self.transfer(context, direction, peer, (remote, local), len, Some(number))? {
            self.state(context)?.written.push((number, Ok(())));
        }
        Ok(())
    }

    /// The writes with numbers that have ended since the last call, and how.
    fn written(&mut self, context: Context) -> Vec<(u64, Result<(), PmError>)> {
        self.state(context).map(|state| std::mem::take(&mut state.written)).unwrap_or_default()
    }

    /// As [`Pm::write`], from the peer's memory to this process's: `pmRead`.
    ///
    /// # Errors
    /// As for [`Pm::write`].
    pub fn read(
        &mut self,
        context: Context,
        peer: i64,
        remote: Handle,
        local: Handle,
        len: usize,
    ) -> Result<(), PmError> {
        self.transfer(context, Direction::Read, peer, (remote, local), len, None).map(|_| ())
    }

    /// Starts a transfer: whether it is done already.
    fn transfer(
        &mut self,
        context: Context,
        direction: Direction,
        peer: i64,
        (remote, local): (Handle, Handle),
        len: usize,
        number: Option<u64>,
    ) -> Result<bool, PmError> {
        self.state(context)?;
        let peer = self.rank_of(peer)?;
        if len == 0 || !self.locks.has(local, len as u64, peer) {
            return Err(if self.has_locks() { PmError::Invalid } else { PmError::NotOffered });
        }
        if self.is_gone(peer) {
            return Err(PmError::Reset);
        }
        if self.transfers.is_full() {
            self.progress();
            if self.transfers.is_full() {
                return Err(PmError::NoBuffers);
            }
        }
        let asked = Asked { channel: context.0, direction, peer, remote, local, len, number };
        let heard = self.arrived().unlocked(peer);
        self.transfers.start(&self.node, self.memory, &self.locks, asked, heard)
    }

    /// Whether all that was started on a context, of that kind, is done: messages are on their way, writes
    /// are in the peer's memory, reads in this process's. Makes progress if not \[recalled\].
    ///
    /// # Errors
    /// [`PmError::Busy`] where some is not done; then, once, the first failure since the last call.
    pub fn is_done(&mut self, context: Context, started: Started) -> Result<(), PmError> {
        if !self.has_ended(context, started)? {
            self.progress();
            if !self.has_ended(context, started)? {
                return Err(PmError::Busy);
            }
        }
        self.state(context)?.failed[started as usize].take().map_or(Ok(()), Err)
    }

    fn has_ended(&mut self, context: Context, started: Started) -> Result<bool, PmError> {
        let has_sent = self.state(context)?.pending.is_empty();
        Ok(match started {
            Started::Sends => has_sent,
            Started::Writes => !self.transfers.has(context.0, Direction::Write),
            Started::Reads => !self.transfers.has(context.0, Direction::Read),
        })
    }
}

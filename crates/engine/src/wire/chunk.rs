//! The messages of transfers by messages: chunks, and bounce buffers for what is longer.

use super::header::{Header, Kind};
use super::status::Status;
use crate::{Atomic, Direction, MemId, OpId, Place};

/// Number of no memory.
const NO_MEMORY: u64 = u64::MAX;

/// A chunk of a transfer: which one it is, and where it goes or comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The initiator's operation, which the answer echoes.
    pub op: OpId,
    /// The chunk's place in the transfer's window, which the answer echoes.
    pub slot: u64,
    /// Where it lies at the target. `None`: in no memory, which is answered by [`Status::Fault`].
    pub at: Option<Place>,
}

impl Chunk {
    #[inline(always)]
    pub(super) const fn header(&self, kind: Kind, len: u32) -> Header {
        let (mem, place) = place_to_wire(self.at);
        Header { len, token: self.op.token(), args: [mem, self.slot, 0, 0], place, ..Header::new(kind) }
    }

    #[inline(always)]
    pub(super) fn of(header: &Header) -> Chunk {
        let [mem, slot, ..] = header.args;
        let at = place_from_wire(mem, header.place);
        Chunk { op: OpId::from_token(header.token), slot, at }
    }
}

/// A place, or none, as a memory's number and an offset.
#[inline(always)]
const fn place_to_wire(place: Option<Place>) -> (u64, u64) {
    match place {
        Some(Place { mem, offset }) => (mem.to_wire(), offset),
        None => (NO_MEMORY, 0),
    }
}

#[inline(always)]
const fn place_from_wire(mem: u64, offset: u64) -> Option<Place> {
    match MemId::from_wire(mem) {
        Some(mem) => Some(Place::new(mem, offset)),
        None => None,
    }
}

/// How an aligned word of the target's heap changes after a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Where in the heap the word is.
    pub word: u64,
    /// The atomic on it: one that [signals](Atomic::signals), and no compare-and-swap. `None`: nothing that
    /// is known.
    pub atomic: Option<Atomic>,
}

impl Signal {
    #[inline(always)]
    pub(super) const fn header(&self, chunk: Header) -> Header {
        let [mem, slot, ..] = chunk.args;
        let (small, value) = match self.atomic {
            Some(atomic) => match atomic.to_signal() {
                Some(signal) => signal,
                None => (u16::MAX, 0),
            },
            None => (u16::MAX, 0),
        };
        Header { small, args: [mem, slot, self.word, value], ..chunk }
    }

    pub(super) fn of(header: &Header) -> Signal {
        let [_, _, word, value] = header.args;
        Signal { word, atomic: Atomic::from_signal(header.small, value) }
    }
}

/// The answer to a [`Chunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkDone {
    /// Whether the chunk is a put's or a get's.
    pub direction: Direction,
    /// The initiator's operation.
    pub op: OpId,
    /// The chunk's place in the transfer's window.
    pub slot: u64,
    /// How it went. `None`: in a way that no status says.
    pub status: Option<Status>,
    /// The old value of the word that was to change after the chunk, if there was one.
    pub old: u64,
}

impl ChunkDone {
    /// The answer to `chunk`.
    #[inline(always)]
    pub(crate) const fn to(chunk: &Chunk, direction: Direction, status: Status, old: u64) -> ChunkDone {
        ChunkDone { direction, op: chunk.op, slot: chunk.slot, status: Some(status), old }
    }

    #[inline(always)]
    pub(super) const fn header(&self, payload: usize) -> Header {
        let kind = match self.direction {
            Direction::Put => Kind::PutDone,
            Direction::Get => Kind::GetData,
        };
        let args = [self.slot, Status::to_wire(self.status), self.old, 0];
        Header { len: payload as u32, token: self.op.token(), args, ..Header::new(kind) }
    }

    #[inline(always)]
    pub(super) const fn of(header: &Header, direction: Direction) -> ChunkDone {
        let [slot, status, old, _] = header.args;
        let (op, status) = (OpId::from_token(header.token), Status::from_wire(status));
        ChunkDone { direction, op, slot, status, old }
    }
}

/// A peer's task with a bounce buffer: a part of its heap that transfers by messages go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BounceAct {
    /// Lend one.
    Take,
    /// Copy from its private memory into the buffer, or into one that it lends for that.
    Fill,
    /// Copy from the buffer to its private memory.
    Drain,
}

/// Asks a peer for something with a bounce buffer. Answered by [`Bounced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BounceAsk {
    /// The task.
    pub act: BounceAct,
    /// The initiator's operation, which the answer echoes.
    pub op: OpId,
    /// Where in the peer's heap the buffer begins, if there is one.
    pub buffer: Option<u64>,
    /// Where in the peer's memory the bytes are, or go: private memory, or a grant. `None`: in no memory,
    /// which is answered by [`Status::Fault`].
    pub at: Option<Place>,
    /// Bytes.
    pub len: u32,
}

impl BounceAsk {
    pub(super) const fn header(&self) -> Header {
        let kind = match self.act {
            BounceAct::Take => Kind::BounceTake,
            BounceAct::Fill => Kind::BounceFill,
            BounceAct::Drain => Kind::BounceDrain,
        };
        let (mem, place) = place_to_wire(self.at);
        let args = [buffer_to_wire(self.buffer), mem, 0, 0];
        Header { len: self.len, token: self.op.token(), args, place, ..Header::new(kind) }
    }

    pub(super) const fn of(header: &Header, act: BounceAct) -> BounceAsk {
        let (op, buffer) = (OpId::from_token(header.token), buffer_from_wire(header.args[0]));
        BounceAsk { act, op, buffer, at: place_from_wire(header.args[1], header.place), len: header.len }
    }
}

/// The answer to a [`BounceAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounced {
    /// The initiator's operation.
    pub op: OpId,
    /// How it went. `None`: in a way that no status says.
    pub status: Option<Status>,
    /// Where in the owner's heap the buffer begins, if the asker has one.
    pub buffer: Option<u64>,
}

impl Bounced {
    pub(super) const fn header(&self) -> Header {
        let args = [Status::to_wire(self.status), buffer_to_wire(self.buffer), 0, 0];
        Header { token: self.op.token(), args, ..Header::new(Kind::Bounced) }
    }

    pub(super) const fn of(header: &Header) -> Bounced {
        let [status, buffer, ..] = header.args;
        let op = OpId::from_token(header.token);
        Bounced { op, status: Status::from_wire(status), buffer: buffer_from_wire(buffer) }
    }
}

/// A bounce buffer as messages name it: 0 is none.
pub(super) const fn buffer_to_wire(buffer: Option<u64>) -> u64 {
    match buffer {
        Some(offset) => offset + 1,
        None => 0,
    }
}

pub(super) const fn buffer_from_wire(word: u64) -> Option<u64> {
    word.checked_sub(1)
}

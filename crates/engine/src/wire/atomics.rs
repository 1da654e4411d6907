//! The messages of atomics on words of what a peer has granted.

use super::header::{Header, Kind};
use super::status::Status;
use crate::{Atomic, MemId, OpId, Place};

/// Asks a peer to change a word of its memory, or to read it. Answered by [`AtomicDone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAsk {
    /// The initiator's operation, which the answer echoes.
    pub op: OpId,
    /// Where the word lies: in a grant. `None`: in none, which is answered by [`Status::Fault`].
    pub word: Option<Place>,
    /// The change. `None`: nothing that is known.
    pub atomic: Option<Atomic>,
}

impl AtomicAsk {
    pub(super) fn header(&self) -> Header {
        let (mem, place) = match self.word {
            Some(word) => (word.mem.to_wire(), word.offset),
            None => (u64::MAX, 0),
        };
        let [what, first, second] = self.atomic.map_or([u64::from(u32::MAX), 0, 0], Atomic::to_wire);
        let small = u16::from(self.atomic.is_some_and(|atomic| atomic.blind));
        let (token, args) = (self.op.token(), [mem, first, second, 0]);
        Header { small, len: what as u32, token, args, place, ..Header::new(Kind::AtomicAsk) }
    }

    pub(super) fn of(header: &Header) -> AtomicAsk {
        let [mem, first, second, _] = header.args;
        let in_grant = |mem: &MemId| matches!(mem, MemId::Grant(_));
        let word = MemId::from_wire(mem).filter(in_grant).map(|mem| Place::new(mem, header.place));
        let atomic = Atomic::from_wire([u64::from(header.len), first, second]);
        let atomic = atomic.map(|atomic| if header.small == 0 { atomic } else { atomic.without_old() });
        AtomicAsk { op: OpId::from_token(header.token), word, atomic }
    }
}

/// The answer to an [`AtomicAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicDone {
    /// The initiator's operation.
    pub op: OpId,
    /// How it went. `None`: in a way that no status says.
    pub status: Option<Status>,
    /// The word from before, if it was asked for.
    pub old: u64,
}

impl AtomicDone {
    pub(super) const fn header(&self) -> Header {
        let args = [Status::to_wire(self.status), self.old, 0, 0];
        Header { token: self.op.token(), args, ..Header::new(Kind::AtomicDone) }
    }

    pub(super) const fn of(header: &Header) -> AtomicDone {
        let [status, old, ..] = header.args;
        AtomicDone { op: OpId::from_token(header.token), status: Status::from_wire(status), old }
    }
}

//! A one-sided operation on its way.

use engine::{Atomic, Direction, KeyedPiece, Nanos, OpError, OpId, Place, Rank};

use crate::causality::{CausalHistory, Change};

/// Where an operation comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The initiator, and how many processes had its rank before it.
    pub(crate) rank: Rank,
    pub(crate) incarnation: u32,
    /// When it was started, in the order of events; its initiator's own clock may have been ahead.
    pub(crate) started: Nanos,
    /// Its number among all one-sided operations.
    pub(crate) serial: u64,
    /// The last change of its own memory that its initiator knew of then.
    pub(crate) heard_own: Change,
    /// The last change of the peer's memory that its initiator could know of then.
    pub(crate) heard: Change,
    /// The initiator has given the operation up, and waits only for it to be over: its memory is touched no
    /// more. The peer's still is.
    pub(crate) abandoned: bool,
}

/// A one-sided operation that its initiator was not told the end of yet.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The initiator's name for it; `None` once it was withdrawn, or the initiator was told its end.
    pub(crate) op: Option<OpId>,
    pub(crate) origin: Origin,
    /// The target, and how many processes had its rank before the one that it is meant for.
    pub(crate) peer: Rank,
    pub(crate) peer_incarnation: u32,
    /// When the last byte, or the request, left the initiator.
    pub(crate) left: Nanos,
    pub(crate) work: Work,
    /// What a copy is to copy. Empty, with the room that it had, when that has been done.
    pub(crate) pieces: Vec<KeyedPiece>,
    /// The bytes that a put still brings that its initiator has given up: they had left its memory by then.
    pub(crate) carried: Vec<u8>,
    /// Whether it goes to or from a bounce buffer, which stays its initiator's until it is over.
    pub(crate) bounced: bool,
    /// How much later than planned it arrives.
    pub(crate) late: Nanos,
    /// How it has ended, as far as it has.
    pub(crate) result: Result<u64, OpError>,
    /// With an atomic: what the initiator had heard, or then what the word tells.
    pub(crate) heard: CausalHistory,
}

/// What it has still to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Copy {
        direction: Direction,
        keyed: bool,
    },
    Atomic(Place, Atomic),
    /// To tell its initiator.
    Report,
}

impl Work {
    /// Whether it has still to change the target's memory.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Work::Copy { direction: Direction::Put, .. } | Work::Atomic(..))
    }
}

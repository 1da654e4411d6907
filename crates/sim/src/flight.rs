//! A one-sided operation on its way.

use engine::{Atomic, Direction, KeyedPiece, Nanos, OpError, OpId, Place, Rank};

/// A one-sided operation that its initiator was not told the end of yet.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The initiator's name for it; `None` once the initiator has given it up.
    pub(crate) op: Option<OpId>,
    pub(crate) from: Rank,
    pub(crate) peer: Rank,
    /// The time then, in the order of events; its initiator's own clock may have been ahead.
    pub(crate) started: Nanos,
    /// When the last byte, or the request, left the initiator.
    pub(crate) left: Nanos,
    pub(crate) work: Work,
}

/// What it has still to do.
#[derive(Debug)]
pub(crate) enum Work {
    Copy { direction: Direction, pieces: Vec<KeyedPiece>, keyed: bool },
    Atomic(Place, Atomic),
    Report(Result<u64, OpError>),
}

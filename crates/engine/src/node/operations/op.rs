//! One operation under way, whatever its kind.

use crate::node::transfer::bounce_pool::Bounce;
use crate::node::transfer::state::{AskedAtomic, KeyedTransfer, MessageTransfer, OnComplete, Part};
use crate::op_id::OpKey;
use crate::{Nanos, OpError, Rank};

/// The rank that keeps the barrier's counter.
pub const KEEPER: Rank = 0;

/// How an operation ended: an atomic's old word (0 for everything else), or why it failed.
pub type Outcome = Result<u64, OpError>;

/// One operation.
pub(in crate::node) struct Op {
    pub(in crate::node) kind: OpKind,
    pub(in crate::node) deadline: Option<Nanos>,
    pub(in crate::node) outcome: Option<Outcome>,
    pub(in crate::node) interest: Interest,
    /// The client that started it.
    pub(in crate::node) client: u8,
    /// The transfer that it is part of, which is told how it ended.
    pub(in crate::node) parent: Option<OpKey>,
}

/// The one that cares how an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Interest {
    /// Somebody asks now and then.
    Asks,
    /// Somebody is to be told, and asks then.
    Watches,
    /// Nobody will ask for the outcome: `quiet` reports it if it is a failure.
    Nobodys,
}

/// Peers with which failures are kept for a client that does not ask about them, at most: of an elastic
/// node's peers there is no end.
pub const PEERS_WITH_FAILURES_MAX: usize = 4096;

/// Failures of what is with no one peer, as collectives, are kept under this number, which no peer has.
pub const NO_PEER: Rank = Rank::MAX;

/// Of each client and peer, the first failure of an operation that nobody waits for, in the order of their
/// ends.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<(u8, Rank, OpError)>);

impl Failures {
    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is one of that client.
    pub(super) fn has(&self, client: u8) -> bool {
        self.0.iter().any(|(of, ..)| *of == client)
    }

    /// Takes note of a failure with a peer, unless there is one already, or no room.
    #[cold]
    pub(super) fn note(&mut self, client: u8, peer: Rank, error: OpError) {
        let mut with = self.0.iter().filter(|(of, ..)| *of == client).map(|(_, with, _)| *with);
        let mut count = 0;
        let is_noted = with.any(|with| {
            count += 1;
            with == peer || count == PEERS_WITH_FAILURES_MAX
        });
        if !is_noted {
            self.0.push((client, peer, error));
        }
    }

    /// A client's first failure since the last call, and with it all later ones.
    pub(super) fn take(&mut self, client: u8) -> Option<OpError> {
        let first = self.0.iter().find(|(of, ..)| *of == client)?.2;
        self.0.retain(|(of, ..)| *of != client);
        Some(first)
    }

    /// A client's first failure with a peer since the last call.
    pub(super) fn take_with(&mut self, client: u8, peer: Rank) -> Option<OpError> {
        let at = self.0.iter().position(|(of, with, _)| (*of, *with) == (client, peer))?;
        Some(self.0.remove(at).2)
    }
}

/// The work of an operation.
pub(in crate::node) enum OpKind {
    /// A one-sided operation that the transport will report, and what comes after it.
    OneSided { peer: Rank, on_complete: Option<Box<OnComplete>> },
    /// A transfer by messages.
    ByMessage(Box<MessageTransfer>),
    /// Moves pieces of one through the peer's heap.
    Bounce(Bounce),
    /// A transfer by keys.
    Keyed(Box<KeyedTransfer>),
    /// A part of one, that the transport will report.
    Part(Box<Part>),
    /// An atomic that a peer is asked for by a message.
    Atomic(Box<AskedAtomic>),
    /// Asking a peer for a handler.
    HandlerAsk { peer: Rank },
    /// Looking how many have arrived at the barrier, or counting this process in.
    BarrierCount,
    /// Waits for the barrier to open.
    BarrierWait,
    /// A collective of a team, whose state the teams have.
    Collective,
}

impl OpKind {
    /// The peer that the operation is with; the barrier is with the rank that keeps its counter. The teams
    /// know whom a collective waits for.
    pub(in crate::node) fn peer(&self) -> Rank {
        match self {
            OpKind::OneSided { peer, .. } => *peer,
            OpKind::ByMessage(transfer) => transfer.peer,
            OpKind::Bounce(bounce) => bounce.peer,
            OpKind::Keyed(keyed) => keyed.peer,
            OpKind::Part(part) => part.peer,
            OpKind::Atomic(asked) => asked.peer,
            OpKind::HandlerAsk { peer } => *peer,
            OpKind::BarrierCount | OpKind::BarrierWait | OpKind::Collective => KEEPER,
        }
    }

    /// The peer that a failure is kept under which nobody waits for: a collective is with no one peer.
    pub(in crate::node) fn kept_under(&self) -> Rank {
        if matches!(self, OpKind::Collective) { NO_PEER } else { self.peer() }
    }

    /// Whether the operation cannot complete without `peer`.
    pub(in crate::node) fn needs(&self, peer: Rank) -> bool {
        match self {
            // Whether it can still open is a matter of who has arrived: see `Barrier::recount`.
            OpKind::BarrierWait => false,
            // It ends with its team: see `Teams::break_teams_of`.
            OpKind::Collective => false,
            // It ends when the transport says so, whatever becomes of its transfer.
            OpKind::Part(_) => false,
            _ => self.peer() == peer,
        }
    }

    pub(in crate::node) fn is_transfer(&self) -> bool {
        matches!(self, OpKind::OneSided { .. } | OpKind::ByMessage(_) | OpKind::Keyed(_) | OpKind::Atomic(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_failures_with_so_many_peers_and_no_more() {
        let (mut failures, most) = (Failures::default(), PEERS_WITH_FAILURES_MAX as Rank);
        let lost = |peer| OpError::PeerLost { peer };
        (0..most + 2).for_each(|peer| failures.note(0, peer, lost(peer)));
        failures.note(1, most, lost(most));
        assert_eq!(failures.take_with(0, most - 1), Some(lost(most - 1)));
        assert_eq!((failures.take_with(0, most), failures.take(1)), (None, Some(lost(most))));
        failures.note(0, most, lost(most));
        assert_eq!(failures.take_with(0, most), Some(lost(most)), "there is room again");
        assert_eq!((failures.take(0), failures.is_empty()), (Some(lost(0)), true));
    }
}

//! One operation under way, whatever its kind.

use super::barrier::state::KEEPER;
use super::collective::state::CollectiveRun;
use super::transfer::bounce_pool::Bounce;
use super::transfer::state::{KeyedTransfer, MessageTransfer, OnComplete, Part};
use crate::op_id::{OpId, OpKey};
use crate::{Nanos, OpError, Rank};

/// How an operation ended: an atomic's old word (0 for everything else), or why it failed.
pub type Outcome = Result<u64, OpError>;

/// One operation.
pub(super) struct Op {
    pub(super) kind: OpKind,
    pub(super) deadline: Option<Nanos>,
    pub(super) outcome: Option<Outcome>,
    pub(super) interest: Interest,
    /// The client that started it.
    pub(super) client: u8,
    /// The transfer that it is part of, which is told how it ended.
    pub(super) parent: Option<OpKey>,
}

/// Who cares how an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
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

/// News of operations that have ended, where nobody asks about single ones.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The watched ones, in the order of their ends.
    pub(super) watched: Vec<OpId>,
    /// Of each client and peer, the first failure of an operation that nobody waits for, in the order of
    /// their ends.
    pub(super) failures: Vec<(u8, Rank, OpError)>,
}

impl Ended {
    /// Takes note of a failure with a peer that nobody waits for, unless there is one already, or no room.
    #[cold]
    pub(super) fn note(&mut self, client: u8, peer: Rank, error: OpError) {
        let mut with = self.failures.iter().filter(|(of, ..)| *of == client).map(|(_, with, _)| *with);
        let mut count = 0;
        let is_noted = with.any(|with| {
            count += 1;
            with == peer || count == PEERS_WITH_FAILURES_MAX
        });
        if !is_noted {
            self.failures.push((client, peer, error));
        }
    }

    /// A client's first failure since the last call, and with it all later ones.
    pub(super) fn take_failure(&mut self, client: u8) -> Option<OpError> {
        let first = self.failures.iter().find(|(of, ..)| *of == client)?.2;
        self.failures.retain(|(of, ..)| *of != client);
        Some(first)
    }

    /// A client's first failure with a peer since the last call.
    pub(super) fn take_failure_with(&mut self, client: u8, peer: Rank) -> Option<OpError> {
        let at = self.failures.iter().position(|(of, with, _)| (*of, *with) == (client, peer))?;
        Some(self.failures.remove(at).2)
    }
}

/// What an operation is doing.
pub(super) enum OpKind {
    /// A one-sided operation that the transport will report, and what comes after it.
    OneSided { peer: Rank, on_complete: Option<Box<OnComplete>> },
    /// A transfer by messages.
    ByMessage(Box<MessageTransfer>),
    /// What moves pieces of one through the peer's heap.
    Bounce(Bounce),
    /// A transfer by keys.
    Keyed(Box<KeyedTransfer>),
    /// A part of one, that the transport will report.
    Part(Box<Part>),
    /// Asking a peer for a handler.
    HandlerAsk { peer: Rank },
    /// Counting this process in at the barrier.
    BarrierArrival { epoch: u64 },
    /// Looking how many have arrived at the barrier.
    BarrierCount,
    /// Waits for the barrier to open.
    BarrierWait,
    /// A collective of a team; `None` while somebody is at it, and once it is over.
    Collective(Option<Box<CollectiveRun>>),
}

impl OpKind {
    /// The peer that the operation is with; the barrier is with the rank that keeps its counter.
    pub(super) fn peer(&self) -> Rank {
        match self {
            OpKind::OneSided { peer, .. } => *peer,
            OpKind::ByMessage(transfer) => transfer.peer,
            OpKind::Bounce(bounce) => bounce.peer,
            OpKind::Keyed(keyed) => keyed.peer,
            OpKind::Part(part) => part.peer,
            OpKind::HandlerAsk { peer } => *peer,
            OpKind::BarrierArrival { .. } | OpKind::BarrierCount | OpKind::BarrierWait => KEEPER,
            OpKind::Collective(run) => run.as_ref().map_or(KEEPER, |run| run.awaits()),
        }
    }

    /// The peer that a failure is kept under which nobody waits for: a collective is with no one peer.
    pub(super) fn kept_under(&self) -> Rank {
        if matches!(self, OpKind::Collective(_)) { NO_PEER } else { self.peer() }
    }

    /// Whether the operation cannot complete without `peer`.
    pub(super) fn needs(&self, peer: Rank) -> bool {
        match self {
            // Whether it can still open is a matter of who has arrived: see `Node::recount`.
            OpKind::BarrierWait => false,
            // It ends with its team: see `Node::break_teams_of`.
            OpKind::Collective(_) => false,
            // It ends when the transport says so, whatever becomes of its transfer.
            OpKind::Part(_) => false,
            _ => self.peer() == peer,
        }
    }

    pub(super) fn is_transfer(&self) -> bool {
        matches!(self, OpKind::OneSided { .. } | OpKind::ByMessage(_) | OpKind::Keyed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_failures_with_so_many_peers_and_no_more() {
        let (mut ended, most) = (Ended::default(), PEERS_WITH_FAILURES_MAX as Rank);
        let lost = |peer| OpError::PeerLost { peer };
        (0..most + 2).for_each(|peer| ended.note(0, peer, lost(peer)));
        ended.note(1, most, lost(most));
        assert_eq!(ended.take_failure_with(0, most - 1), Some(lost(most - 1)));
        assert_eq!((ended.take_failure_with(0, most), ended.take_failure(1)), (None, Some(lost(most))));
        ended.note(0, most, lost(most));
        assert_eq!(ended.take_failure_with(0, most), Some(lost(most)), "there is room again");
        assert_eq!((ended.take_failure(0), ended.failures.len()), (Some(lost(0)), 0));
    }
}

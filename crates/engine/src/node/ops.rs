//! The table of operations under way.

use super::Node;
use super::rma::Transfer;
use crate::op_id::{OpId, OpKey};
use crate::{Header, Lane, Nanos, OpError, Rank, Transport};

/// How an operation ended: an atomic's old word (0 for everything else), or why it failed.
pub type Outcome = Result<u64, OpError>;

/// One operation.
pub(super) struct Op {
    pub(super) kind: OpKind,
    pub(super) deadline: Option<Nanos>,
    pub(super) outcome: Option<Outcome>,
    /// Nobody will ask for the outcome: `quiet` reports it if it is a failure.
    pub(super) detached: bool,
}

/// What an operation is doing.
pub(super) enum OpKind {
    /// A one-sided operation that the transport will report, and the Active Message that announces it once it is
    /// complete.
    OneSided { peer: Rank, announce: Option<Box<(Lane, Header)>> },
    /// A transfer by messages.
    Transfer(Box<Transfer>),
    /// Counting this process in at the barrier.
    BarrierArrival { epoch: u64 },
    /// Looking how many have arrived at the barrier.
    BarrierCount,
    /// Waiting for the barrier to open.
    BarrierWait,
}

impl OpKind {
    /// The peer that the operation is with; the barrier is with the rank that keeps its counter.
    pub(super) fn peer(&self) -> Rank {
        match self {
            OpKind::OneSided { peer, .. } => *peer,
            OpKind::Transfer(transfer) => transfer.peer,
            OpKind::BarrierArrival { .. } | OpKind::BarrierCount | OpKind::BarrierWait => {
                super::barrier::KEEPER
            }
        }
    }

    /// Whether the operation cannot complete without `peer`.
    pub(super) fn needs(&self, peer: Rank) -> bool {
        match self {
            // Whether it can still open is a matter of who has arrived: see `Node::recount`.
            OpKind::BarrierWait => false,
            _ => self.peer() == peer,
        }
    }
}

impl<T: Transport> Node<T> {
    /// Takes an operation's outcome, once it has one; the id means nothing afterwards. An id that means nothing
    /// gives `None`.
    pub fn outcome(&mut self, id: OpId) -> Option<Outcome> {
        let outcome = self.ops.get(id.key())?.outcome?;
        self.ops.remove(id.key());
        Some(outcome)
    }

    /// Whether the operation's outcome is there to be taken.
    pub fn is_done(&self, id: OpId) -> bool {
        self.ops.get(id.key()).is_some_and(|op| op.outcome.is_some())
    }

    /// Whether the operation no longer needs its local buffers: it is done, or is a put whose bytes have all left.
    pub fn is_locally_done(&self, id: OpId) -> bool {
        self.ops.get(id.key()).is_none_or(|op| match &op.kind {
            _ if op.outcome.is_some() => true,
            OpKind::Transfer(transfer) => transfer.is_locally_done(),
            _ => false,
        })
    }

    /// Gives an operation to nobody: it goes on, and if it fails the next [`Node::take_detached_error`] says so.
    pub fn detach(&mut self, id: OpId) {
        let Some(op) = self.ops.get_mut(id.key()) else { return };
        op.detached = true;
        if let Some(outcome) = op.outcome {
            self.ops.remove(id.key());
            self.note_detached(outcome);
        }
    }

    /// Ends an operation now, as if its deadline had passed: its buffers are touched no more.
    pub fn cancel(&mut self, id: OpId) {
        let Some(op) = self.ops.get(id.key()).filter(|op| op.outcome.is_none()) else { return };
        let peer = op.kind.peer();
        self.give_up(id.key(), OpError::Timeout { peer });
    }

    /// Operations under way, the barrier not counted.
    pub fn in_flight(&self) -> usize {
        self.pending
    }

    /// The first failure among detached operations since the last call.
    pub fn take_detached_error(&mut self) -> Option<OpError> {
        self.detached_error.take()
    }

    pub(super) fn insert(&mut self, kind: OpKind, deadline: Option<Nanos>) -> OpKey {
        self.pending += usize::from(kind.is_transfer());
        self.ops.insert(Op { kind, deadline, outcome: None, detached: false })
    }

    /// Records an operation's outcome; later news of it is ignored.
    pub(super) fn finish(&mut self, key: OpKey, outcome: Outcome) {
        let Some(op) = self.ops.get_mut(key).filter(|op| op.outcome.is_none()) else { return };
        op.outcome = Some(outcome);
        self.pending -= usize::from(op.kind.is_transfer());
        if op.detached {
            self.ops.remove(key);
            self.note_detached(outcome);
        }
    }

    /// Ends an operation that the transport or the peer may still be at.
    pub(super) fn give_up(&mut self, key: OpKey, error: OpError) {
        match self.ops.get(key).map(|op| &op.kind) {
            Some(OpKind::OneSided { .. }) => self.transport.abandon(OpId::of(key)),
            // Nobody asks for its outcome, and it would lie in the table for ever.
            Some(OpKind::BarrierArrival { .. } | OpKind::BarrierCount) => drop(self.ops.remove(key)),
            Some(OpKind::Transfer(_) | OpKind::BarrierWait) | None => {}
        }
        self.finish(key, Err(error));
    }

    fn note_detached(&mut self, outcome: Outcome) {
        if let (Err(error), None) = (outcome, self.detached_error) {
            self.detached_error = Some(error);
        }
    }
}

impl OpKind {
    fn is_transfer(&self) -> bool {
        !matches!(self, OpKind::BarrierArrival { .. } | OpKind::BarrierCount | OpKind::BarrierWait)
    }
}

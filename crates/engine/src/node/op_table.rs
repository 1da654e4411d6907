//! The table of operations under way: how one enters, ends, and is asked about.

use super::Node;
use super::op::{Interest, Op, OpKind, Outcome};
use crate::op_id::{OpId, OpKey};
use crate::{Nanos, OpError, Rank, Transport};

/// Pieces in the lists of a transfer whose memory is kept for later ones, at most.
const SPARE_PIECES_MAX: usize = 1024;

impl<T: Transport> Node<T> {
    /// Takes an operation's outcome, once it has one; the id means nothing afterwards. An id that means
    /// nothing gives `None`.
    #[inline]
    pub fn outcome(&mut self, id: OpId) -> Option<Outcome> {
        match id.fast() {
            Some(fast) => self.fast.take(fast),
            None => self.other_outcome(id.key()),
        }
    }

    #[inline(never)]
    fn other_outcome(&mut self, key: OpKey) -> Option<Outcome> {
        let outcome = self.ops.get(key)?.outcome?;
        self.discard(key);
        Some(outcome)
    }

    /// Takes an operation that is over out of the table, and keeps its lists for others.
    fn discard(&mut self, key: OpKey) {
        // A list of thousands is one program's one transfer: it need not stay for good.
        match self.ops.remove(key).map(|op| op.kind) {
            Some(OpKind::Keyed(keyed))
                if keyed.todo.capacity().max(keyed.pins.capacity()) <= SPARE_PIECES_MAX =>
            {
                self.spare_keyed.push(keyed);
            }
            Some(OpKind::ByMessage(transfer)) if transfer.rest.capacity() <= SPARE_PIECES_MAX => {
                self.spare_transfers.push(transfer);
            }
            _ => {}
        }
    }

    /// Whether the operation's outcome is there to be taken.
    pub fn is_done(&self, id: OpId) -> bool {
        if let Some(fast) = id.fast() {
            return self.fast.is_done(fast);
        }
        self.ops.get(id.key()).is_some_and(|op| op.outcome.is_some())
    }

    /// Whether nothing more comes of the operation: its outcome is there, has been taken, or is nobody's.
    pub fn is_over(&self, id: OpId) -> bool {
        match id.fast() {
            Some(fast) => !self.fast.is_under_way(fast),
            None => self.ops.get(id.key()).is_none_or(|op| op.outcome.is_some()),
        }
    }

    /// Whether the operation no longer needs its local buffers: it is done, or is a put whose bytes have all
    /// left.
    pub fn is_locally_done(&self, id: OpId) -> bool {
        if let Some(fast) = id.fast() {
            return !self.fast.is_under_way(fast);
        }
        self.ops.get(id.key()).is_none_or(|op| match &op.kind {
            _ if op.outcome.is_some() => true,
            OpKind::ByMessage(transfer) => transfer.is_locally_done(),
            // It was given up, and nobody has it any more.
            OpKind::Part(_) => op.parent.is_none(),
            _ => false,
        })
    }

    /// Gives an operation to nobody: it goes on, and if it fails the next [`Node::take_detached_error`] says
    /// so.
    pub fn detach(&mut self, id: OpId) {
        if let Some(fast) = id.fast() {
            return self.detach_fast(fast);
        }
        let Some(op) = self.ops.get_mut(id.key()) else { return };
        op.interest = Interest::Nobodys;
        if let Some(outcome) = op.outcome {
            self.discard(id.key());
            self.note_detached(outcome);
        }
    }

    /// Has an operation told of when it ends, once, by [`Node::take_ended`]. `false` where it has ended
    /// already, or the id means nothing: then nothing is told.
    pub fn watch(&mut self, id: OpId) -> bool {
        if let Some(fast) = id.fast() {
            return self.fast.watch(fast);
        }
        let Some(op) = self.ops.get_mut(id.key()).filter(|op| op.outcome.is_none()) else { return false };
        op.interest = Interest::Watches;
        true
    }

    /// Whether operations that are [watched](Node::watch) have ended since [`Node::take_ended`].
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.watched.is_empty()
    }

    /// Adds the operations that were [watched](Node::watch) and have ended since the last call, in the order
    /// in which they ended. Their outcomes may have been taken meanwhile.
    pub fn take_ended(&mut self, ended: &mut Vec<OpId>) {
        ended.append(&mut self.ended.watched);
    }

    /// Ends an operation now, as if its deadline had passed: its buffers are touched no more.
    pub fn cancel(&mut self, id: OpId) {
        if let Some(fast) = id.fast() {
            return self.cancel_fast(fast);
        }
        let Some(op) = self.ops.get(id.key()).filter(|op| op.outcome.is_none()) else { return };
        if let OpKind::Part(_) = op.kind {
            // It was given up before.
            return;
        }
        let peer = op.kind.peer();
        self.give_up(id.key(), OpError::Timeout { peer });
    }

    /// Operations under way, barriers and collectives not counted.
    pub fn in_flight(&self) -> usize {
        self.pending
    }

    /// A peer that some operation under way is with; `None` where only barriers and collectives are, or
    /// nothing.
    pub fn awaited(&self) -> Option<Rank> {
        let mut ops = self.ops.values().filter(|op| op.outcome.is_none() && op.kind.is_transfer());
        let fast = || self.fast.under_way().next().map(|(_, peer, _)| peer);
        ops.next().map(|op| op.kind.peer()).or_else(fast)
    }

    /// The first failure among detached operations since the last call.
    pub fn take_detached_error(&mut self) -> Option<OpError> {
        self.ended.failure.take()
    }

    #[inline]
    pub(super) fn insert(&mut self, kind: OpKind, deadline: Option<Nanos>) -> OpKey {
        self.pending += usize::from(kind.is_transfer());
        self.none_due_before = self.none_due_before.min(deadline.unwrap_or(Nanos::MAX));
        self.ops.insert(Op { kind, deadline, outcome: None, interest: Interest::Asks, parent: None })
    }

    /// As [`Node::insert`], for what is only part of a transfer.
    pub(super) fn insert_child(&mut self, kind: OpKind, parent: OpKey) -> OpKey {
        let (deadline, interest) = (None, Interest::Asks);
        self.ops.insert(Op { kind, deadline, outcome: None, interest, parent: Some(parent) })
    }

    /// Records an operation's outcome; later news of it is ignored.
    #[inline]
    pub(super) fn finish(&mut self, key: OpKey, outcome: Outcome) {
        let Some(op) = self.ops.get_mut(key).filter(|op| op.outcome.is_none()) else { return };
        op.outcome = Some(outcome);
        let (parent, interest) = (op.parent, op.interest);
        self.pending -= usize::from(parent.is_none() && op.kind.is_transfer());
        if parent.is_some() || interest == Interest::Nobodys {
            self.pass_on(key, parent, outcome);
        } else if interest == Interest::Watches {
            self.ended.watched.push(OpId::of(key));
        }
    }

    /// Tells the transfer that an operation was part of how it ended, or notes it, where nobody else asks.
    #[inline(never)]
    fn pass_on(&mut self, key: OpKey, parent: Option<OpKey>, outcome: Outcome) {
        self.discard(key);
        match parent {
            Some(parent) if self.on_read(parent, key, outcome.map(drop)) => {}
            Some(parent) => self.on_child(parent, outcome),
            None => self.note_detached(outcome),
        }
    }

    /// Ends an operation that the transport or the peer may still be at.
    pub(super) fn give_up(&mut self, key: OpKey, error: OpError) {
        match self.ops.get(key).map(|op| &op.kind) {
            Some(OpKind::OneSided { .. }) => self.transport.abandon(OpId::of(key)),
            // Nobody asks for its outcome, and it would lie in the table for ever.
            Some(OpKind::BarrierArrival { .. } | OpKind::BarrierCount) => drop(self.ops.remove(key)),
            Some(OpKind::Keyed(_)) => self.abandon_keyed(key),
            Some(OpKind::Collective(_)) => return self.give_up_collective(key, error),
            Some(OpKind::ByMessage(_)) => self.orphan_bounces(key),
            Some(OpKind::Bounce(_)) => return self.drop_bounce(key, error),
            Some(OpKind::Part(_) | OpKind::BarrierWait) | None => {}
        }
        self.finish(key, Err(error));
    }

    pub(super) fn note_detached(&mut self, outcome: Outcome) {
        if let (Err(error), None) = (outcome, self.ended.failure) {
            self.ended.failure = Some(error);
        }
    }
}

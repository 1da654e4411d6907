//! The node's calls about operations, whichever table they are in. Their state is in
//! [`operations`](crate::node::operations).

use crate::node::Node;
use crate::node::operations::op::{OpKind, Outcome};
use crate::node::operations::settling::Started;
use crate::op_id::{OpId, OpKey};
use crate::{OpError, Rank, Transport};

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
        let (outcome, kind) = self.ops.take(key)?;
        self.keep_lists(key, kind);
        Some(outcome)
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
        self.ops.detach(id.key());
        self.work();
    }

    /// Has an operation told of when it ends, once, by [`Node::take_ended`]. `false` where it has ended
    /// already, or the id means nothing: then nothing is told.
    pub fn watch(&mut self, id: OpId) -> bool {
        if let Some(fast) = id.fast() {
            return self.fast.watch(fast);
        }
        self.ops.watch(id.key())
    }

    /// Whether operations that are [watched](Node::watch) have ended since [`Node::take_ended`].
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ops.has_watched()
    }

    /// Adds the operations that were [watched](Node::watch) and have ended since the last call, in the order
    /// in which they ended. Their outcomes may have been taken meanwhile.
    pub fn take_ended(&mut self, ended: &mut Vec<OpId>) {
        self.ops.take_watched(ended);
    }

    /// Ends an operation now, as if its deadline had passed: its buffers are touched no more. If it can
    /// still write at its peer, it [settles](Node::is_quiet).
    pub fn cancel(&mut self, id: OpId) {
        if let Some(fast) = id.fast() {
            return self.cancel_fast(fast);
        }
        let Some(op) = self.ops.get(id.key()).filter(|op| op.outcome.is_none()) else { return };
        if let OpKind::Part(_) = op.kind {
            // It was given up before.
            return;
        }
        let peer = self.awaited_by(id.key(), &op.kind);
        self.give_up(id.key(), OpError::Timeout { peer });
        self.work();
    }

    /// Ends a collective now, as the program's function that combines its values has panicked.
    pub fn end_panicked(&mut self, collective: OpId) {
        if self.ops.is_under_way(collective.key()) {
            self.give_up(collective.key(), OpError::Panicked);
            self.work();
        }
    }

    /// Says whose operations are started from now on, of those who share this node: their operations and
    /// failures are told apart. The first is 0.
    #[inline]
    pub fn act_for(&mut self, client: u8) {
        self.ops.act_for(client);
    }

    /// Operations under way of those whose [turn](Node::act_for) it is, barriers and collectives not counted.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.ops.in_flight()
    }

    /// Whether there is a failure that [`Node::take_detached_error`] would give.
    pub fn has_detached_error(&self) -> bool {
        self.ops.has_failure()
    }

    /// Operations under way, whosever they are, barriers and collectives not counted.
    pub fn in_flight_of_all(&self) -> usize {
        self.ops.in_flight_of_all()
    }

    /// The first failure since the last call among detached operations of those whose [turn](Node::act_for)
    /// it is, whichever the peer.
    #[inline]
    pub fn take_detached_error(&mut self) -> Option<OpError> {
        self.ops.take_failure()
    }

    /// The same among those with one peer. [`Node::take_detached_error`] still gives those with others.
    pub fn take_detached_error_with(&mut self, peer: Rank) -> Option<OpError> {
        self.ops.take_failure_with(peer)
    }

    /// Whether nothing is under way of those whose [turn](Node::act_for) it is, and nothing of theirs can
    /// still write anywhere; barriers and collectives are not counted.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.ops.is_quiet()
    }

    /// Operations that were given up and can still write at their peers, whosever they are.
    pub fn settling(&self) -> usize {
        self.ops.settling().len()
    }

    /// Whether such an operation is with this peer.
    pub fn settles_with(&self, peer: Rank) -> bool {
        self.ops.settling().any(|(.., with)| with == peer)
    }

    /// Notes all operations under way or settling now, of those whose [turn](Node::act_for) it is: with one
    /// peer, or with all. Looks through all that is under way.
    pub fn started(&self, with: Option<Rank>) -> Started {
        let client = self.ops.acting();
        let is_meant = |peer: Rank| with.is_none_or(|with| with == peer);
        if self.is_quiet() {
            return Started { ops: Vec::new() };
        }
        let mut ops: Vec<(OpId, Rank)> = Vec::new();
        for (key, op) in self.ops.iter() {
            let is_own = op.client == client && op.parent.is_none() && op.kind.is_transfer();
            if is_own && op.outcome.is_none() && is_meant(op.kind.peer()) {
                ops.push((OpId::of(key), op.kind.peer()));
            }
        }
        let fast = self.fast.under_way_of(client).filter(|(_, peer)| is_meant(*peer));
        ops.extend(fast.map(|(id, peer)| (OpId::of_fast(id), peer)));
        let settling = self.ops.settling();
        let its = settling.filter(|(_, of, peer)| *of == client && is_meant(*peer));
        ops.extend(its.map(|(op, _, peer)| (op, peer)));
        Started { ops }
    }

    /// Whether all of what was [started](Node::started) is over, and has settled. One that is given up
    /// meanwhile is awaited until it has settled.
    pub fn are_over(&self, started: &mut Started) -> bool {
        let is_over = |op: OpId| self.is_over(op) && !self.ops.settles(op);
        // Each look ends with the first that is not over: the others are looked at later.
        while started.ops.pop_if(|(op, _)| is_over(*op)).is_some() {}
        started.ops.is_empty()
    }
}

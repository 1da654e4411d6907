//! Operations: what is under way, whose it is, until when, and how it ends.
//!
//! A part that starts something [inserts](Operations::insert) an operation, or as part of another one a
//! [child](Operations::insert_child), and [finishes](Operations::finish) it once, with its outcome; later
//! news of it are ignored. The fate of the outcome depends on who cares:
//!
//! | who | how it is told |
//! |---|---|
//! | its caller, who asks now and then | [`take`](Operations::take); a watched one is named by [`take_watched`](Operations::take_watched) first |
//! | the operation that it is part of | [`next_end`](Operations::next_end) gives the end, for the loop to hand on |
//! | nobody, as it was [detached](Operations::detach) | likewise; of a failure the client's [`take_failure`](Operations::take_failure) tells |
//!
//! Each operation is a *client*'s, of those that share the node: the one that
//! [acts](Operations::act_for). Operations that were given up and can still write *settle*: see [`settling`].
//! Fast transfers have a table of their own; here they are counted ([`begin`](Operations::begin),
//! [`end`](Operations::end)).
//!
//! Time does nothing by itself: [`none_due_before`](Operations::none_due_before) says from when on it pays to
//! look for deadlines.

pub(super) mod op;
pub(super) mod settling;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use slotmap::SlotMap;

use self::op::{Failures, Interest, Op, OpKind, Outcome};
use self::settling::{Awaited, Clients};
use super::core::Core;
use crate::op_id::{OpId, OpKey};
use crate::{Nanos, OpError, Rank, Transport};

/// The operations of a node.
#[derive(Default)]
pub(in crate::node) struct Operations {
    table: SlotMap<OpKey, Op>,
    /// No operation's deadline is earlier: so a thread that goes to sleep need not look at all.
    none_due_before: Option<Nanos>,
    clients: Clients,
    /// The watched ones that have ended, in that order.
    watched: Vec<OpId>,
    failures: Failures,
    /// Of operations that nobody asks about.
    ends: VecDeque<End>,
}

/// The end of an operation that nobody asks about: it has left the table.
pub(in crate::node) struct End {
    pub(in crate::node) key: OpKey,
    /// The larger thing that it was part of.
    pub(in crate::node) parent: Option<OpKey>,
    pub(in crate::node) outcome: Outcome,
    /// Its work, whose memory may be used again.
    pub(in crate::node) kind: OpKind,
}

impl Index<OpKey> for Operations {
    type Output = Op;

    fn index(&self, key: OpKey) -> &Op {
        &self.table[key]
    }
}

impl IndexMut<OpKey> for Operations {
    fn index_mut(&mut self, key: OpKey) -> &mut Op {
        &mut self.table[key]
    }
}

/// One operation.
impl Operations {
    /// Enters an operation of the client that acts.
    #[inline]
    pub(in crate::node) fn insert(&mut self, kind: OpKind, deadline: Option<Nanos>) -> OpKey {
        let client = self.clients.acting;
        if kind.is_transfer() {
            self.clients.begin();
        }
        if let Some(deadline) = deadline {
            self.none_due_before = Some(self.none_due_before.map_or(deadline, |at| at.min(deadline)));
        }
        self.table.insert(Op {
            kind,
            deadline,
            outcome: None,
            interest: Interest::Asks,
            client,
            parent: None,
        })
    }

    /// As [`Operations::insert`], for what is only part of a transfer.
    pub(in crate::node) fn insert_child(&mut self, kind: OpKind, parent: OpKey) -> OpKey {
        let (deadline, interest, client) = (None, Interest::Asks, self.clients.acting);
        self.table.insert(Op { kind, deadline, outcome: None, interest, client, parent: Some(parent) })
    }

    pub(in crate::node) fn get(&self, key: OpKey) -> Option<&Op> {
        self.table.get(key)
    }

    pub(in crate::node) fn get_mut(&mut self, key: OpKey) -> Option<&mut Op> {
        self.table.get_mut(key)
    }

    /// One that has no outcome.
    pub(in crate::node) fn under_way(&mut self, key: OpKey) -> Option<&mut Op> {
        self.table.get_mut(key).filter(|op| op.outcome.is_none())
    }

    /// Whether it is there and has no outcome.
    pub(in crate::node) fn is_under_way(&self, key: OpKey) -> bool {
        self.table.get(key).is_some_and(|op| op.outcome.is_none())
    }

    pub(in crate::node) fn iter(&self) -> impl Iterator<Item = (OpKey, &Op)> {
        self.table.iter()
    }

    pub(in crate::node) fn iter_mut(&mut self) -> impl Iterator<Item = (OpKey, &mut Op)> {
        self.table.iter_mut()
    }

    /// Takes one out of the table, whether it has ended or not: nothing is told of it.
    pub(in crate::node) fn remove(&mut self, key: OpKey) -> Option<Op> {
        self.table.remove(key)
    }

    /// Records an outcome. It is the first that counts.
    #[inline]
    pub(in crate::node) fn finish(&mut self, key: OpKey, outcome: Outcome) {
        let Some(op) = self.table.get_mut(key).filter(|op| op.outcome.is_none()) else { return };
        op.outcome = Some(outcome);
        if op.parent.is_none() && op.kind.is_transfer() {
            self.clients.end(op.client);
        }
        if op.parent.is_some() || op.interest == Interest::Nobodys {
            self.leave(key, outcome);
        } else if op.interest == Interest::Watches {
            self.watched.push(OpId::of(key));
        }
    }

    /// Takes one out that nobody asks about.
    #[inline(never)]
    fn leave(&mut self, key: OpKey, outcome: Outcome) {
        let Some(Op { kind, parent, client, .. }) = self.table.remove(key) else { return };
        if parent.is_none() {
            self.note_failure(client, kind.kept_under(), outcome);
        }
        self.ends.push_back(End { key, parent, outcome, kind });
    }

    /// The next end of an operation that nobody asks about, in the order in which they ended.
    #[inline]
    pub(in crate::node) fn next_end(&mut self) -> Option<End> {
        self.ends.pop_front()
    }

    /// Whether all ends have been taken.
    pub(in crate::node) fn have_all_ends_gone(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes an outcome, and what the operation was doing. `None`: it has none yet, or the key means nothing.
    pub(in crate::node) fn take(&mut self, key: OpKey) -> Option<(Outcome, OpKind)> {
        let outcome = self.table.get(key)?.outcome?;
        self.table.remove(key).map(|op| (outcome, op.kind))
    }

    /// Gives one to nobody: it goes on, and a failure is kept for its client.
    pub(in crate::node) fn detach(&mut self, key: OpKey) {
        let Some(op) = self.table.get_mut(key) else { return };
        op.interest = Interest::Nobodys;
        if let Some(outcome) = op.outcome {
            self.leave(key, outcome);
        }
    }

    /// Has one named by [`Operations::take_watched`] when it ends. `false`: it has ended, or is not there.
    pub(in crate::node) fn watch(&mut self, key: OpKey) -> bool {
        let Some(op) = self.under_way(key) else { return false };
        op.interest = Interest::Watches;
        true
    }

    /// From when on any may be late. `None`: none has a deadline.
    pub(in crate::node) fn none_due_before(&mut self) -> Option<Nanos> {
        if self.table.is_empty() {
            self.none_due_before = None;
        }
        self.none_due_before
    }

    /// Says so anew, once all have been looked at.
    pub(in crate::node) fn are_not_due_before(&mut self, earliest: Option<Nanos>) {
        self.none_due_before = earliest;
    }
}

/// Whose they are, and what is told of those that nobody asks about.
impl Operations {
    /// The client that acts from now on.
    #[inline]
    pub(in crate::node) fn act_for(&mut self, client: u8) {
        self.clients.act_for(client);
    }

    /// The client that acts.
    #[inline(always)]
    pub(in crate::node) fn acting(&self) -> u8 {
        self.clients.acting
    }

    /// Counts a fast transfer of the client that acts.
    #[inline(always)]
    pub(in crate::node) fn begin(&mut self) {
        self.clients.begin();
    }

    /// A client's fast transfer has ended.
    #[inline(always)]
    pub(in crate::node) fn end(&mut self, client: u8) {
        self.clients.end(client);
    }

    /// Transfers and atomics under way of the client that acts.
    #[inline]
    pub(in crate::node) fn in_flight(&self) -> usize {
        self.clients.in_flight()
    }

    /// The same of all clients.
    pub(in crate::node) fn in_flight_of_all(&self) -> usize {
        self.clients.in_flight_of_all()
    }

    /// Whether nothing of the client that acts is under way or settles.
    #[inline]
    pub(in crate::node) fn is_quiet(&self) -> bool {
        self.clients.is_quiet()
    }

    /// A watched fast transfer has ended.
    pub(in crate::node) fn push_watched(&mut self, op: OpId) {
        self.watched.push(op);
    }

    /// Whether a watched operation has ended since [`Operations::take_watched`].
    #[inline]
    pub(in crate::node) fn has_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Adds those that have, in that order.
    pub(in crate::node) fn take_watched(&mut self, ended: &mut Vec<OpId>) {
        ended.append(&mut self.watched);
    }

    /// Keeps a failure that nobody asks about for its client.
    #[inline]
    pub(in crate::node) fn note_failure(&mut self, client: u8, peer: Rank, outcome: Outcome) {
        if let Err(error) = outcome {
            self.failures.note(client, peer, error);
        }
    }

    /// Whether there is one of the client that acts.
    pub(in crate::node) fn has_failure(&self) -> bool {
        self.failures.has(self.clients.acting)
    }

    /// The first of the client that acts, and with it all later ones.
    #[inline]
    pub(in crate::node) fn take_failure(&mut self) -> Option<OpError> {
        if self.failures.is_empty() { None } else { self.failures.take(self.clients.acting) }
    }

    /// The first of the client that acts with that peer.
    pub(in crate::node) fn take_failure_with(&mut self, peer: Rank) -> Option<OpError> {
        self.failures.take_with(self.clients.acting, peer)
    }
}

/// Settling.
impl Operations {
    /// Takes note of what can still write of an operation that is given up.
    #[cold]
    pub(in crate::node) fn begin_to_settle<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        (op, client): (OpId, u8),
        peer: Rank,
        awaited: &[Awaited],
    ) {
        // Of one that is lost nothing more is heard.
        if !awaited.is_empty() && !core.is_lost(peer) {
            core.counters.given_up += 1;
            self.clients.give_up(op, client, peer, awaited);
        }
    }

    /// Takes note that something can write no more, if it was awaited, of that peer where one is named.
    /// Returns whether it was.
    #[inline]
    pub(in crate::node) fn has_settled(&mut self, awaited: Awaited, from: Option<Rank>) -> bool {
        self.clients.awaits() && self.clients.take_awaited(awaited, from)
    }

    /// Awaits nothing more of a peer that is lost.
    pub(in crate::node) fn settle_with(&mut self, peer: Rank) {
        self.clients.forget_peer(peer);
    }

    /// The settling operations: each with its client and peer.
    pub(in crate::node) fn settling(&self) -> impl ExactSizeIterator<Item = (OpId, u8, Rank)> {
        self.clients.settling()
    }

    /// Whether that one settles.
    pub(in crate::node) fn settles(&self, op: OpId) -> bool {
        self.clients.settles(op)
    }
}

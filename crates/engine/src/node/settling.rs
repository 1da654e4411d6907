//! What is over at home and can still write at a peer.
//!
//! The law: *when nothing of mine is under way, nothing of mine can still write, here or there.* An operation
//! that was cancelled, or is late, gives its caller's buffer back at once. What it had given to a transport or
//! to a peer goes on, and *settles*: by the transport's report, by the peer's answer, or with the loss of the
//! peer. Until then the operation counts for [`Node::is_quiet`] and for [`Started`], and no more for
//! [`Node::in_flight`]. Gets settle at once: nothing of theirs writes at a peer, and a transport that gives
//! one up touches local memory no more.
//!
//! | what was given up | what is awaited |
//! |---|---|
//! | a put or an atomic that the transport has, or a part of one | its [`Completed`](crate::Event::Completed) |
//! | a chunk that was sent, its signal included | the peer's answer |
//! | a put that rode in a move | the answer to the move |
//! | bytes in a peer's bounce buffer, which it was told to copy on | its answer |
//!
//! A peer that answers what was not asked is *malformed*, as elsewhere; an answer is believed once.

use hashbrown::HashMap;

use super::Node;
use super::op::Clients;
use crate::op_id::{OpId, OpKey};
use crate::{Rank, Transport};

/// What tells that a part of an operation that was given up can write no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Awaited {
    /// The transport's report of this operation, or of this part of one.
    Report(OpId),
    /// The peer's answer to the chunk in that place of a transfer's window.
    Chunk(OpKey, usize),
    /// The peer's answer to the move that bytes of this operation rode in.
    Ridden(OpKey),
    /// The end of this bounce.
    Bounce(OpKey),
}

/// An operation that was given up.
#[derive(Debug)]
struct Settle {
    client: u8,
    peer: Rank,
    /// How much is still awaited of it: never zero.
    left: u32,
}

/// All that settles.
#[derive(Debug, Default)]
pub(super) struct Settling {
    all: HashMap<OpId, Settle>,
    awaited: HashMap<Awaited, OpId>,
}

impl Clients {
    /// Takes note of an operation that was given up, and of what can still write of it.
    #[cold]
    fn give_up(&mut self, op: OpId, client: u8, peer: Rank, awaited: &[Awaited]) {
        if awaited.is_empty() {
            return;
        }
        let left = u32::try_from(awaited.len()).expect("an operation has few parts under way");
        let known = self.settling.all.insert(op, Settle { client, peer, left });
        assert!(known.is_none(), "{op:?} is given up twice");
        for one in awaited {
            let known = self.settling.awaited.insert(*one, op);
            assert!(known.is_none(), "{one:?} is awaited for two operations");
        }
        self.begin_to_settle(client);
    }

    /// Something that was awaited has come. Returns whether it was awaited, of that peer where one is named.
    #[cold]
    fn take_awaited(&mut self, awaited: Awaited, from: Option<Rank>) -> bool {
        let Settling { all, awaited: known } = &mut self.settling;
        let Some(&op) = known.get(&awaited) else { return false };
        let settle = all.get_mut(&op).expect("it is awaited for this");
        if from.is_some_and(|from| from != settle.peer) {
            return false;
        }
        known.remove(&awaited);
        assert!(settle.left > 0, "what has settled is not kept");
        settle.left -= 1;
        if settle.left == 0 {
            let client = settle.client;
            all.remove(&op);
            self.settle(client);
        }
        true
    }

    /// A peer is lost: nothing is awaited of it any more.
    fn forget_peer(&mut self, peer: Rank) {
        let mut settling = std::mem::take(&mut self.settling);
        settling.awaited.retain(|_, op| settling.all[op].peer != peer);
        settling.all.retain(|_, settle| {
            if settle.peer == peer {
                self.settle(settle.client);
            }
            settle.peer != peer
        });
        self.settling = settling;
    }
}

/// What a client had started at one moment, and had not ended or settled by then.
#[derive(Debug)]
pub struct Started {
    ops: Vec<(OpId, Rank)>,
}

impl Started {
    /// The operations, but for those that [`Node::are_over`] has found to be over.
    pub fn ops(&self) -> impl Iterator<Item = OpId> {
        self.ops.iter().map(|(op, _)| *op)
    }

    /// A peer that some of it is with, of what was not over at the last [`Node::are_over`].
    pub fn awaited(&self) -> Option<Rank> {
        self.ops.last().map(|(_, peer)| *peer)
    }
}

impl<T: Transport> Node<T> {
    /// Takes note of what can still write of an operation that is given up.
    #[cold]
    pub(super) fn begin_to_settle(&mut self, op: OpId, client: u8, peer: Rank, awaited: &[Awaited]) {
        // Of one that is lost nothing more is heard.
        if !self.is_lost(peer) {
            self.clients.give_up(op, client, peer, awaited);
        }
    }

    /// Takes note that something can write no more, if it was [awaited](Node::begin_to_settle). Returns
    /// whether it was.
    #[inline]
    pub(super) fn has_settled(&mut self, awaited: Awaited, from: Option<Rank>) -> bool {
        !self.clients.settling.awaited.is_empty() && self.clients.take_awaited(awaited, from)
    }

    /// Awaits nothing more of a peer that is lost.
    pub(super) fn settle_with(&mut self, peer: Rank) {
        if !self.clients.settling.all.is_empty() {
            self.clients.forget_peer(peer);
        }
    }

    /// Whether nothing is under way of those whose [turn](Node::act_for) it is, and nothing of theirs can
    /// still write anywhere; barriers and collectives are not counted.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.clients.is_quiet()
    }

    /// Operations that were given up and can still write at their peers, whosever they are.
    pub fn settling(&self) -> usize {
        self.clients.settling.all.len()
    }

    /// Whether such an operation is with this peer.
    pub fn settles_with(&self, peer: Rank) -> bool {
        self.clients.settling.all.values().any(|settle| settle.peer == peer)
    }

    /// What is under way or settling now, of those whose [turn](Node::act_for) it is: with one peer, or with
    /// all. Looks through all that is under way.
    pub fn started(&self, with: Option<Rank>) -> Started {
        let client = self.clients.acting;
        let is_meant = |peer: Rank| with.is_none_or(|with| with == peer);
        if self.is_quiet() {
            return Started { ops: Vec::new() };
        }
        let mut ops: Vec<(OpId, Rank)> = Vec::new();
        for (key, op) in &self.ops {
            let is_own = op.client == client && op.parent.is_none() && op.kind.is_transfer();
            if is_own && op.outcome.is_none() && is_meant(op.kind.peer()) {
                ops.push((OpId::of(key), op.kind.peer()));
            }
        }
        let fast = self.fast.under_way_of(client).filter(|(_, peer)| is_meant(*peer));
        ops.extend(fast.map(|(id, peer)| (OpId::of_fast(id), peer)));
        let settling = self.clients.settling.all.iter();
        let its = settling.filter(|(_, settle)| settle.client == client && is_meant(settle.peer));
        ops.extend(its.map(|(op, settle)| (*op, settle.peer)));
        Started { ops }
    }

    /// Whether all of what was [started](Node::started) is over, and has settled. One that is given up
    /// meanwhile is awaited until it has settled.
    pub fn are_over(&self, started: &mut Started) -> bool {
        let is_over = |op: OpId| self.is_over(op) && !self.clients.settling.all.contains_key(&op);
        // Those that are over before another are not looked at before that is.
        while started.ops.pop_if(|(op, _)| is_over(*op)).is_some() {}
        started.ops.is_empty()
    }
}

//! The clients of a node, and what is over at home and can still write at a peer.
//!
//! The law: *when nothing of mine is under way, nothing of mine can still write, here or there.* An operation
//! that was cancelled, or is late, gives its caller's buffer back at once. A transport or a peer that has
//! some of it goes on with that. The operation *settles*: by the transport's report, by the peer's answer, or
//! with the loss of the peer. Until then the operation counts for [`Node::is_quiet`](crate::Node::is_quiet)
//! and for [`Started`], and no more for [`Node::in_flight`](crate::Node::in_flight). Gets settle at once:
//! nothing of theirs writes at a peer, and a transport that gives one up touches local memory no more.
//!
//! | what was given up | what is awaited |
//! |---|---|
//! | a put or an atomic that the transport has, or a part of one | its [`Completed`](crate::Event::Completed) |
//! | a chunk that was sent, its signal included; an atomic on a word of a grant | the peer's answer |
//! | a put that rode in a move | the answer to the move |
//! | bytes in a peer's bounce buffer, which it was told to copy on | its answer |
//!
//! A peer that answers what was not asked is *malformed*, as elsewhere; an answer is believed once.

use hashbrown::HashMap;

use crate::Rank;
use crate::op_id::{OpId, OpKey};

/// The news by which a part of an operation that was given up can write no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::node) enum Awaited {
    /// The transport's report of this operation, or of this part of one.
    Report(OpId),
    /// The peer's answer to the chunk in that place of a transfer's window.
    Chunk(OpKey, usize),
    /// The peer's answer to this atomic.
    Atomic(OpKey),
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
struct Settling {
    all: HashMap<OpId, Settle>,
    awaited: HashMap<Awaited, OpId>,
}

/// The clients of the node, each with how many of its transfers and atomics are under way.
#[derive(Debug)]
pub(super) struct Clients {
    /// The client that starts operations from now on.
    pub(super) acting: u8,
    /// The highest that ever did: no other has anything under way.
    highest: u8,
    /// Of each client, operations that are under way or settle.
    unsettled: [u32; 1 << u8::BITS],
    /// How many of them settle.
    settling_of: [u32; 1 << u8::BITS],
    /// The ends that are awaited of those.
    settling: Settling,
}

impl Default for Clients {
    fn default() -> Clients {
        let none = [0; 1 << u8::BITS];
        Clients { acting: 0, highest: 0, unsettled: none, settling_of: none, settling: Settling::default() }
    }
}

impl Clients {
    #[inline]
    pub(super) fn act_for(&mut self, client: u8) {
        self.acting = client;
        self.highest = self.highest.max(client);
    }

    #[inline(always)]
    pub(super) fn begin(&mut self) {
        self.unsettled[usize::from(self.acting)] += 1;
    }

    #[inline(always)]
    pub(super) fn end(&mut self, client: u8) {
        let count = &mut self.unsettled[usize::from(client)];
        debug_assert!(*count > 0, "no more end than have begun");
        *count -= 1;
    }

    fn begin_to_settle(&mut self, client: u8) {
        self.unsettled[usize::from(client)] += 1;
        self.settling_of[usize::from(client)] += 1;
    }

    fn settle(&mut self, client: u8) {
        self.end(client);
        let count = &mut self.settling_of[usize::from(client)];
        assert!(*count > 0, "no more settle than were given up");
        *count -= 1;
    }

    /// Whether nothing of the one whose turn it is is under way or settles.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.unsettled[usize::from(self.acting)] == 0
    }

    pub(super) fn in_flight_of_all(&self) -> usize {
        let counts = self.unsettled.iter().zip(&self.settling_of).take(usize::from(self.highest) + 1);
        counts.map(|(unsettled, settling)| (unsettled - settling) as usize).sum()
    }

    /// Of the one whose turn it is.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        let acting = usize::from(self.acting);
        (self.unsettled[acting] - self.settling_of[acting]) as usize
    }
}

impl Clients {
    /// Whether anything is awaited.
    #[inline]
    pub(super) fn awaits(&self) -> bool {
        !self.settling.awaited.is_empty()
    }

    /// Operations that settle: each with its client and peer.
    pub(super) fn settling(&self) -> impl ExactSizeIterator<Item = (OpId, u8, Rank)> {
        self.settling.all.iter().map(|(op, settle)| (*op, settle.client, settle.peer))
    }

    /// Whether that one settles.
    pub(super) fn settles(&self, op: OpId) -> bool {
        self.settling.all.contains_key(&op)
    }

    /// Takes note of an operation that was given up, and of what can still write of it.
    #[cold]
    pub(super) fn give_up(&mut self, op: OpId, client: u8, peer: Rank, awaited: &[Awaited]) {
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
    pub(super) fn take_awaited(&mut self, awaited: Awaited, from: Option<Rank>) -> bool {
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
    pub(super) fn forget_peer(&mut self, peer: Rank) {
        if self.settling.all.is_empty() {
            return;
        }
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

/// The operations that a client had started at one moment, and that had not ended or settled by then.
#[derive(Debug)]
pub struct Started {
    pub(in crate::node) ops: Vec<(OpId, Rank)>,
}

impl Started {
    /// The operations, but for those that [`Node::are_over`](crate::Node::are_over) has found to be over.
    pub fn ops(&self) -> impl Iterator<Item = OpId> {
        self.ops.iter().map(|(op, _)| *op)
    }

    /// A peer that some of it is with, of what was not over at the last
    /// [`Node::are_over`](crate::Node::are_over).
    pub fn awaited(&self) -> Option<Rank> {
        self.ops.last().map(|(_, peer)| *peer)
    }
}

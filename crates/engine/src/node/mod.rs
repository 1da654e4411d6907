//! The engine's node: the state of every operation that one process has under way, and its answers to its peers.
//!
//! Calls come in, [`Transport`] verbs go out. The caller drives: after starting operations it calls [`Node::poll`]
//! until that returns [`Polled::Idle`], runs the handlers that [`Polled::Deliver`] names, and asks [`Node::outcome`]
//! what became of its operations. Calling again pays after a message arrived (the transport knows when) and, while
//! operations with deadlines are under way, after [`Node::expire`].

mod am;
mod barrier;
mod ops;
mod rma;

use std::collections::{BTreeSet, VecDeque};

use slotmap::SlotMap;

use crate::op_id::{OpId, OpKey};
use crate::wire::Kind;
use crate::{Counters, Event, Header, Lane, Nanos, OpError, Rank, SendError, Transport};

pub use am::{AmBody, AmSend, Delivery};
use barrier::Barrier;
pub use ops::Outcome;
use ops::{Op, OpKind};

/// What one call of [`Node::poll`] did.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing: no message, no completion, nothing that waited could go on.
    Idle,
    /// Something moved; operations may have completed.
    Progressed,
    /// An Active Message for a handler. Its payload, if it has one, is in the buffer given to `poll`; the handler must
    /// have run, and sent its reply if it sends one, before the next call of `poll`.
    Deliver(Delivery),
}

/// One process's operations over one transport. Not for sharing: one thread at a time.
pub struct Node<T> {
    rank: Rank,
    size: u32,
    handlers: u16,
    transport: T,
    ops: SlotMap<OpKey, Op>,
    pending: usize,
    /// Transfers that found the lane full and go on at the next poll.
    stalled: VecDeque<OpKey>,
    /// Messages without payload that found the lane full.
    outbox: VecDeque<(Rank, Lane, Header)>,
    barrier: Barrier,
    lost: BTreeSet<Rank>,
    /// The first failure of an operation that nobody waits for.
    detached_error: Option<OpError>,
    scratch: Vec<u8>,
    counters: Counters,
}

impl<T: Transport> Node<T> {
    /// A node of rank `rank` in a job of `size`, with `handlers` Active-Message handlers.
    ///
    /// # Panics
    /// When `rank` is not below `size`.
    pub fn new(rank: Rank, size: u32, handlers: u16, transport: T) -> Node<T> {
        assert!(rank < size, "rank {rank} is not below the job's size {size}");
        let scratch = vec![0; transport.payload_max()];
        Node {
            rank,
            size,
            handlers,
            transport,
            ops: SlotMap::with_key(),
            pending: 0,
            stalled: VecDeque::new(),
            outbox: VecDeque::new(),
            barrier: Barrier::default(),
            lost: BTreeSet::new(),
            detached_error: None,
            scratch,
            counters: Counters::default(),
        }
    }

    /// The transport, for what only its owner knows how to ask of it.
    #[inline]
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// What this node has done so far, except for operations that never entered it.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Makes progress; see [`Polled`]. `payload` is scratch space that is overwritten.
    #[inline]
    pub fn poll(&mut self, payload: &mut Vec<u8>) -> Polled {
        let retried = if self.stalled.is_empty() && self.outbox.is_empty() { false } else { self.retry() };
        match self.transport.poll(payload) {
            Some(Event::Message { peer, lane, header }) => self.on_message(peer, lane, &header, payload),
            Some(Event::Completed { op, result }) => {
                self.on_completed(op, result);
                Polled::Progressed
            }
            Some(Event::Garbled { peer }) => {
                self.counters.malformed += 1;
                self.lose(peer);
                Polled::Progressed
            }
            None if retried => Polled::Progressed,
            None => Polled::Idle,
        }
    }

    /// Fails every operation whose deadline is not after `now` with [`OpError::Timeout`]; its buffers are touched no
    /// more. Returns the earliest deadline that is left.
    pub fn expire(&mut self, now: Nanos) -> Option<Nanos> {
        let mut late = Vec::new();
        let mut next = None;
        for (key, op) in &self.ops {
            let Some(deadline) = op.deadline.filter(|_| op.outcome.is_none()) else { continue };
            if deadline <= now {
                late.push((key, op.kind.peer()));
            } else {
                next = Some(next.map_or(deadline, |n: Nanos| n.min(deadline)));
            }
        }
        for (key, peer) in late {
            self.give_up(key, OpError::Timeout { peer });
        }
        next
    }

    /// Takes note that a peer is gone: everything under way with it ends with [`OpError::PeerLost`], and so does
    /// whatever is started with it later.
    pub fn lose(&mut self, peer: Rank) {
        if !self.lost.insert(peer) {
            return;
        }
        self.outbox.retain(|(to, ..)| *to != peer);
        let hit: Vec<OpKey> = self
            .ops
            .iter()
            .filter(|(_, op)| op.outcome.is_none() && op.kind.needs(peer))
            .map(|(key, _)| key)
            .collect();
        for key in hit {
            self.give_up(key, OpError::PeerLost { peer });
        }
        self.recount();
    }

    /// Whether the peer is known to be gone.
    pub fn is_lost(&self, peer: Rank) -> bool {
        self.lost.contains(&peer)
    }

    fn on_message(&mut self, peer: Rank, lane: Lane, words: &[u64; Header::WORDS], payload: &[u8]) -> Polled {
        let Ok(header) = Header::decode(words, payload.len()) else {
            self.counters.malformed += 1;
            return Polled::Progressed;
        };
        match (header.kind, lane) {
            (Kind::AmShort | Kind::AmMedium | Kind::AmLong, _) => {
                return self.on_am(peer, lane, &header).map_or(Polled::Progressed, Polled::Deliver);
            }
            (Kind::PutChunk, Lane::Request) => self.serve_put(peer, &header, payload),
            (Kind::GetChunk, Lane::Request) => self.serve_get(peer, &header),
            (Kind::PutDone | Kind::GetData, Lane::Reply) => self.on_chunk(peer, &header, payload),
            (Kind::BarrierOpen, Lane::Request) => self.on_barrier_open(&header),
            _ => self.counters.malformed += 1,
        }
        Polled::Progressed
    }

    fn on_completed(&mut self, id: OpId, result: Result<u64, OpError>) {
        let key = id.key();
        let Some(op) = self.ops.get_mut(key).filter(|op| op.outcome.is_none()) else { return };
        match &mut op.kind {
            OpKind::BarrierArrival { epoch } => {
                let epoch = *epoch;
                self.on_arrival(key, epoch, result);
            }
            OpKind::BarrierCount => self.on_count(key, result),
            OpKind::OneSided { peer, announce } => {
                let (peer, announce) = (*peer, announce.take());
                if result.is_ok() {
                    self.announce(peer, announce.map(|boxed| *boxed));
                }
                self.finish(key, result);
            }
            OpKind::Transfer(_) | OpKind::BarrierWait => {}
        }
    }

    /// Tries again what found no room. Returns whether anything moved.
    fn retry(&mut self) -> bool {
        let mut moved = self.drain_outbox();
        for _ in 0..self.stalled.len() {
            let Some(key) = self.stalled.pop_front() else { break };
            moved |= self.pump(key);
        }
        moved
    }

    /// Sends what waits in the outbox, in order within each (peer, lane). Returns whether anything moved.
    fn drain_outbox(&mut self) -> bool {
        let before = self.outbox.len();
        let transport = &mut self.transport;
        let mut full = Vec::new();
        self.outbox.retain(|(peer, lane, header)| {
            // A lane that was full may have room again by now; what comes later must still not overtake.
            let busy = full.contains(&(*peer, *lane))
                || transport.send(*peer, *lane, &header.encode(), &[]) == Err(SendError::Busy);
            if busy {
                full.push((*peer, *lane));
            }
            busy
        });
        self.outbox.len() < before
    }

    fn waits_in_outbox(&self, peer: Rank, lane: Lane) -> bool {
        self.outbox.iter().any(|(to, by, _)| (*to, *by) == (peer, lane))
    }

    /// Sends a message without payload now, or as soon as the lane has room.
    fn send_soon(&mut self, peer: Rank, lane: Lane, header: Header) {
        if self.lost.contains(&peer) {
            return;
        }
        let waiting = self.waits_in_outbox(peer, lane);
        let full = waiting || self.transport.send(peer, lane, &header.encode(), &[]) == Err(SendError::Busy);
        if full {
            self.outbox.push_back((peer, lane, header));
        }
    }
}

//! Drives the nodes of a cluster from one thread, with an end to every wait.

use std::collections::{BTreeSet, HashMap};

use engine::collective::{Memory, Span, Step};
use engine::node::{AmBody, Polled, Refused};
use engine::{
    AmSend, Delivery, Direction, Inbox, Lane, MemId, Node, OpError, OpId, Outcome, Piece, Place, Rank,
    SendError,
};

use crate::cluster::{ARRIVAL_STEPS, Cluster, HANDLERS};

/// Makes a cluster of so many ranks.
pub type Make<'a, C> = &'a mut dyn FnMut(u32) -> C;

/// Rounds after which a wait is given up as a hang.
const ROUNDS: usize = 200_000;

/// Events that one node may handle in one round.
const EVENTS: usize = 64;

/// The handler that only notes what came.
pub(crate) const NOTE: u32 = 0;
/// The handler that answers each request with the same arguments and payload.
pub(crate) const ECHO: u32 = 1;
/// The handler that [`ECHO`]'s replies name.
pub(crate) const ANSWER: u32 = 2;
const _: () = assert!(ANSWER < HANDLERS);

/// An Active Message as its handler saw it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) delivery: Delivery,
    pub(crate) args: [u64; 4],
    pub(crate) landed: Option<(Place, u32)>,
    /// The payload; of a long message, what lay at its place when the handler ran.
    pub(crate) payload: Vec<u8>,
}

/// A cluster, and what has happened to it.
pub(crate) struct Bench<C: Cluster> {
    pub(crate) cluster: C,
    /// Ranks that are not polled.
    asleep: BTreeSet<Rank>,
    /// By rank: every message that its handlers have seen.
    pub(crate) got: Vec<Vec<Got>>,
    /// By rank: every message of its own that a peer has refused.
    pub(crate) refused: Vec<Vec<Refused>>,
    /// By rank: how many messages for [`ANSWER`] its handlers have seen.
    pub(crate) answers: Vec<usize>,
    /// Where the memories of collectives lie.
    pub(crate) memories: HashMap<(Rank, OpId), [Place; 3]>,
    inbox: Inbox,
}

impl<C: Cluster> Bench<C> {
    pub(crate) fn new(make: Make<'_, C>, size: u32) -> Bench<C> {
        let cluster = make(size);
        assert_eq!(cluster.size(), size, "the cluster has another size than was asked for");
        let got = (0..size).map(|_| Vec::new()).collect();
        let refused = vec![Vec::new(); size as usize];
        Bench {
            cluster,
            asleep: BTreeSet::new(),
            got,
            refused,
            answers: vec![0; size as usize],
            memories: HashMap::new(),
            inbox: Inbox::default(),
        }
    }

    pub(crate) fn node(&mut self, rank: Rank) -> &mut Node<C::Transport> {
        self.cluster.node(rank)
    }

    pub(crate) fn size(&self) -> u32 {
        self.cluster.size()
    }

    /// From now on `rank` is not polled: a process that computes and never calls the library.
    pub(crate) fn sleep(&mut self, rank: Rank) {
        self.asleep.insert(rank);
    }

    pub(crate) fn wake(&mut self, rank: Rank) {
        self.asleep.remove(&rank);
    }

    pub(crate) fn kill(&mut self, rank: Rank) {
        self.asleep.insert(rank);
        self.cluster.kill(rank);
    }

    /// Makes another process of `rank`. `false`, which it says aloud: there is no such thing here.
    pub(crate) fn restart(&mut self, rank: Rank) -> bool {
        let restarts = self.cluster.restart(rank);
        if restarts {
            (self.got[rank as usize], self.answers[rank as usize]) = (Vec::new(), 0);
        } else {
            testbed::skip("ranks do not return here");
        }
        restarts
    }

    /// Polls every node that is awake, runs its handlers, and lets time pass. Returns whether anything
    /// happened.
    pub(crate) fn round(&mut self) -> bool {
        let mut busy = false;
        for rank in (0..self.size()).filter(|rank| !self.asleep.contains(rank)).collect::<Vec<_>>() {
            for _ in 0..EVENTS {
                match self.cluster.node(rank).poll(&mut self.inbox) {
                    Polled::Idle => break,
                    Polled::Progressed | Polled::Acknowledged(_) => {}
                    Polled::Refused(refused) => self.refused[rank as usize].push(refused),
                    Polled::Deliver(delivery) => self.handle(rank, delivery),
                    Polled::Local(id) => _ = self.do_local_steps(rank, id),
                }
                busy = true;
            }
        }
        // Some ranks are told of such steps, and some ask.
        let waiting = self.memories.keys().filter(|(rank, _)| !self.asleep.contains(rank) && asks(*rank));
        for (rank, id) in waiting.copied().collect::<Vec<_>>() {
            busy |= self.do_local_steps(rank, id);
        }
        self.cluster.step();
        busy
    }

    fn handle(&mut self, rank: Rank, delivery: Delivery) {
        let (args, landed) = (self.inbox.args(), self.inbox.landed());
        self.cluster.node(rank).fetch_payload(&mut self.inbox);
        let mut payload = std::mem::take(&mut self.inbox.payload);
        if let Some((place, len)) = landed {
            payload = vec![0; len as usize];
            // Only its owner finds a place in a grant.
            if place.in_grant().is_none() {
                self.cluster.peek(rank, place, &mut payload);
            }
        }
        if delivery.handler == u64::from(ECHO) && delivery.lane == Lane::Request {
            let body =
                if payload.is_empty() || landed.is_some() { AmBody::Short } else { AmBody::Medium(&payload) };
            let reply = AmSend { peer: delivery.peer, lane: Lane::Reply, handler: ANSWER, args, body };
            let sent = self.cluster.node(rank).send_am(&reply);
            let gone = Err(SendError::Failed(OpError::PeerLost { peer: delivery.peer }));
            assert!(sent == Ok(()) || sent == gone, "{sent:?} for a reply to the request being handled");
        }
        self.answers[rank as usize] += usize::from(delivery.handler == u64::from(ANSWER));
        self.got[rank as usize].push(Got { delivery, args, landed, payload });
    }

    /// Does what a collective is to do in its own memory, if that is its next step.
    /// Returns whether it was.
    pub(crate) fn do_local_steps(&mut self, rank: Rank, id: OpId) -> bool {
        let mut any = false;
        while let Some(step) = self.node(rank).local_step(id) {
            let memory = self.memories[&(rank, id)];
            let place = |span: Span| match span.memory {
                Memory::In => memory[0].plus(span.at),
                Memory::Out => memory[1].plus(span.at),
                Memory::Scratch => memory[2].plus(span.at),
            };
            let (from, into, combines) = match step {
                // Nothing here reaches what others give but by transfers.
                Step::Fold { .. } => {
                    self.node(rank).local_refused(id);
                    any = true;
                    continue;
                }
                Step::Copy { from, into } => (from, into, false),
                Step::Combine { into, from } => (from, into, true),
                _ => panic!("{step:?} is no step in own memory"),
            };
            if let Some(kept) = self.node(rank).kept(id) {
                let bytes = compose(kept.part(into), kept.part(from));
                kept.part_mut(into).copy_from_slice(&bytes);
                self.node(rank).local_done(id);
                any = true;
                continue;
            }
            let mut bytes = self.bytes(rank, place(from), from.len as usize);
            if combines {
                bytes = compose(&self.bytes(rank, place(into), into.len as usize), &bytes);
            }
            self.cluster.poke(rank, place(into), &bytes);
            self.node(rank).local_done(id);
            any = true;
        }
        any
    }

    /// Goes on until `done`.
    ///
    /// # Panics
    /// When that takes too long; `what` says what was waited for.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Bench<C>) -> bool) {
        for _ in 0..ROUNDS {
            if done(self) {
                return;
            }
            self.round();
        }
        panic!("still waiting for {what} after {ROUNDS} rounds of polling");
    }

    /// Goes on until nothing more happens.
    pub(crate) fn settle(&mut self) {
        let mut idle = 0;
        self.until("everything to come to rest", |bench| {
            idle = if bench.round() { 0 } else { idle + 1 };
            idle > ARRIVAL_STEPS
        });
    }

    /// Waits for an operation of `rank` and takes its outcome.
    pub(crate) fn outcome(&mut self, rank: Rank, id: OpId) -> Outcome {
        let mut outcome = None;
        self.until("an operation's outcome", |bench| {
            outcome = bench.node(rank).outcome(id);
            outcome.is_some()
        });
        self.memories.remove(&(rank, id));
        outcome.expect("until returned, so it is there")
    }

    /// Puts or gets, and waits for the outcome.
    pub(crate) fn transfer(
        &mut self,
        rank: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
    ) -> Outcome {
        let id = self.node(rank).transfer(peer, direction, pieces, None);
        self.outcome(rank, id)
    }

    /// Sends an Active Message, however long the lane is full.
    pub(crate) fn send(&mut self, rank: Rank, message: &AmSend<'_>) {
        self.until("room in a lane", |bench| match bench.node(rank).send_am(message) {
            Ok(()) => true,
            Err(SendError::Busy) => false,
            Err(SendError::Failed(error)) => panic!("rank {rank} cannot send: {error}"),
        });
    }

    /// Allocates memory of either kind ([`MemId::Space`] or [`MemId::Heap`]).
    pub(crate) fn memory(&mut self, rank: Rank, mem: MemId, len: usize) -> Place {
        let place = match mem {
            MemId::Space => self.cluster.private(rank, len),
            MemId::Heap => self.cluster.heap(rank, len),
            MemId::Control | MemId::Grant(_) => panic!("{mem:?} is not for the suite to allocate"),
        };
        assert_eq!(place.mem, mem, "the cluster allocated the wrong kind of memory");
        place
    }

    /// Allocates memory with these bytes in it.
    pub(crate) fn filled(&mut self, rank: Rank, mem: MemId, bytes: &[u8]) -> Place {
        let place = self.memory(rank, mem, bytes.len());
        self.cluster.poke(rank, place, bytes);
        place
    }

    pub(crate) fn bytes(&mut self, rank: Rank, place: Place, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.cluster.peek(rank, place, &mut bytes);
        bytes
    }
}

/// A piece of a transfer.
pub(crate) fn piece(remote: Place, local: Place, len: usize) -> Piece {
    Piece::new(remote, local, len as u64).expect("the suite's memory does not reach 2^64")
}

/// `len` bytes that depend on `seed`.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    let mut bytes = vec![0; len.next_multiple_of(4)];
    for word in bytes.chunks_exact_mut(4) {
        word.copy_from_slice(&(dice.roll() as u32).to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Whether the transport cannot do this; says so aloud.
pub(crate) fn skipped(case: &str, outcome: Outcome) -> bool {
    match outcome {
        Err(error @ OpError::Unsupported { .. }) => {
            testbed::skip(format_args!("{case}: {error}"));
            true
        }
        _ => false,
    }
}

/// Whether the rank asks for collectives' steps in its own memory, where others are told.
pub(crate) fn asks(rank: Rank) -> bool {
    !rank.is_multiple_of(2)
}

/// Affine functions of numbers, 8 bytes each, composed: what collectives combine here. The order matters.
pub(crate) fn compose(left: &[u8], right: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let pairs = left.chunks_exact(8).zip(right.chunks_exact(8));
    pairs
        .flat_map(|(l, r)| {
            let (a, b, c, d) = (word(&l[..4]), word(&l[4..]), word(&r[..4]), word(&r[4..]));
            [a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b)].map(u32::to_le_bytes).concat()
        })
        .collect()
}

/// A small generator of pseudo-random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        // The state must not be 0; a few rolls part neighbouring seeds.
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            dice.roll();
        }
        dice
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }
}

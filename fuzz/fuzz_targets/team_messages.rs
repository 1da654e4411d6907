//! Members of a team that send anything: the engine never panics, writes no memory but what its collectives
//! were given, and once the members are lost nothing waits any more.
#![no_main]

use engine::collective::{Collective, Elements, Function};
use engine::node::{Kept, Memories, Polled, SmallPolled, Start, TeamId};
use engine::wire::{Kind, Message};
use engine::{
    Direction, Event, Header, Inbox, Lane, MemId, Node, OpError, OpId, PathReason, Piece, Place, Rank,
    SendError, Submit, Transport,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;

const SIZE: Rank = 3;
const PAYLOAD_MAX: usize = 256;
const REGION: u64 = 1 << 12;
const OPS: usize = 8;
/// The first kind of the messages between members.
const FIRST_KIND: u64 = Kind::TeamWord as u64;
/// How many kinds there are.
const KINDS: u8 = Kind::TeamBroken as u8 - Kind::TeamWord as u8 + 1;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A member sends any words of such a message.
    Message {
        peer: u8,
        kind: u8,
        world: bool,
        token: u64,
        args: [u64; 4],
        place: u64,
        len: u8,
    },
    /// A member sends what this one has sent, with a change.
    Echo {
        sent: u8,
        peer: u8,
        kind: Option<u8>,
        word: u8,
        change: u64,
    },
    Start {
        what: u8,
        root: u8,
        len: u16,
        deadline: bool,
        kept: bool,
    },
    Split {
        color: u8,
    },
    Local,
    Poll,
    Expire,
    Cancel {
        op: u8,
    },
    Full {
        full: bool,
    },
    /// What becomes of copies from now on.
    Copies {
        how: u8,
    },
    Lose {
        peer: u8,
    },
    /// A barrier without an operation.
    Exchange,
    /// A look at what has come of it.
    Exchanged,
    /// What is seen of how often members have given up what they offered.
    GivenUp {
        seen: Option<u32>,
    },
}

fuzz_target!(|steps: Vec<Step>| {
    let peer =
        Peer { events: VecDeque::new(), sent: vec![], full: false, given: 0, copies: 0, given_up: None };
    let node = Node::new(0, SIZE, 1, peer);
    let mut run = Run { node, ops: vec![], exchanges: false, inbox: Inbox::default() };
    steps.iter().for_each(|step| run.step(step));
    run.end();
});

/// The transport, with the members' side of it in the fuzzer's hand.
struct Peer {
    events: VecDeque<(Event, Inbox)>,
    sent: Vec<([u64; Header::WORDS], Vec<u8>)>,
    full: bool,
    /// Bytes of memory that collectives were given.
    given: u64,
    /// What becomes of copies.
    copies: u8,
    /// How often everybody has given up what they offered.
    given_up: Option<u32>,
}

impl Transport for Peer {
    fn offers_given_up(&self, _: Rank) -> Option<u32> {
        self.given_up
    }

    fn send(&mut self, peer: Rank, _: Lane, header: &[u64; 7], payload: &[u8]) -> Result<(), SendError> {
        assert!(peer < SIZE && payload.len() <= PAYLOAD_MAX);
        Message::decode(header, payload.len()).expect("we send only what a peer understands");
        if self.full {
            return Err(SendError::Busy);
        }
        self.sent.push((*header, payload.to_vec()));
        Ok(())
    }

    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let (event, message) = self.events.pop_front()?;
        *inbox = message;
        Some(event)
    }

    fn payload_max(&self) -> usize {
        PAYLOAD_MAX
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        into.fill(from.offset as u8);
        Ok(())
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        assert!(
            to.mem == MemId::Space && to.offset + from.len() as u64 <= self.given,
            "memory of no collective"
        );
        Ok(())
    }

    fn reaches(&mut self, _: Rank, _: &[Piece]) -> Result<(), PathReason> {
        if self.copies % 3 == 0 { Err(PathReason::NotOffered) } else { Ok(()) }
    }

    fn copy(&mut self, _: OpId, peer: Rank, _: Direction, pieces: &[Piece]) -> Submit {
        match self.copies % 3 {
            1 => Submit::Done(0),
            _ => {
                let Place { mem, offset } = pieces[0].remote;
                Submit::Failed(OpError::Fault { peer, mem, addr: offset, len: pieces[0].len })
            }
        }
    }
}

struct Run {
    node: Node<Peer>,
    ops: Vec<OpId>,
    exchanges: bool,
    inbox: Inbox,
}

impl Run {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Message { peer, kind, world, token, args, place, len } => {
                let first = (FIRST_KIND + u64::from(kind % KINDS)) | u64::from(len) << 32;
                let [a, b, c, d] = args;
                let header = [first, if world { 0 } else { token }, a % (1 << 20), b, c, d, place];
                self.arrives(rank(peer), header, vec![0xa5; usize::from(len)]);
            }
            Step::Echo { sent, peer, kind, word, change } => {
                let echoed = self.node.transport().sent.get(usize::from(sent)).cloned();
                if let Some((mut header, payload)) = echoed {
                    if let Some(kind) = kind {
                        header[0] = header[0] >> 8 << 8 | (FIRST_KIND + u64::from(kind % KINDS));
                    }
                    // Other kinds are no messages between members.
                    let kind = header[0] & 0xff;
                    header[usize::from(word) % 7] ^= change;
                    header[0] = header[0] >> 8 << 8 | kind;
                    self.arrives(rank(peer), header, payload);
                }
            }
            Step::Start { what, root, len, deadline, kept } => self.start(what, root, len, deadline, kept),
            Step::Split { color } => {
                if let Some(new) = self.node.begin_split(TeamId::WORLD, u32::from(color)) {
                    self.node.end_split(TeamId::WORLD, new, &[0, 1]);
                }
            }
            Step::Local => {
                for op in self.ops.clone() {
                    while self.node.local_step(op).is_some() {
                        self.node.local_done(op);
                    }
                }
            }
            Step::Poll => self.poll(),
            Step::Expire => drop(self.node.expire(10)),
            Step::Cancel { op } => {
                if let Some(op) = self.ops.get(usize::from(op)) {
                    self.node.cancel(*op);
                }
            }
            Step::Full { full } => self.node.transport().full = full,
            Step::Copies { how } => self.node.transport().copies = how,
            Step::Lose { peer } => self.node.lose(rank(peer)),
            Step::Exchange if !self.exchanges => {
                self.exchanges =
                    self.node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]);
            }
            Step::Exchange => {}
            Step::Exchanged if self.exchanges => {
                let mut exchanged = self.node.poll_small_collective();
                while let SmallPolled::Word { last: false, .. } = exchanged {
                    exchanged = self.node.next_small_round([0; 8]);
                }
                self.exchanges = exchanged == SmallPolled::Pending;
                if exchanged == SmallPolled::FallsBack {
                    self.goes_on();
                }
            }
            Step::Exchanged => {}
            Step::GivenUp { seen } => self.node.transport().given_up = seen,
        }
    }

    /// What was begun by an exchange goes on as any other collective.
    fn goes_on(&mut self) {
        self.exchanges = false;
        let (memories, deadline) = (Memories::Kept(Kept::default()), None);
        let start = Start { memories, steps_told: false, deadline, goes_on: true };
        let plan = Collective::Barrier.plan(SIZE, 0).into();
        self.ops.push(self.node.collective(TeamId::WORLD, &Collective::Barrier, plan, start));
    }

    fn start(&mut self, what: u8, root: u8, len: u16, deadline: bool, kept: bool) {
        if self.ops.len() >= OPS {
            return;
        }
        let (root, len) = (u32::from(root) % SIZE, u64::from(len % 1024) / 8 * 8);
        let elements = Elements { count: len / 8, bytes: 8, function: Function::Own, commutative: false };
        let what = match what % 5 {
            0 => Collective::Barrier,
            1 => Collective::Broadcast { root, len },
            2 => Collective::AllGather { block: len },
            3 => Collective::Reduce { root, elements },
            _ => Collective::AllReduce { elements },
        };
        let plan = what.plan(SIZE, 0);
        let first = self.ops.len() as u64 * 3 * REGION;
        self.node.transport().given = first + 3 * REGION;
        let place = |part: u64| Place::new(MemId::Space, first + part * REGION);
        // Enough for any of them.
        let bytes = vec![1; 3 * len as usize];
        let mut here = Kept::default();
        here.hold(Some(&bytes), &bytes, plan.scratch);
        let memories = match kept && self.node.keeps(here.len() as u64) {
            true => Memories::Kept(here),
            false => Memories::At { input: place(0), output: place(1), scratch: place(2) },
        };
        let start = Start { memories, steps_told: false, deadline: deadline.then_some(10), goes_on: false };
        let op = self.node.collective(TeamId::WORLD, &what, plan.into(), start);
        self.ops.push(op);
    }

    fn arrives(&mut self, peer: Rank, header: [u64; 7], payload: Vec<u8>) {
        let event = Event::Message { peer, lane: Lane::Request };
        // A transport hands out what the header says, or nothing at all.
        let payload = if Header::decode(&header, 0).is_ok() { Vec::new() } else { payload };
        self.node.transport().events.push_back((event, Inbox::new(header, payload)));
    }

    fn poll(&mut self) {
        let polled = self.node.poll(&mut self.inbox);
        assert!(matches!(polled, Polled::Idle | Polled::Progressed), "{polled:?}: nothing for a handler");
    }

    /// Everything that has come is handled, and nothing waits for members that are gone.
    fn end(&mut self) {
        while !self.node.transport().events.is_empty() {
            self.poll();
        }
        if self.exchanges {
            self.goes_on();
        }
        (1..SIZE).for_each(|peer| self.node.lose(peer));
        assert_eq!((self.node.in_flight(), self.node.collectives_in_flight()), (0, 0));
        for op in &self.ops {
            assert!(self.node.outcome(*op).is_some(), "a collective without an end");
        }
    }
}

/// Never rank 0: that is the node itself.
fn rank(peer: u8) -> Rank {
    1 + Rank::from(peer) % (SIZE - 1)
}

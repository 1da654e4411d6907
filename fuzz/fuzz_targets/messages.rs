//! A peer that sends any headers and payloads: the engine never panics, hands out no handler index beyond the
//! table, touches no memory that is not its own, and once the peer is lost nothing waits for it any more.
#![no_main]

use engine::node::{AmBody, Polled};
use engine::wire::{Kind, Message};
use engine::{
    AmSend, Atomic, Direction, Event, GrantId, Header, Inbox, Lane, MemId, Node, OpError, OpId, Piece, Place,
    Rank, SendError, Transport,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;

const HANDLERS: u32 = 5;
const SIZE: Rank = 3;
const PAYLOAD_MAX: usize = 4096;
const MEMORY_BYTES: u64 = 1 << 14;

#[derive(Arbitrary, Debug)]
enum Step {
    /// The peer sends anything at all.
    Message {
        peer: u8,
        reply: bool,
        header: [u64; 7],
        payload: u16,
    },
    /// The peer sends a header of a known kind and a length that fits.
    Likely {
        peer: u8,
        reply: bool,
        kind: u8,
        handler: u16,
        token: u64,
        args: [u64; 4],
        place: u64,
        payload: u16,
    },
    /// The peer answers something it was sent, with changes.
    Answer {
        sent: u8,
        reply: bool,
        kind: u8,
        change: u8,
        value: u64,
        payload: u16,
    },
    Garbled {
        peer: u8,
    },
    Transfer {
        peer: u8,
        put: bool,
        place: u16,
        len: u16,
        deadline: bool,
    },
    Barrier {
        deadline: bool,
    },
    Am {
        peer: u8,
        reply: bool,
        len: u16,
    },
    Poll,
    Expire,
    Cancel {
        op: u8,
    },
    Full {
        full: bool,
    },
    Lose {
        peer: u8,
    },
}

fuzz_target!(|steps: Vec<Step>| {
    let peer =
        Peer { events: VecDeque::new(), sent: vec![], full: false, memory: vec![0; MEMORY_BYTES as usize] };
    let mut run = Run { node: Node::new(0, SIZE, HANDLERS, peer), ops: vec![], inbox: Inbox::default() };
    steps.iter().for_each(|step| run.step(step));
    run.end();
});

/// The transport, with the peers' side of it in the fuzzer's hand.
struct Peer {
    events: VecDeque<(Event, Inbox)>,
    sent: Vec<(Rank, [u64; Header::WORDS])>,
    full: bool,
    memory: Vec<u8>,
}

impl Peer {
    fn range(place: Place, len: usize) -> Result<std::ops::Range<usize>, OpError> {
        let fault = OpError::LocalFault { mem: place.mem, addr: place.offset, len: len as u64 };
        let end = place.offset.checked_add(len as u64).filter(|end| *end <= MEMORY_BYTES).ok_or(fault)?;
        Ok(place.offset as usize..end as usize)
    }
}

impl Transport for Peer {
    fn send(&mut self, peer: Rank, _: Lane, header: &[u64; 7], payload: &[u8]) -> Result<(), SendError> {
        assert!(peer < SIZE && payload.len() <= PAYLOAD_MAX);
        Message::decode(header, payload.len()).expect("we send only what a peer understands");
        if self.full {
            return Err(SendError::Busy);
        }
        self.sent.push((peer, *header));
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
        into.copy_from_slice(&self.memory[Peer::range(from, into.len())?]);
        Ok(())
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        self.memory[Peer::range(to, from.len())?].copy_from_slice(from);
        Ok(())
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        let bytes = &mut self.memory[Peer::range(word, atomic.size() as usize)?];
        Ok(atomic.apply_to(bytes).expect("as many bytes as the word has"))
    }
}

/// A kind of message that is not for registration, stages or teams.
fn number(kind: u8) -> u64 {
    match kind % 12 {
        9 => Kind::PutSignal as u64,
        10 => Kind::AtomicAsk as u64,
        11 => Kind::AtomicDone as u64,
        kind => u64::from(kind),
    }
}

struct Run {
    node: Node<Peer>,
    ops: Vec<OpId>,
    inbox: Inbox,
}

impl Run {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Message { peer, reply, header, payload } => {
                self.arrives(rank(peer), reply, header, payload)
            }
            Step::Likely { peer, reply, kind, handler, token, args, place, payload } => {
                let [a, b, c, d] = args;
                let payload = payload % PAYLOAD_MAX as u16;
                let first = number(kind) | u64::from(handler % 8) << 16 | u64::from(payload) << 32;
                self.arrives(rank(peer), reply, [first, token, a % 4, b % 4, c, d, place], payload);
            }
            Step::Answer { sent, reply, kind, change, value, payload } => {
                let answered = self.node.transport().sent.get(usize::from(sent)).copied();
                if let Some((peer, mut header)) = answered {
                    header[0] = header[0] >> 16 << 16 | number(kind);
                    header[usize::from(change) % 7] ^= value;
                    self.arrives(peer, reply, header, payload);
                }
            }
            Step::Garbled { peer } => {
                let event = Event::Garbled { peer: rank(peer) };
                self.node.transport().events.push_back((event, Inbox::default()));
            }
            Step::Poll => self.poll(),
            Step::Expire => drop(self.node.expire(10)),
            Step::Cancel { op } => {
                if let Some(op) = self.ops.get(usize::from(op)) {
                    self.node.cancel(*op);
                }
            }
            Step::Full { full } => self.node.transport().full = full,
            Step::Lose { peer } => self.node.lose(rank(peer)),
            Step::Transfer { .. } | Step::Barrier { .. } | Step::Am { .. } => self.start(step),
        }
    }

    fn start(&mut self, step: &Step) {
        match *step {
            Step::Transfer { peer, put, place, len, deadline } => {
                let direction = if put { Direction::Put } else { Direction::Get };
                let local = Place::new(MemId::Heap, u64::from(place) % (MEMORY_BYTES + 64));
                let remote = Place::new(MemId::Space, u64::from(place));
                let piece = Piece::new(remote, local, u64::from(len)).expect("far below 2^64");
                let deadline = deadline.then_some(10);
                let op = if len % 8 == 6 {
                    let word = Place::granted(GrantId { line: u32::from(len), generation: 1 }, 8);
                    self.node.atomic(rank(peer), word, Atomic::fetch_add(1), deadline)
                } else if put && len % 2 == 1 {
                    let (word, atomic) = (Place::new(MemId::Heap, 0), Atomic::fetch_add(1));
                    self.node.transfer_then_signal(rank(peer), &[piece], word, atomic, deadline)
                } else {
                    self.node.transfer(rank(peer), direction, &[piece], deadline)
                };
                self.ops.push(op);
            }
            Step::Barrier { deadline } => {
                let op = self.node.barrier(deadline.then_some(10));
                self.ops.push(op);
            }
            Step::Am { peer, reply, len } => {
                let bytes = vec![7; usize::from(len) % PAYLOAD_MAX];
                let body = if bytes.is_empty() { AmBody::Short } else { AmBody::Medium(&bytes) };
                let message = AmSend {
                    peer: rank(peer),
                    lane: lane(reply),
                    handler: u32::from(len),
                    args: [1, 2, 3, 4],
                    body,
                };
                let _ = self.node.send_am(&message);
            }
            _ => unreachable!("the caller passes on only what starts something"),
        }
    }

    fn arrives(&mut self, peer: Rank, reply: bool, header: [u64; 7], payload: u16) {
        let event = Event::Message { peer, lane: lane(reply) };
        let payload = vec![0xa5; usize::from(payload) % (PAYLOAD_MAX + 1)];
        self.node.transport().events.push_back((event, Inbox::new(header, payload)));
    }

    fn poll(&mut self) {
        if let Polled::Deliver(delivery) = self.node.poll(&mut self.inbox) {
            assert!(delivery.handler < u64::from(HANDLERS), "a handler beyond the table");
            assert!(delivery.peer < SIZE);
        }
    }

    /// Everything that has come is handled, and nothing waits for peers that are gone.
    fn end(&mut self) {
        while !self.node.transport().events.is_empty() {
            self.poll();
        }
        (0..SIZE).for_each(|peer| self.node.lose(peer));
        assert_eq!(self.node.in_flight(), 0);
        for op in &self.ops {
            assert!(self.node.outcome(*op).is_some(), "an operation without an end");
        }
    }
}

/// Never rank 0: that is the node itself.
fn rank(peer: u8) -> Rank {
    1 + Rank::from(peer) % (SIZE - 1)
}

fn lane(reply: bool) -> Lane {
    if reply { Lane::Reply } else { Lane::Request }
}

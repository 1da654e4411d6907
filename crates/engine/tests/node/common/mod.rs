//! A transport without peers: the test says what arrives, and sees what is sent, read and written.

use std::collections::{BTreeMap, VecDeque};

use engine::node::Polled;
use engine::registration::RegisterError;
use engine::wire::Kind;
use engine::{
    Atomic, Direction, Event, HEAD_WORDS, Header, Inbox, Key, KeyedPiece, Lane, MemId, Node, OpError, OpId,
    PathReason, Piece, Place, Rank, RegId, Registering, SendError, Submit, Transport,
};

/// Bytes of payload a message may have.
pub(crate) const PAYLOAD_MAX: usize = 64;

/// Bytes of a bounce buffer, where the test has any.
pub(crate) const BOUNCE_BYTES: u64 = 2000;

/// Where in the heap the first bounce buffer begins.
const BOUNCE_BUFFERS_AT: u64 = 8;

/// One message that the node sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) peer: Rank,
    pub(crate) lane: Lane,
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
}

/// Where what is left of a copy lies at its peer that cannot be reached any more.
pub(crate) const UNREACHED_AT: u64 = 40_000;

/// The transport.
pub(crate) struct Script {
    pub(crate) inbox: VecDeque<(Event, Inbox)>,
    pub(crate) sent: Vec<Sent>,
    /// Messages that still find room.
    pub(crate) room: usize,
    /// Whether nobody is to try.
    pub(crate) full: bool,
    /// Messages that found none.
    pub(crate) refused: usize,
    /// Peers that another says are gone.
    pub(crate) doubted: Vec<Rank>,
    /// A peer towards which every message fails.
    pub(crate) broken: Option<Rank>,
    /// The process's own memory: `Space`, from 0.
    pub(crate) memory: Vec<u8>,
    pub(crate) reads: Vec<(u64, u64)>,
    pub(crate) writes: Vec<(u64, u64)>,
    /// Words of 8 bytes in the process's own heap, by offset.
    pub(crate) words: BTreeMap<u64, u64>,
    /// What the next atomics and copies become. Whose memory a fault is in, the copy says.
    pub(crate) atomics: VecDeque<Submit>,
    pub(crate) copies: VecDeque<Submit>,
    /// Whether copies by key are under way from when they are started, and not refused.
    pub(crate) copies_keyed: bool,
    /// One-sided operations seen, and those given up.
    pub(crate) started: Vec<OpId>,
    /// Whom the copies among them are with.
    pub(crate) peers: Vec<Rank>,
    pub(crate) abandoned: Abandoned,
    /// Peers given up.
    pub(crate) disconnected: Vec<Rank>,
    /// Whether it registers memory.
    pub(crate) registers: bool,
    /// Where in their spaces heaps lie, if they are registered.
    pub(crate) heaps: Option<u64>,
    /// A peer that is reached without keys.
    pub(crate) near: Option<Rank>,
    /// Whether short puts that signal are to be messages.
    pub(crate) signals_by_message: bool,
    /// How often ranks have given up what they offered, as far as that is seen.
    pub(crate) given_up: BTreeMap<Rank, u32>,
    /// How often this node has.
    pub(crate) gave_up: u32,
    /// Whether peers' bounce buffers are reached.
    pub(crate) reaches_bounce_buffers: bool,
    /// Bounce buffers that can still be made, and the bytes of those that were.
    pub(crate) bounce_buffers: u64,
    bounced: Vec<u8>,
}

/// The one-sided operations that were given up.
#[derive(Default)]
pub(crate) struct Abandoned {
    pub(crate) ops: Vec<OpId>,
    /// Whether they may still write at their peers.
    pub(crate) write: bool,
}

impl Script {
    pub(crate) fn new(memory: usize) -> Script {
        Script {
            inbox: VecDeque::new(),
            sent: Vec::new(),
            room: usize::MAX,
            full: false,
            refused: 0,
            doubted: Vec::new(),
            broken: None,
            memory: vec![0; memory],
            reads: Vec::new(),
            writes: Vec::new(),
            words: BTreeMap::new(),
            atomics: VecDeque::new(),
            copies: VecDeque::new(),
            copies_keyed: false,
            started: Vec::new(),
            peers: Vec::new(),
            abandoned: Abandoned::default(),
            disconnected: Vec::new(),
            registers: false,
            heaps: None,
            near: None,
            signals_by_message: false,
            given_up: BTreeMap::new(),
            gave_up: 0,
            reaches_bounce_buffers: false,
            bounce_buffers: 0,
            bounced: Vec::new(),
        }
    }

    /// Bytes of a bounce buffer.
    pub(crate) fn heap(&self, offset: u64, len: usize) -> &[u8] {
        &self.bounced[(offset - BOUNCE_BUFFERS_AT) as usize..][..len]
    }

    /// Lets a message arrive.
    pub(crate) fn arrive(&mut self, peer: Rank, lane: Lane, header: [u64; Header::WORDS], payload: &[u8]) {
        self.inbox.push_back((Event::Message { peer, lane }, Inbox::new(header, payload.to_vec())));
    }

    fn range(&self, place: Place, len: usize) -> Option<std::ops::Range<usize>> {
        assert_ne!(place.mem, MemId::Control, "the engine's own words are for atomics only");
        let start = usize::try_from(place.offset).ok()?;
        let end = start.checked_add(len)?;
        (place.mem == MemId::Space && end <= self.memory.len()).then_some(start..end)
    }
}

fn fault(place: Place, len: usize) -> OpError {
    OpError::LocalFault { mem: place.mem, addr: place.offset, len: len as u64 }
}

impl Transport for Script {
    fn give_up_offers(&mut self) {
        self.gave_up += 1;
    }

    fn take_like(
        &mut self,
        peer: Rank,
        head: &[u64; HEAD_WORDS],
    ) -> Option<[u64; Header::WORDS - HEAD_WORDS]> {
        let (event, Inbox { header, payload, .. }) = self.inbox.front()?;
        let is_next = *event == Event::Message { peer, lane: Lane::Request } && payload.is_empty();
        let rest = header.strip_prefix(head).filter(|_| is_next)?.try_into().expect("the rest of a header");
        self.inbox.pop_front();
        Some(rest)
    }

    fn offers_given_up(&self, peer: Rank) -> Option<u32> {
        self.given_up.get(&peer).copied()
    }

    fn doubt(&mut self, peer: Rank) {
        self.doubted.push(peer);
    }

    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        assert!(payload.len() <= PAYLOAD_MAX, "{} bytes in one message", payload.len());
        if self.broken == Some(peer) {
            return Err(SendError::Failed(OpError::Protocol { peer, what: "the test says so" }));
        }
        if self.room == 0 {
            self.refused += 1;
            return Err(SendError::Busy);
        }
        self.room -= 1;
        let header = Header::decode(header, payload.len()).expect("a node sends what a node understands");
        self.sent.push(Sent { peer, lane, header, payload: payload.to_vec() });
        Ok(())
    }

    fn has_room(&mut self, _peer: Rank, _lane: Lane) -> bool {
        !self.full
    }

    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let (event, message) = self.inbox.pop_front()?;
        *inbox = message;
        Some(event)
    }

    fn payload_max(&self) -> usize {
        PAYLOAD_MAX
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        let range = self.range(from, into.len()).ok_or(fault(from, into.len()))?;
        self.reads.push((from.offset, into.len() as u64));
        into.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        let range = self.range(to, from.len()).ok_or(fault(to, from.len()))?;
        self.writes.push((to.offset, from.len() as u64));
        self.memory[range].copy_from_slice(from);
        Ok(())
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        if word.mem == MemId::Space {
            let len = atomic.size() as usize;
            let range = self.range(word, len).ok_or(fault(word, len))?;
            if atomic.may_change() {
                self.writes.push((word.offset, atomic.size()));
            }
            return Ok(atomic.apply_to(&mut self.memory[range]).expect("as many bytes as the word has"));
        }
        assert_eq!(word.mem, MemId::Heap, "programs' words lie in heaps, or are granted");
        let found = self.words.get_mut(&word.offset).ok_or(fault(word, 8))?;
        Ok(std::mem::replace(found, atomic.apply(*found)))
    }

    fn signals_by_message(&self, _: Rank) -> bool {
        self.signals_by_message
    }

    fn reaches(&mut self, _: Rank, _: &[Piece]) -> Result<(), PathReason> {
        match self.copies.front() {
            Some(Submit::Unreachable(why)) => {
                let why = *why;
                self.copies.pop_front();
                Err(why)
            }
            Some(_) => Ok(()),
            None => Err(PathReason::Configured),
        }
    }

    fn copy(&mut self, op: OpId, peer: Rank, _: Direction, _: &[Piece]) -> Submit {
        self.started.push(op);
        self.peers.push(peer);
        match self.copies.pop_front().unwrap_or(Submit::Unreachable(PathReason::Configured)) {
            Submit::Failed(OpError::Fault { mem, addr, len, .. }) => {
                Submit::Failed(OpError::Fault { peer, mem, addr, len })
            }
            submit => submit,
        }
    }

    /// Eight bytes of whatever copy it is.
    fn take_unreached(&mut self, _: OpId) -> Option<(Direction, Vec<Piece>)> {
        let place = |offset| Place::new(MemId::Space, offset);
        Some((Direction::Put, vec![Piece::new(place(UNREACHED_AT), place(0), 8)?]))
    }

    fn copy_keyed(&mut self, op: OpId, _: Rank, _: Direction, _: &[KeyedPiece]) -> Submit {
        self.started.push(op);
        if self.copies_keyed { Submit::Pending } else { Submit::Unreachable(PathReason::NotOffered) }
    }

    fn is_keyed(&self, peer: Rank) -> bool {
        self.near != Some(peer)
    }

    fn in_spaces(&mut self, _: Rank, piece: Piece) -> Option<Piece> {
        let base = self.heaps?;
        let found = |place: Place| match place.mem {
            MemId::Space => Some(place),
            MemId::Heap => Some(Place::new(MemId::Space, base + place.offset)),
            MemId::Control | MemId::Grant(_) => None,
        };
        Piece::new(found(piece.remote)?, found(piece.local)?, piece.len)
    }

    fn bounce_bytes(&self) -> u64 {
        BOUNCE_BYTES
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        self.bounce_buffers = self.bounce_buffers.checked_sub(1)?;
        let offset = self.bounced.len() as u64 + BOUNCE_BUFFERS_AT;
        self.bounced.resize(self.bounced.len() + BOUNCE_BYTES as usize, 0);
        Some(offset)
    }

    fn reaches_bounce_buffers(&mut self, _: Rank) -> bool {
        self.reaches_bounce_buffers
    }

    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        let len = len as usize;
        let at = |place: Place| (place.offset - BOUNCE_BUFFERS_AT) as usize;
        if from.mem == MemId::Heap {
            let bytes = self.bounced[at(from)..at(from) + len].to_vec();
            return self.write(to, &bytes);
        }
        let mut bytes = vec![0; len];
        self.read(from, &mut bytes)?;
        self.bounced[at(to)..at(to) + len].copy_from_slice(&bytes);
        Ok(())
    }

    fn atomic(&mut self, op: OpId, _: Rank, _: Place, _: Atomic) -> Submit {
        self.started.push(op);
        self.atomics.pop_front().unwrap_or(Submit::Unreachable(PathReason::NotOffered))
    }

    fn abandon(&mut self, op: OpId) -> bool {
        self.abandoned.ops.push(op);
        self.abandoned.write
    }

    fn disconnect(&mut self, peer: Rank) {
        self.disconnected.push(peer);
    }

    fn register(&mut self, reg: RegId, _: u64, _: u64) -> Registering {
        match self.registers {
            true => Registering::Done(Key(u64::from(reg.index))),
            false => Registering::Failed(RegisterError::Limit),
        }
    }
}

/// Polls until there is nothing to do.
pub(crate) fn poll(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

/// Whom the node has sent a message of that kind.
pub(crate) fn told(node: &mut Node<Script>, kind: Kind) -> Vec<u32> {
    let sent = node.transport().sent.iter().filter(|sent| sent.header.kind == kind);
    sent.map(|sent| sent.peer).collect()
}

//! The engine's transport over shared memory: messages in rings, copies and atomics at once.
//!
//! A ring that nobody polls is *cold*: its producer rings the doorbell after each message, and the owner looks where
//! the bell says. A ring whose sender keeps talking turns *hot* and is polled directly, so that a message costs one
//! cache line. Before a thread sleeps, all rings turn cold again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::{
    Atomic, Direction, Event, Header, Lane, MemId, OpError, OpId, Piece, Place, Rank, SendError, Submit,
};
use vm::checked::CheckedCopy;
use vm::{Attention, Bell, Consumer, Corrupt, Producer, PushError, Words, membarrier};

use super::control::{PAYLOAD_MAX, RING};
use super::copy::{CopyError, copy_pieces, heap_fault};
use super::peers::{Peer, Peers};

/// Rings polled directly, at most: more would make every poll slow.
const HOT_MAX: usize = 8;

/// Messages from one sender, with no sleep in between, that make its rings hot.
const HOT_AFTER: u32 = 2;

/// What there is to do when everything has turned cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cold {
    /// Messages wait: poll again.
    Work,
    /// Requests wait until their sender has consumed replies; nothing will ring when it has.
    Blocked,
    /// Nothing: whatever comes rings the bell.
    Quiet,
}

/// Message rings, mapped heaps and cross-memory attach, as the engine's transport.
pub(crate) struct ShmTransport {
    peers: Arc<Peers>,
    outbound: Vec<Option<Box<Outbound>>>,
    inbound: Vec<Option<Box<Inbound>>>,
    /// Senders whose rings are polled at every call.
    hot: Vec<Rank>,
    /// Senders that rang, to be polled until their rings are empty.
    warm: VecDeque<Rank>,
    bell: Bell<Words>,
    /// Threads of this process that sleep or are about to: while there are any, no ring turns hot.
    sleepers: Arc<AtomicU32>,
    checked: CheckedCopy,
}

struct Outbound {
    peer: Arc<Peer>,
    request: Producer<Words>,
    reply: Producer<Words>,
}

struct Inbound {
    request: Consumer<Words>,
    reply: Consumer<Words>,
    state: Warmth,
    /// Messages since the rings were last turned cold.
    streak: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warmth {
    Cold,
    Warm,
    Hot,
    /// It sent garbage; it is not listened to any more.
    Shunned,
}

/// What polling one sender found.
enum Found {
    Event(Event),
    /// A request is there, and no room for its reply.
    Blocked,
    Nothing,
}

impl ShmTransport {
    pub(crate) fn new(peers: Arc<Peers>, sleepers: Arc<AtomicU32>, checked: CheckedCopy) -> ShmTransport {
        let size = peers.own().size as usize;
        ShmTransport {
            outbound: (0..size).map(|_| None).collect(),
            inbound: (0..size).map(|_| None).collect(),
            hot: Vec::with_capacity(HOT_MAX),
            warm: VecDeque::new(),
            bell: peers.own().control.bell(),
            peers,
            sleepers,
            checked,
        }
    }

    /// Turns every hot ring cold, so that whatever comes from now on rings the bell, and says what is there already.
    pub(crate) fn turn_cold(&mut self) -> Cold {
        self.take_rung();
        if !self.hot.is_empty() {
            for rank in &self.hot {
                if let Some(inbound) = &mut self.inbound[*rank as usize] {
                    inbound.request.set_attention(Attention::Doorbell);
                    inbound.reply.set_attention(Attention::Doorbell);
                }
            }
            membarrier::heavy_fence();
            while let Some(rank) = self.hot.pop() {
                self.warm_up(rank);
            }
        }
        let mut found = Cold::Quiet;
        for rank in &self.warm {
            let Some(inbound) = &mut self.inbound[*rank as usize] else { continue };
            inbound.streak = 0;
            if inbound.reply.ready() {
                return Cold::Work;
            }
            if inbound.request.ready() {
                let room =
                    self.outbound[*rank as usize].as_mut().is_none_or(|out| out.reply.room(PAYLOAD_MAX));
                if room {
                    return Cold::Work;
                }
                found = Cold::Blocked;
            }
        }
        found
    }

    /// Puts everyone who rang on the list of senders to poll.
    fn take_rung(&mut self) {
        if !self.bell.has_pending() {
            return;
        }
        let (inbound, warm, peers) = (&mut self.inbound, &mut self.warm, &self.peers);
        self.bell.take_pending(|sender| warm_up(inbound, warm, peers, sender as Rank));
    }

    fn warm_up(&mut self, rank: Rank) {
        if let Some(inbound) = self.inbound[rank as usize].as_mut().filter(|i| i.state == Warmth::Hot) {
            inbound.state = Warmth::Cold;
        }
        warm_up(&mut self.inbound, &mut self.warm, &self.peers, rank);
    }

    fn poll_hot(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        for index in 0..self.hot.len() {
            if let Found::Event(event) = self.poll_sender(self.hot[index], payload) {
                return Some(event);
            }
        }
        None
    }

    fn poll_warm(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        for _ in 0..self.warm.len() {
            let rank = self.warm.pop_front()?;
            match self.poll_sender(rank, payload) {
                Found::Event(event) => {
                    if !self.heat(rank) {
                        self.warm.push_back(rank);
                    }
                    return Some(event);
                }
                Found::Blocked => self.warm.push_back(rank),
                Found::Nothing => {
                    if let Some(inbound) = self.inbound[rank as usize].as_mut() {
                        inbound.cool();
                    }
                }
            }
        }
        None
    }

    /// Makes a sender's rings hot if that pays. Returns whether they are.
    fn heat(&mut self, rank: Rank) -> bool {
        let Some(inbound) = &mut self.inbound[rank as usize] else { return false };
        let pays = inbound.streak >= HOT_AFTER && self.sleepers.load(Ordering::SeqCst) == 0;
        if !pays || self.hot.len() >= HOT_MAX || inbound.state != Warmth::Warm {
            return false;
        }
        inbound.state = Warmth::Hot;
        inbound.request.set_attention(Attention::Polled);
        inbound.reply.set_attention(Attention::Polled);
        self.hot.push(rank);
        true
    }

    #[inline]
    fn poll_sender(&mut self, rank: Rank, payload: &mut Vec<u8>) -> Found {
        let Some(inbound) = &mut self.inbound[rank as usize] else { return Found::Nothing };
        if inbound.state == Warmth::Shunned {
            return Found::Nothing;
        }
        let mut header = [0; Header::WORDS];
        match inbound.reply.pop(&mut header, payload) {
            Ok(false) => {}
            Ok(true) => {
                inbound.streak += 1;
                return Found::Event(Event::Message { peer: rank, lane: Lane::Reply, header });
            }
            Err(corrupt) => return self.shun(rank, corrupt),
        }
        if !inbound.request.ready() {
            return Found::Nothing;
        }
        let room = match self.outbound(rank) {
            Ok(outbound) => outbound.reply.room(PAYLOAD_MAX),
            // Whoever cannot be answered is heard all the same: the answer then fails.
            Err(_) => true,
        };
        if !room {
            return Found::Blocked;
        }
        let Some(inbound) = &mut self.inbound[rank as usize] else { return Found::Nothing };
        match inbound.request.pop(&mut header, payload) {
            Ok(true) => {
                inbound.streak += 1;
                Found::Event(Event::Message { peer: rank, lane: Lane::Request, header })
            }
            Ok(false) => Found::Nothing,
            Err(corrupt) => self.shun(rank, corrupt),
        }
    }

    #[cold]
    fn shun(&mut self, peer: Rank, corrupt: Corrupt) -> Found {
        tracing::warn!(peer, %corrupt, "the peer's ring is garbled; it is cut off");
        if let Some(inbound) = &mut self.inbound[peer as usize] {
            inbound.state = Warmth::Shunned;
        }
        self.hot.retain(|rank| *rank != peer);
        self.peers.lose(peer);
        Found::Event(Event::Garbled { peer })
    }

    fn outbound(&mut self, rank: Rank) -> Result<&mut Outbound, OpError> {
        let slot = self
            .outbound
            .get_mut(rank as usize)
            .ok_or(OpError::Protocol { peer: rank, what: "no such rank" })?;
        if slot.is_none() {
            let peer = self.peers.get(rank, None).map_err(|_| OpError::PeerLost { peer: rank })?;
            *slot = Some(Box::new(Outbound::new(Arc::clone(peer), self.peers.own().rank)));
        }
        Ok(slot.as_mut().expect("filled just above"))
    }
}

impl Outbound {
    fn new(peer: Arc<Peer>, own_rank: Rank) -> Outbound {
        let producer = |lane| {
            Producer::new(peer.control.ring(own_rank, lane), RING, peer.fence)
                .expect("the control segment keeps exactly this layout's words")
        };
        Outbound { request: producer(Lane::Request), reply: producer(Lane::Reply), peer }
    }

    fn lane(&mut self, lane: Lane) -> &mut Producer<Words> {
        match lane {
            Lane::Request => &mut self.request,
            Lane::Reply => &mut self.reply,
        }
    }
}

impl Inbound {
    fn new(peers: &Peers, sender: Rank) -> Inbound {
        let consumer = |lane| {
            Consumer::new(peers.own().control.ring(sender, lane), RING)
                .expect("the control segment keeps exactly this layout's words")
        };
        Inbound {
            request: consumer(Lane::Request),
            reply: consumer(Lane::Reply),
            state: Warmth::Cold,
            streak: 0,
        }
    }

    fn cool(&mut self) {
        self.request.flush_credits();
        self.reply.flush_credits();
        if self.state == Warmth::Warm {
            self.state = Warmth::Cold;
        }
    }
}

fn warm_up(inbound: &mut [Option<Box<Inbound>>], warm: &mut VecDeque<Rank>, peers: &Peers, rank: Rank) {
    let Some(slot) = inbound.get_mut(rank as usize) else { return };
    let sender = slot.get_or_insert_with(|| Box::new(Inbound::new(peers, rank)));
    if sender.state == Warmth::Cold {
        sender.state = Warmth::Warm;
        warm.push_back(rank);
    }
}

impl engine::Transport for ShmTransport {
    #[inline]
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let own_rank = self.peers.own().rank;
        let outbound = self.outbound(peer).map_err(SendError::Failed)?;
        match outbound.lane(lane).push(header, payload) {
            Ok(pushed) => {
                if pushed.doorbell {
                    outbound.peer.bell.ring(own_rank as usize);
                }
                Ok(())
            }
            Err(PushError::Full) => Err(SendError::Busy),
            Err(PushError::TooLarge { .. }) => {
                Err(SendError::Failed(OpError::Protocol { peer, what: "a message too long for its ring" }))
            }
            Err(PushError::Corrupt(_)) => {
                Err(SendError::Failed(OpError::Protocol { peer, what: "a ring whose reader counts wrong" }))
            }
        }
    }

    #[inline]
    fn poll(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        if let Some(event) = self.poll_hot(payload) {
            return Some(event);
        }
        self.take_rung();
        if self.warm.is_empty() { None } else { self.poll_warm(payload) }
    }

    fn payload_max(&self) -> usize {
        PAYLOAD_MAX
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        let len = into.len() as u64;
        let fault = OpError::LocalFault { mem: from.mem, addr: from.offset, len };
        match from.mem {
            MemId::Space => self.checked.read(from.offset, into).map_err(|_| fault),
            MemId::Heap => self.own_heap(from, len)?.copy_out(from.offset, into).map_err(|_| fault),
            MemId::Control => Err(fault),
        }
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        let len = from.len() as u64;
        let fault = OpError::LocalFault { mem: to.mem, addr: to.offset, len };
        match to.mem {
            // SAFETY: the place is either the local end of a get of this process, which whoever started it keeps
            // valid and to itself until the get ends; or a peer's choice, which may put anywhere by what joining a
            // job means (`Node::open` says so), as it may by cross-memory attach.
            MemId::Space => unsafe { self.checked.write(to.offset, from) }.map_err(|_| fault),
            MemId::Heap => self.own_heap(to, len)?.copy_in(to.offset, from).map_err(|_| fault),
            MemId::Control => Err(fault),
        }
    }

    fn copy(&mut self, _op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        let Ok(known) = self.peers.get(peer, None) else {
            return Submit::Failed(OpError::PeerLost { peer });
        };
        // SAFETY: the engine hands on the pieces that it was given; this library gives it only pieces of a
        // `PieceList`, or of buffers that it keeps until the operation has ended.
        match unsafe { copy_pieces(known, direction, pieces) } {
            Ok(_) => Submit::Done(0),
            Err(CopyError::Unreachable(why)) => Submit::Unreachable(why),
            Err(CopyError::Failed(error)) => Submit::Failed(error),
        }
    }

    fn atomic(&mut self, _op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        // The barrier's counter stays readable when its keeper is gone: it is mapped.
        let known = match self.peers.known(peer) {
            Some(known) => known,
            None => match self.peers.get(peer, None) {
                Ok(known) => known,
                Err(_) => return Submit::Failed(OpError::PeerLost { peer }),
            },
        };
        let done = match word.mem {
            MemId::Control => Ok(apply(known.control.barrier(), atomic)),
            MemId::Heap => atomic_in_heap(known, word.offset, atomic),
            MemId::Space => Err(OpError::Fault { peer, mem: word.mem, addr: word.offset, len: 8 }),
        };
        done.map_or_else(Submit::Failed, Submit::Done)
    }
}

impl ShmTransport {
    fn own_heap(&self, place: Place, len: u64) -> Result<&vm::SharedMemory, OpError> {
        let fault = OpError::LocalFault { mem: place.mem, addr: place.offset, len };
        let end = place.offset.checked_add(len).ok_or(fault)?;
        self.peers.itself().heap_up_to(end).ok_or(fault)
    }
}

/// An atomic on an aligned word of a peer's heap.
#[inline]
pub(crate) fn atomic_in_heap(peer: &Peer, offset: u64, atomic: Atomic) -> Result<u64, OpError> {
    let word = offset
        .checked_add(8)
        .and_then(|end| peer.heap_up_to(end))
        .and_then(|heap| heap.atomic_u64(offset).ok())
        .ok_or_else(|| heap_fault(peer, offset, 8))?;
    Ok(apply(word, atomic))
}

#[inline]
fn apply(word: &std::sync::atomic::AtomicU64, atomic: Atomic) -> u64 {
    match atomic {
        Atomic::FetchAdd(value) => word.fetch_add(value, Ordering::AcqRel),
        Atomic::CompareSwap { expected, new } => {
            match word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) | Err(old) => old,
            }
        }
    }
}

//! The transport that a simulated node runs over.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{
    Atomic, Counters, Deregistering, Direction, Event, Header, Inbox, KeyedPiece, Lane, Mechanism, MemId,
    Nanos, OpError, OpId, Operation, PathReason, Piece, Place, Rank, RegId, Registering, SendError, Submit,
    Transport,
};

use crate::space::Access;
use crate::world::World;

/// What a card reaches without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Nothing: puts and gets go by message, or by key, and there are no atomics.
    Nothing,
    /// Words, by atomics: puts and gets go by message, or by key.
    Words,
    /// All of a peer's memory, by the initiator's processor and at once, as where peers share a host.
    AtOnce,
    /// All of a peer's memory (Quadrics): nothing is ever registered.
    Everything,
    /// A peer's heap, which was registered when it was made. Private memory goes by key, or by message.
    Heap,
    /// The same, and long transfers of private memory by message go through bounce buffers of the heap.
    Stages,
}

/// Payloads that a bounce buffer holds, all but a few words: where a transfer is cut that fails, storms may
/// find what was put before on one side and nothing on the other, but no half of a word.
const BOUNCE_PAYLOADS: u64 = 5;
/// Bounce buffers of a process, at most.
const BOUNCE_BUFFERS_MAX: u32 = 3;

/// One simulated process's way to the others.
#[derive(Debug)]
pub struct SimTransport {
    rank: Rank,
    reach: Reach,
    payload_max: usize,
    world: Rc<RefCell<World>>,
    counters: Counters,
    bounce_buffers: u32,
}

impl SimTransport {
    pub(crate) fn new(rank: Rank, reach: Reach, world: Rc<RefCell<World>>) -> SimTransport {
        let payload_max = world.borrow().costs.payload_max_bytes;
        SimTransport { rank, reach, payload_max, world, counters: Counters::default(), bounce_buffers: 0 }
    }

    /// The copies without a key that were made, which no node counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Has nothing come of an operation that was just started, nor its end be told: for tests that need an
    /// operation's name for another.
    pub fn withdraw(&mut self, op: OpId) {
        self.world.borrow_mut().withdraw(op, self.rank);
    }
}

impl Transport for SimTransport {
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.world.borrow_mut().hand_over(self.rank, peer, lane, header, payload)
    }

    fn has_room(&mut self, peer: Rank, lane: Lane) -> bool {
        self.world.borrow_mut().has_room(self.rank, peer, lane)
    }

    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let mut world = self.world.borrow_mut();
        let told = world.next_report(self.rank).or_else(|| world.receive(self.rank, inbox));
        world.after_poll(self.rank, told.as_ref());
        told
    }

    fn payload_max(&self) -> usize {
        self.payload_max
    }

    fn now(&self) -> Option<Nanos> {
        Some(self.world.borrow().time_of(self.rank))
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        let len = into.len() as u64;
        let read = self.world.borrow().process(self.rank).read(from, into);
        read.map_err(|addr| OpError::LocalFault { mem: from.mem, addr, len })
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        let mut world = self.world.borrow_mut();
        let len = from.len() as u64;
        let work = world.costs.copy_ns(len);
        world.spend(self.rank, work);
        let written = world.process(self.rank).write(to, from);
        written.map_err(|addr| OpError::LocalFault { mem: to.mem, addr, len })
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        let changed = self.world.borrow().process(self.rank).apply_own(word, atomic);
        changed.ok_or(OpError::LocalFault { mem: word.mem, addr: word.offset, len: atomic.size() })
    }

    fn reaches(&mut self, _peer: Rank, pieces: &[Piece]) -> Result<(), PathReason> {
        let has_private = pieces.iter().any(|piece| piece.remote.mem == MemId::Space);
        match self.reach {
            _ if pieces.iter().any(|piece| piece.remote.in_grant().is_some()) => Err(PathReason::Granted),
            Reach::AtOnce | Reach::Everything => Ok(()),
            Reach::Heap | Reach::Stages if !has_private => Ok(()),
            _ => Err(PathReason::NotOffered),
        }
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        let operation = match direction {
            Direction::Put => Operation::Put,
            Direction::Get => Operation::Get,
        };
        self.counters.add(operation, Mechanism::Mapped, pieces.iter().map(|piece| piece.len).sum());
        if self.reach == Reach::AtOnce {
            return self.world.borrow_mut().copy_at_once(self.rank, peer, direction, pieces);
        }
        self.world.borrow_mut().start_copy(op, self.rank, peer, direction, pieces, false);
        Submit::Pending
    }

    fn bounce_bytes(&self) -> u64 {
        self.payload_max as u64 * BOUNCE_PAYLOADS - 24
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        if self.bounce_buffers == BOUNCE_BUFFERS_MAX {
            return None;
        }
        self.bounce_buffers += 1;
        let (mut world, len) = (self.world.borrow_mut(), self.bounce_bytes());
        Some(world.process_mut(self.rank).memory_mut(MemId::Heap).map(len, Access::Full))
    }

    fn reaches_bounce_buffers(&mut self, _peer: Rank) -> bool {
        self.reach == Reach::Stages
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        self.world.borrow_mut().start_copy(op, self.rank, peer, direction, &[piece], true);
        Submit::Pending
    }

    fn abandon(&mut self, op: OpId) -> bool {
        self.world.borrow_mut().abandon(op, self.rank)
    }

    fn disconnect(&mut self, peer: Rank) {
        let mut world = self.world.borrow_mut();
        // The news goes with the last frame.
        world.send_frame(self.rank, peer);
        world.disconnect(self.rank, peer);
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        match self.reach {
            Reach::Nothing => Submit::Unreachable(PathReason::NotOffered),
            Reach::AtOnce => self.world.borrow_mut().atomic_at_once(self.rank, peer, word, atomic),
            _ => {
                self.world.borrow_mut().start_atomic(op, self.rank, peer, word, atomic);
                Submit::Pending
            }
        }
    }

    fn register(&mut self, reg: RegId, offset: u64, len: u64) -> Registering {
        self.world.borrow_mut().register(self.rank, reg, offset, len)
    }

    fn deregister(&mut self, reg: RegId) -> Deregistering {
        self.world.borrow_mut().deregister(self.rank, reg)
    }

    fn unregistered_max(&self, _: Direction) -> u64 {
        self.world.borrow().costs.unregistered_max_bytes
    }

    fn copy_keyed(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[KeyedPiece]) -> Submit {
        self.world.borrow_mut().start_keyed(op, self.rank, peer, direction, pieces);
        Submit::Pending
    }
}

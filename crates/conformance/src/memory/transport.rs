//! The transport that a node of a [`super::MemoryCluster`] runs over.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{
    Atomic, Counters, Direction, Event, Header, Inbox, Lane, Mechanism, MemId, OpError, OpId, Operation,
    Piece, Place, Rank, SendError, Submit, Transport, Why,
};

use super::space::Access;
use super::world::World;
use super::{OneSided, Settings};

/// One rank's way to the others.
pub struct MemoryTransport {
    rank: Rank,
    settings: Settings,
    world: Rc<RefCell<World>>,
    counters: Counters,
    bounce_buffers: u32,
}

/// Stages of a process, at most.
const BOUNCE_BUFFERS_MAX: u32 = 3;

impl MemoryTransport {
    pub(super) fn new(rank: Rank, settings: Settings, world: Rc<RefCell<World>>) -> MemoryTransport {
        MemoryTransport { rank, settings, world, counters: Counters::default(), bounce_buffers: 0 }
    }

    /// The one-sided copies that were made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn fault(place: Place, len: usize) -> OpError {
        OpError::LocalFault { mem: place.mem, addr: place.offset, len: len as u64 }
    }

    fn count(&mut self, direction: Direction, pieces: &[Piece]) {
        let operation = match direction {
            Direction::Put => Operation::Put,
            Direction::Get => Operation::Get,
        };
        self.counters.add(operation, Mechanism::Mapped, pieces.iter().map(|piece| piece.len).sum());
    }

    fn start(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        if matches!(self.settings.copies, OneSided::Pending | OneSided::Staged) {
            self.world.borrow_mut().start_copy(op, self.rank, peer, direction, pieces);
            return Submit::Pending;
        }
        self.copy_now(peer, direction, pieces)
    }

    fn copy_now(&mut self, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        let mut world = self.world.borrow_mut();
        for piece in pieces.iter().filter(|piece| piece.len > 0) {
            if let Err(error) = world.copy(self.rank, peer, direction, piece) {
                return Submit::Failed(error);
            }
        }
        Submit::Done(0)
    }
}

impl Transport for MemoryTransport {
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.world.borrow_mut().send(self.rank, peer, lane, header, payload)
    }

    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let mut world = self.world.borrow_mut();
        world.receive(self.rank, inbox).or_else(|| world.completed(self.rank))
    }

    fn payload_max(&self) -> usize {
        self.settings.payload_max
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        let mut world = self.world.borrow_mut();
        let bytes = world.space(self.rank).readable(from, into.len());
        into.copy_from_slice(bytes.ok_or(Self::fault(from, into.len()))?);
        Ok(())
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        let mut world = self.world.borrow_mut();
        let bytes = world.space(self.rank).writable(to, from.len());
        bytes.ok_or(Self::fault(to, from.len()))?.copy_from_slice(from);
        Ok(())
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        self.world.borrow_mut().apply(self.rank, word, atomic)
    }

    fn reaches(&mut self, _peer: Rank, pieces: &[Piece]) -> Result<(), Why> {
        let private = pieces.iter().any(|piece| piece.remote.mem == MemId::Space);
        match self.settings.copies {
            OneSided::Off => Err(Why::NotOffered),
            OneSided::HeapOnly | OneSided::Staged if private => Err(Why::Configured),
            _ => Ok(()),
        }
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        if self.world.borrow().is_dead(peer) {
            return Submit::Failed(OpError::PeerLost { peer });
        }
        self.count(direction, pieces);
        self.start(op, peer, direction, pieces)
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        if self.world.borrow().is_dead(peer) {
            return Submit::Failed(OpError::PeerLost { peer });
        }
        self.start(op, peer, direction, &[piece])
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        let mut world = self.world.borrow_mut();
        match self.settings.atomics {
            OneSided::Off => Submit::Unreachable(Why::NotOffered),
            _ if world.is_dead(peer) => Submit::Failed(OpError::PeerLost { peer }),
            OneSided::Pending | OneSided::Staged => {
                world.start_atomic(op, self.rank, peer, word, atomic);
                Submit::Pending
            }
            OneSided::HeapOnly | OneSided::Immediate => match world.apply(peer, word, atomic) {
                Ok(old) => Submit::Done(old),
                Err(error) => Submit::Failed(error),
            },
        }
    }

    fn bounce_bytes(&self) -> u64 {
        self.settings.payload_max as u64 * 5 - 7
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        if self.bounce_buffers == BOUNCE_BUFFERS_MAX {
            return None;
        }
        self.bounce_buffers += 1;
        let len = self.bounce_bytes() as usize;
        Some(self.world.borrow_mut().space(self.rank).map(MemId::Heap, len, Access::Full).offset)
    }

    fn reaches_bounce_buffers(&mut self, _peer: Rank) -> bool {
        matches!(self.settings.copies, OneSided::HeapOnly | OneSided::Staged)
    }

    fn abandon(&mut self, op: OpId) {
        self.world.borrow_mut().abandon(op, self.rank);
    }
}

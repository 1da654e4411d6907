//! The engine's transport.

use engine::registration::RegisterError;
use engine::{
    Atomic, Copied, Deregistering, Direction, Event, Header, Inbox, Key, KeyedPiece, Lane, Nanos, OpError,
    OpId, PathReason, Piece, Place, Rank, RegId, Registering, SendError, Submit, Transport,
};

use fabric::Region;

use super::buffers::{PAYLOAD_MAX, Size};
use super::endpoint::Looked;
use super::transport::{DeferredClose, OTHER_POLL, OfiTransport, Registered};
use crate::transport::mr_invalidation::MayKeep;
use crate::transport::shm::own::BOUNCE_BYTES;

/// Messages handed on before the provider gets its turn.
const RUN_MAX: u32 = 16;

impl OfiTransport {
    #[inline]
    fn next(&mut self, inbox: &mut Inbox) -> Option<Event> {
        if self.events.is_empty() && self.ready.is_empty() {
            return None;
        }
        self.events.pop_front().or_else(|| self.hand_on(inbox))
    }

    /// Whether a poll has anything to do but ask the provider once.
    #[inline(always)]
    fn has_chores(&self) -> bool {
        let waiting = self.events.len() | self.ready.len() | self.chores.len();
        (waiting | self.endpoint_pool.chores()) != 0 || self.looks_left == 0
    }
}

impl Transport for OfiTransport {
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.send_engine(peer, lane, header, payload)
    }

    fn has_room(&mut self, peer: Rank, lane: Lane) -> bool {
        self.links.get_mut(peer).is_none_or(|link| link.outgoing(lane).has_room(PAYLOAD_MAX))
    }

    #[inline(always)]
    fn poll_copied(&mut self) -> Copied {
        if self.has_chores() {
            return Copied::Unknown;
        }
        self.looks_left -= 1;
        self.run = 0;
        match self.endpoint.look() {
            Looked::Nothing => {
                self.listened = true;
                self.looks_left = self.looks_left.saturating_sub(OTHER_POLL - 1);
                return Copied::Nothing;
            }
            Looked::Small(slot) => {
                if let Some(op) = self.on_small(slot) {
                    return Copied::Done(op);
                }
            }
            Looked::Ended(ended) => self.on_ended(ended),
            Looked::Other => {}
        }
        Copied::Unknown
    }

    #[inline(never)]
    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        self.looks_left = self.looks_left.saturating_sub(OTHER_POLL);
        if self.run < RUN_MAX
            && let Some(event) = self.next(inbox)
        {
            return Some(event);
        }
        self.progress();
        self.next(inbox)
    }

    fn payload_max(&self) -> usize {
        PAYLOAD_MAX
    }

    fn now(&self) -> Option<Nanos> {
        Some(Nanos::try_from(self.made_at.elapsed().as_nanos()).unwrap_or(Nanos::MAX))
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        self.own.read(from, into)
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        self.own.write(to, from)
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        self.own.change(word, atomic)
    }

    fn signals_by_message(&self, _: Rank) -> bool {
        true
    }

    fn reaches(&mut self, peer: Rank, pieces: &[Piece]) -> Result<(), PathReason> {
        let mut keyed = std::mem::take(&mut self.keyed);
        let found = self.by_heap_key(peer, pieces, &mut keyed);
        self.keyed = keyed;
        found.ok_or(PathReason::Network)
    }

    fn direct_min(&self, _: Rank) -> u64 {
        self.copies.heap_min
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        self.start_heap_copy(op, peer, direction, pieces, true)
    }

    fn bounce_bytes(&self) -> u64 {
        BOUNCE_BYTES
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        self.own.make_bounce_buffer()
    }

    fn reaches_bounce_buffers(&mut self, peer: Rank) -> bool {
        self.knows_heap(peer)
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        self.start_heap_copy(op, peer, direction, &[piece], false)
    }

    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        self.own.copy(from, to, len)
    }

    fn abandon(&mut self, op: OpId) -> bool {
        self.abandon_copy(op) || self.abandon_small(op) || self.abandon_atomic(op)
    }

    fn doubt(&mut self, peer: Rank) {
        // With a link this process finds out; without one it takes that word.
        if self.links.has(peer) {
            self.find_out(peer);
        } else {
            self.lose(peer);
        }
    }

    fn suspect(&mut self, peer: Rank) {
        self.find_out(peer);
    }

    fn disconnect(&mut self, peer: Rank) {
        self.give_up(peer);
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        self.start_atomic(op, peer, word, atomic)
    }

    fn register(&mut self, reg: RegId, offset: u64, len: u64) -> Registering {
        let held = self.hold(offset, len);
        let mut may_keep = MayKeep::WhileItIs;
        let registered = match &held {
            Some(part) => self.endpoint.register_mapped(self.own.itself().heap(), part.clone()),
            None => self.memory.may_keep(offset, len).and_then(|may| {
                may_keep = may;
                self.endpoint.register(offset, len)
            }),
        };
        match registered {
            Ok(Region { id, desc, key, .. }) => {
                self.regions.insert(reg, Registered { id, desc, held });
                match may_keep {
                    MayKeep::WhileItIs => Registering::Done(Key(key)),
                    MayKeep::ForOne => Registering::Once(Key(key)),
                }
            }
            Err(error) => {
                self.let_go(held);
                // Once: what is refused is tried again now and then, and `failures` counts it.
                if error == RegisterError::Limit && !std::mem::replace(&mut self.limit_told, true) {
                    tracing::warn!(
                        len,
                        "no more memory can be registered (RLIMIT_MEMLOCK, `ulimit -l`, mostly): what needs more goes by message"
                    );
                }
                Registering::Failed(error)
            }
        }
    }

    fn deregister(&mut self, reg: RegId) -> Deregistering {
        let Some(Registered { id, held, .. }) = self.regions.remove(&reg) else { return Deregistering::Done };
        if self.close_region(DeferredClose { id, reg: Some(reg), held }) {
            Deregistering::Done
        } else {
            Deregistering::Refused
        }
    }

    fn in_spaces(&mut self, peer: Rank, piece: Piece) -> Option<Piece> {
        self.in_registered_heaps(peer, piece)
    }

    #[inline]
    fn unregistered_max(&self, _direction: Direction) -> u64 {
        if self.copies.registers_local { Size::Small.bytes() as u64 } else { u64::MAX }
    }

    #[inline(always)]
    fn copy_keyed(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[KeyedPiece]) -> Submit {
        self.start_copy(op, peer, direction, pieces)
    }
}

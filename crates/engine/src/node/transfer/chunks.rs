//! Transfers by messages: cut into chunks, sent at one end and served at the other.
//!
//! A transfer is cut into chunks that fit a message and stay inside one bucket of the target. A window of
//! them is under way at a time; each answer says how its chunk went. The answers carry the chunk's place in
//! the window, and are believed only for chunks that are really under way with that very peer.

use super::state::{MessageTransfer, OnComplete};
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::node::operations::settling::Awaited;
use crate::op_id::{OpId, OpKey};
use crate::span::BucketSize;
use crate::wire::{Chunk, ChunkDone, Message, Signal, Status, chunk_result};
use crate::{
    Atomic, Direction, Lane, Mechanism, MemId, OpError, Operation, Piece, Place, Rank, SendError, Transport,
};

/// Chunks of private memory stay inside buckets of this size, so that a fault names the bucket: 8 KiB. Heaps
/// have no holes.
const CHUNK_BUCKET: BucketSize = bucket(13);
const HEAP_BUCKET: BucketSize = bucket(40);

const fn bucket(shift: u32) -> BucketSize {
    match BucketSize::new(shift) {
        Some(size) => size,
        None => unreachable!(),
    }
}

impl<T: Transport> Node<T> {
    /// A transfer by messages that has not begun.
    pub(in crate::node) fn new_transfer(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        on_complete: Option<OnComplete>,
    ) -> Box<MessageTransfer> {
        let spare = self.spare_transfers.pop();
        let mut transfer =
            spare.unwrap_or_else(|| Box::new(MessageTransfer::new(peer, direction, Vec::new(), None)));
        let mut rest = std::mem::take(&mut transfer.rest);
        rest.clear();
        rest.extend(pieces.iter().rev().filter(|piece| piece.len > 0));
        *transfer = MessageTransfer::new(peer, direction, rest, on_complete);
        let is_long = |piece: &Piece| self.is_for_bounce(peer, *piece);
        if pieces.iter().any(is_long) {
            transfer.bounces_max = self.bounce_pool.bounces_for(peer);
        }
        transfer
    }

    /// A transfer by messages that is not over.
    pub(in crate::node) fn transfer_under_way(&mut self, key: OpKey) -> Option<&mut MessageTransfer> {
        match &mut self.ops.under_way(key)?.kind {
            OpKind::ByMessage(transfer) => Some(transfer),
            _ => None,
        }
    }

    /// Sends as many chunks as there is room for, and ends the transfer when nothing is left of it. Returns
    /// whether anything moved.
    pub(in crate::node) fn pump(&mut self, key: OpKey) -> bool {
        let mut moved = false;
        loop {
            let Some(op) = self.ops.under_way(key) else { return moved };
            let OpKind::ByMessage(transfer) = &mut op.kind else { return moved };
            if transfer.is_over() {
                self.end_transfer(key);
                return true;
            }
            let free = transfer.window.iter().position(Option::is_none);
            let next = transfer.rest.last().filter(|_| transfer.error.is_none());
            let (Some(slot), Some(piece)) = (free, next) else { return moved };
            let (piece, peer, bounces_max) = (*piece, transfer.peer, transfer.bounces_max);
            if bounces_max > 0 && self.is_for_bounce(peer, piece) {
                if !self.add_bounce(key) {
                    return moved;
                }
                moved = true;
                continue;
            }
            let (chunk, left) = self.cut_chunk(piece);
            let Some(transfer) = self.transfer_under_way(key) else { return moved };
            let direction = transfer.direction;
            let signal = if left.is_none() { transfer.signal_now() } else { None };
            let sent = self.send_chunk(key, peer, direction, slot, chunk, signal);
            let Some(transfer) = self.transfer_under_way(key) else { return moved };
            match sent {
                Ok(signalled) => {
                    transfer.window[slot] = Some(chunk);
                    transfer.rest.pop();
                    transfer.rest.extend(left);
                    transfer.signalled = signalled.then_some(0);
                    moved = true;
                }
                Err(SendError::Failed(error)) => transfer.error = Some(error),
                Err(SendError::Busy) => {
                    if !std::mem::replace(&mut transfer.stalled, true) {
                        self.mail.stall(peer, key);
                    }
                    return moved;
                }
            }
        }
    }

    /// The first chunk of a piece, and what is left of it.
    pub(super) fn cut_chunk(&self, piece: Piece) -> (Piece, Option<Piece>) {
        let bucket = if piece.remote.mem == MemId::Heap { HEAP_BUCKET } else { CHUNK_BUCKET };
        piece.cut(self.core.transport.payload_max() as u64, bucket)
    }

    /// Sends a chunk, and with it how a word is to change after it, if that fits in. Returns whether it did.
    fn send_chunk(
        &mut self,
        key: OpKey,
        peer: Rank,
        direction: Direction,
        slot: usize,
        chunk: Piece,
        signal: Option<(Place, Atomic)>,
    ) -> Result<bool, SendError> {
        // Messages that wait for the lane go before: they may be about the same memory.
        if self.mail.is_taken(peer, Lane::Request) {
            return Err(SendError::Busy);
        }
        let part = Chunk { op: OpId::of(key), slot: slot as u64, at: Some(chunk.remote) };
        let signal = signal.filter(|(_, atomic)| atomic.fits_signal());
        let (message, len) = match (direction, signal) {
            (Direction::Get, _) => (Message::Get(part, chunk.len as u32), 0),
            (Direction::Put, None) => (Message::Put(part), chunk.len as usize),
            (Direction::Put, Some((word, atomic))) => {
                let signal = Signal { word: word.offset, atomic: Some(atomic) };
                (Message::PutSignal(part, signal), chunk.len as usize)
            }
        };
        if len > 0 {
            self.core
                .transport
                .read(chunk.local, &mut self.core.scratch[..len])
                .map_err(SendError::Failed)?;
        }
        self.core.transport.send(peer, Lane::Request, &message.encode(len), &self.core.scratch[..len])?;
        Ok(signal.is_some())
    }

    /// Takes the answer to a chunk.
    #[inline(always)]
    pub(in crate::node) fn on_chunk(&mut self, peer: Rank, done: &ChunkDone, payload: &[u8]) {
        let key = done.op.key();
        // Several tokens lead to one place in the table; only one of them was sent.
        if OpId::of(key) != done.op || self.ops.get(key).is_none_or(|op| op.outcome.is_some()) {
            return self.on_late_chunk(peer, key, done);
        }
        let Some(chunk) = self.chunk_under_way(key, peer, done) else {
            self.core.counters.malformed += 1;
            return;
        };
        let mut result = chunk_result(done.status, peer, done.direction, chunk.remote, chunk.len);
        if done.direction == Direction::Get && result.is_ok() {
            result = if payload.len() as u64 == chunk.len {
                self.core.transport.write(chunk.local, payload)
            } else {
                Err(OpError::Protocol { peer, what: "an answer of the wrong length" })
            };
        }
        if let OpKind::ByMessage(transfer) = &mut self.ops[key].kind {
            if let (Some(_), Some(OnComplete::Signal(word, atomic))) =
                (transfer.signalled, transfer.on_complete)
            {
                let len = atomic.size();
                transfer.signalled = Some(done.old);
                if done.status == Some(Status::NoWord) {
                    result = Err(OpError::Fault { peer, mem: word.mem, addr: word.offset, len });
                }
                if matches!(done.status, Some(Status::Ok | Status::NoWord)) {
                    self.core.counters.add(Operation::Atomic, Mechanism::Message, len);
                }
            }
            if let Err(error) = result {
                transfer.error.get_or_insert(error);
            }
        }
        self.pump(key);
    }

    /// Takes the answer to a chunk of an operation that is over. That it is late is no offence.
    #[cold]
    fn on_late_chunk(&mut self, peer: Rank, key: OpKey, done: &ChunkDone) {
        if let Ok(slot) = usize::try_from(done.slot)
            && OpId::of(key) == done.op
        {
            self.ops.has_settled(Awaited::Chunk(key, slot), Some(peer));
        }
    }

    /// Lets go of a transfer that ends before its time. Adds what can still write of it to `awaited`.
    pub(in crate::node) fn abandon_transfer(&mut self, key: OpKey, awaited: &mut Vec<Awaited>) {
        let Some(transfer) = self.transfer_under_way(key) else { return };
        if transfer.direction == Direction::Put {
            let sent = (0..).zip(&transfer.window).filter(|(_, chunk)| chunk.is_some());
            awaited.extend(sent.map(|(slot, _)| Awaited::Chunk(key, slot)));
        }
        self.orphan_bounces(key, awaited);
    }

    /// Takes the chunk that an answer is about out of its transfer's window.
    fn chunk_under_way(&mut self, key: OpKey, peer: Rank, done: &ChunkDone) -> Option<Piece> {
        let OpKind::ByMessage(transfer) = &mut self.ops.get_mut(key)?.kind else { return None };
        if (transfer.peer, transfer.direction) != (peer, done.direction) {
            return None;
        }
        transfer.window.get_mut(usize::try_from(done.slot).ok()?)?.take()
    }

    fn end_transfer(&mut self, key: OpKey) {
        let OpKind::ByMessage(transfer) = &mut self.ops[key].kind else { return };
        let (peer, error, on_complete) = (transfer.peer, transfer.error, transfer.on_complete.take());
        let signalled = transfer.signalled;
        if let Some(since) = transfer.since.filter(|_| error.is_none())
            && let (Some(registration), Some(now)) = (&mut self.registration, self.core.transport.now())
        {
            registration.hoses.miss_policy(peer).on_message(now.saturating_sub(since));
        }
        match (error, signalled) {
            (Some(error), _) => self.ops.finish(key, Err(error)),
            (None, Some(old)) => self.ops.finish(key, Ok(old)),
            (None, None) => self.conclude(key, peer, on_complete),
        }
    }

    /// Stores a chunk that a peer sent, and then changes the word that this is to be told by.
    pub(in crate::node) fn serve_put_signal(
        &mut self,
        peer: Rank,
        chunk: &Chunk,
        signal: &Signal,
        payload: &[u8],
    ) {
        let Some(atomic) = signal.atomic else {
            self.core.counters.malformed += 1;
            return;
        };
        let stored = self.store_chunk(peer, chunk, payload);
        let word = Place::new(MemId::Heap, signal.word);
        let (status, old) = match stored.map(|()| self.core.transport.change_own(word, atomic)) {
            Ok(Ok(old)) => (Status::Ok, old),
            Ok(Err(_)) => (Status::NoWord, 0),
            Err(error) => (Status::of(&Err(error)), 0),
        };
        self.answer_put(peer, chunk, status, old);
    }

    /// Stores a chunk that a peer sent.
    #[inline(always)]
    pub(in crate::node) fn serve_put(&mut self, peer: Rank, chunk: &Chunk, payload: &[u8]) {
        let stored = self.store_chunk(peer, chunk, payload);
        self.answer_put(peer, chunk, Status::of(&stored), 0);
    }

    fn store_chunk(&mut self, peer: Rank, chunk: &Chunk, payload: &[u8]) -> Result<(), OpError> {
        match chunk.at {
            Some(place) if place.mem != MemId::Control => {
                let len = payload.len() as u64;
                let own = self.permit_chunk(peer, Direction::Put, (place, len), chunk)?;
                self.core.transport.write(own, payload)?;
                self.count_served(peer, len);
                Ok(())
            }
            _ => Err(OpError::Protocol { peer, what: "a put into no memory" }),
        }
    }

    fn answer_put(&mut self, peer: Rank, chunk: &Chunk, status: Status, old: u64) {
        let done = ChunkDone::to(chunk, Direction::Put, status, old);
        self.mail.answer(&mut self.core, peer, Message::ChunkDone(done), 0);
    }

    /// Sends a chunk that a peer asked for.
    pub(in crate::node) fn serve_get(&mut self, peer: Rank, chunk: &Chunk, len: u32) {
        let len = len as usize;
        let result = match chunk.at {
            Some(place) if place.mem != MemId::Control && len <= self.core.scratch.len() => {
                let permit = self.permit_chunk(peer, Direction::Get, (place, len as u64), chunk);
                permit.and_then(|own| self.core.transport.read(own, &mut self.core.scratch[..len]))
            }
            _ => Err(OpError::Protocol { peer, what: "a get from no memory, or of too much" }),
        };
        let len = if result.is_ok() { len } else { 0 };
        if result.is_ok() {
            self.count_served(peer, len as u64);
        }
        let done = ChunkDone::to(chunk, Direction::Get, Status::of(&result), 0);
        self.mail.answer(&mut self.core, peer, Message::ChunkDone(done), len);
    }
}

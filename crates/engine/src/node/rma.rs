//! Puts, gets and atomics: one-sided where the transport can, by messages where it cannot.
//!
//! By message, a transfer is cut into chunks that fit a message and stay inside one bucket of the target. A window of
//! them is under way at a time; each answer says how its chunk went. The answers carry the chunk's place in the
//! window, and are believed only for chunks that are really under way with that very peer.

use super::after::After;
use super::keyed;
use super::table::{HeldStart, Node, OpKind};
use super::transfer::Transfer;
use crate::op_id::{OpId, OpKey};
use crate::path::{self, Access, Choice, Facts, Keys, Limits, Path, Wanted};
use crate::span::BucketSize;
use crate::wire::{Chunk, ChunkDone, Message, Signal, Status, chunk_result};
use crate::{
    Atomic, Direction, Lane, Mechanism, MemId, Nanos, OpError, Operation, Piece, Place, Rank, SendError,
    Submit, Transport, Why,
};

/// Chunks of private memory stay inside buckets of this size, so that a fault names the bucket: 8 KiB. Heaps have no holes.
const CHUNK_BUCKET: BucketSize = bucket(13);
const HEAP_BUCKET: BucketSize = bucket(40);

const fn bucket(shift: u32) -> BucketSize {
    match BucketSize::new(shift) {
        Some(size) => size,
        None => unreachable!(),
    }
}

impl<T: Transport> Node<T> {
    /// Starts a put or a get of all pieces, to or from one peer. The local places must stay valid until the operation
    /// has an outcome (for a put: until [`Node::is_locally_done`]). Failures show in the outcome.
    pub fn transfer(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        deadline: Option<Nanos>,
    ) -> OpId {
        if let [piece] = pieces
            && let Some(held) = self.acquire_recent(peer, direction, piece)
        {
            debug_assert_eq!(self.path(peer, direction, pieces, None).0.path, Path::Registered);
            return self.submit_hit(peer, direction, *piece, deadline, held, None);
        }
        self.transfer_otherwise(peer, direction, pieces, deadline)
    }

    /// As [`Node::transfer`], where the firehose that was found last does not do.
    #[inline(never)]
    fn transfer_otherwise(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        deadline: Option<Nanos>,
    ) -> OpId {
        if let [piece] = pieces
            && let Some(piece) = self.piece_in_spaces(peer, *piece)
            && let Some(id) = self.start_hit(peer, direction, piece, deadline)
        {
            debug_assert_eq!(self.path(peer, direction, &[piece], None).0.path, Path::Registered);
            return id;
        }
        self.start_transfer(peer, direction, pieces, deadline, None)
    }

    /// Starts an atomic on an aligned word of a peer's heap; the outcome is the old word.
    pub fn atomic(&mut self, peer: Rank, word: Place, atomic: Atomic, deadline: Option<Nanos>) -> OpId {
        let key = self.insert(OpKind::OneSided { peer, after: None }, deadline);
        if self.is_lost(peer) {
            self.finish(key, Err(OpError::PeerLost { peer }));
            return OpId::of(key);
        }
        self.start_atomic(key, peer, word, atomic);
        OpId::of(key)
    }

    /// Puts `pieces` to one peer, and then changes an aligned word of its heap, so that whoever there sees the change by an
    /// atomic sees the bytes. The outcome is the old word; where that is a failure, the bytes may
    /// have been put, or some of them, and the word only after all of them.
    pub fn transfer_then_signal(
        &mut self,
        peer: Rank,
        pieces: &[Piece],
        word: Place,
        atomic: Atomic,
        deadline: Option<Nanos>,
    ) -> OpId {
        self.start_transfer(
            peer,
            Direction::Put,
            pieces,
            deadline,
            Some(After::Signal(word, atomic.signalling())),
        )
    }

    /// Ends a transfer whose bytes lie in place, once what comes after them is done.
    pub(super) fn conclude(&mut self, key: OpKey, peer: Rank, after: Option<After>) {
        match after {
            None => self.finish(key, Ok(0)),
            Some(After::Tell(lane, am)) => {
                let told = self.send_soon(peer, lane, Message::Am(am));
                self.finish(key, told.map(|()| 0));
            }
            Some(After::Signal(word, atomic)) => {
                self.ops[key].kind = OpKind::OneSided { peer, after: None };
                self.start_atomic(key, peer, word, atomic);
            }
        }
    }

    /// Starts an atomic now, or as soon as nothing is held back any more.
    fn start_atomic(&mut self, key: OpKey, peer: Rank, word: Place, atomic: Atomic) {
        if self.holds_back() {
            self.held_starts.push((key, HeldStart::Atomic(word, atomic)));
        } else {
            self.submit_atomic(key, peer, word, atomic);
        }
    }

    fn submit_atomic(&mut self, key: OpKey, peer: Rank, word: Place, atomic: Atomic) {
        match self.transport.atomic(OpId::of(key), peer, word, atomic) {
            Submit::Done(old) => {
                self.counters.add(Operation::Atomic, Mechanism::Mapped, atomic.size());
                self.finish(key, Ok(old));
            }
            // Somebody else does it: the owner, in answer to a message, or a network's card.
            Submit::Pending => self.counters.add(Operation::Atomic, Mechanism::Message, atomic.size()),
            Submit::Unreachable(why) => self.finish(key, Err(OpError::Unsupported { peer, why })),
            Submit::Failed(error) => self.finish(key, Err(error)),
        }
    }

    /// Starts the puts and atomics that were held back, and have not ended since.
    pub(super) fn submit_held(&mut self) {
        for (key, start) in std::mem::take(&mut self.held_starts) {
            let waiting = self.ops.get(key).filter(|op| op.outcome.is_none());
            let Some(peer) = waiting.map(|op| op.kind.peer()) else { continue };
            match start {
                HeldStart::Atomic(word, atomic) => self.submit_atomic(key, peer, word, atomic),
                HeldStart::Put(pieces, after) => {
                    let (choice, _) = self.path(peer, Direction::Put, &pieces, after);
                    self.submit(key, peer, Direction::Put, &pieces, after, choice);
                }
            }
        }
    }

    /// Starts a transfer that has a place among operations of all kinds, so that it may be another's part.
    #[inline(never)]
    pub(super) fn start_transfer(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        deadline: Option<Nanos>,
        after: Option<After>,
    ) -> OpId {
        if self.is_lost(peer) {
            let key = self.insert(OpKind::OneSided { peer, after: None }, deadline);
            self.finish(key, Err(OpError::PeerLost { peer }));
            return OpId::of(key);
        }
        let (choice, in_spaces) = self.path(peer, direction, pieces, after);
        if choice.path == Path::Registered {
            return self.start_keyed(
                peer,
                direction,
                in_spaces.as_deref().unwrap_or(pieces),
                deadline,
                after,
            );
        }
        let key = self.insert(OpKind::OneSided { peer, after: None }, deadline);
        let id = OpId::of(key);
        if direction == Direction::Put && self.holds_back() {
            // Who looks at what is put may know of what this process did before.
            self.held_starts.push((key, HeldStart::Put(pieces.to_vec(), after)));
        } else {
            self.submit(key, peer, direction, pieces, after, choice);
        }
        id
    }

    /// The path of a transfer, and its pieces as they lie in the processes' spaces, where they go by key and do not lie there
    /// as they are given.
    fn path(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        after: Option<After>,
    ) -> (Choice, Option<Vec<Piece>>) {
        let is_short = |piece: &Piece| self.cut_chunk(*piece).1.is_none();
        let wanted = match (direction, after) {
            (Direction::Get, _) => Wanted::Get,
            (Direction::Put, Some(After::Signal(..))) => Wanted::PutSignal {
                one_message: matches!(pieces, [piece] if is_short(piece))
                    && self.transport.signals_by_message(peer),
            },
            (Direction::Put, _) => Wanted::Put,
        };
        let (mut access, mut in_spaces) = (Access::No(Why::Network), None);
        if wanted != (Wanted::PutSignal { one_message: true }) {
            (access, in_spaces) = self.access(peer, pieces);
        }
        // A transfer by messages looks at its pieces one by one.
        let facts = Facts {
            wanted,
            bytes: pieces.iter().map(|piece| piece.len).fold(0, u64::saturating_add),
            alone: pieces.len() == 1,
            memory: MemId::Heap,
            access,
            limits: Limits::default(),
        };
        (path::choose(&facts), in_spaces)
    }

    /// How the peer's ends of these pieces are reached, and where that is by key, the pieces in the processes' spaces, if they are
    /// given otherwise.
    fn access(&mut self, peer: Rank, pieces: &[Piece]) -> (Access, Option<Vec<Piece>>) {
        if self.goes_by_key(peer) {
            if pieces.iter().all(keyed::is_in_spaces) {
                return (Access::Keys(Keys::Held), None);
            }
            let find = |piece: &Piece| self.transport.in_spaces(peer, *piece);
            if let Some(found) = pieces.iter().map(find).collect::<Option<_>>() {
                return (Access::Keys(Keys::Held), Some(found));
            }
        }
        match self.transport.reaches(peer, pieces) {
            Ok(()) => (Access::Direct, None),
            Err(why) => (Access::No(why), None),
        }
    }

    /// Starts a transfer that does not go by key.
    fn submit(
        &mut self,
        key: OpKey,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        after: Option<After>,
        Choice { path, why }: Choice,
    ) {
        if path != Path::Direct {
            self.counters.add_why(why.unwrap_or(Why::NotOffered), 1);
            return self.by_message(key, peer, direction, pieces, after);
        }
        match self.transport.copy(OpId::of(key), peer, direction, pieces) {
            Submit::Done(_) => self.conclude(key, peer, after),
            Submit::Pending => {
                self.ops[key].kind = OpKind::OneSided { peer, after: after.map(Box::new) };
            }
            Submit::Failed(error) => self.finish(key, Err(error)),
            // Since it was looked at.
            Submit::Unreachable(why) => {
                self.counters.add_why(why, 1);
                self.by_message(key, peer, direction, pieces, after);
            }
        }
    }

    fn by_message(
        &mut self,
        key: OpKey,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        after: Option<After>,
    ) {
        let operation = match direction {
            Direction::Put => Operation::Put,
            Direction::Get => Operation::Get,
        };
        self.counters.add(operation, Mechanism::Message, pieces.iter().map(|p| p.len).sum());
        let transfer = self.new_transfer(peer, direction, pieces, after);
        self.ops[key].kind = OpKind::Transfer(transfer);
        self.pump(key);
    }

    /// A transfer by messages that has not begun.
    pub(super) fn new_transfer(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        after: Option<After>,
    ) -> Box<Transfer> {
        let spare = self.spare_transfers.pop();
        let mut transfer =
            spare.unwrap_or_else(|| Box::new(Transfer::new(peer, direction, Vec::new(), None)));
        let mut rest = std::mem::take(&mut transfer.rest);
        rest.clear();
        rest.extend(pieces.iter().rev().filter(|piece| piece.len > 0));
        *transfer = Transfer::new(peer, direction, rest, after);
        let is_long = |piece: &Piece| self.is_for_relays(peer, *piece);
        if pieces.iter().any(is_long) {
            transfer.relays_max = self.stages.relays_for(peer);
        }
        transfer
    }

    /// A transfer by messages that is not over.
    pub(super) fn transfer_under_way(&mut self, key: OpKey) -> Option<&mut Transfer> {
        match &mut self.ops.get_mut(key).filter(|op| op.outcome.is_none())?.kind {
            OpKind::Transfer(transfer) => Some(transfer),
            _ => None,
        }
    }

    /// Sends as many chunks as there is room for, and ends the transfer when nothing is left of it. Returns whether
    /// anything moved.
    pub(super) fn pump(&mut self, key: OpKey) -> bool {
        let mut moved = false;
        loop {
            let Some(op) = self.ops.get_mut(key).filter(|op| op.outcome.is_none()) else { return moved };
            let OpKind::Transfer(transfer) = &mut op.kind else { return moved };
            if transfer.is_over() {
                self.end_transfer(key);
                return true;
            }
            let free = transfer.window.iter().position(Option::is_none);
            let next = transfer.rest.last().filter(|_| transfer.error.is_none());
            let (Some(slot), Some(piece)) = (free, next) else { return moved };
            let (piece, peer, relays_max) = (*piece, transfer.peer, transfer.relays_max);
            if relays_max > 0 && self.is_for_relays(peer, piece) {
                if !self.add_relay(key) {
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
                        self.stalled.push(peer, key);
                    }
                    return moved;
                }
            }
        }
    }

    /// The first chunk of a piece, and what is left of it.
    fn cut_chunk(&self, piece: Piece) -> (Piece, Option<Piece>) {
        let bucket = if piece.remote.mem == MemId::Heap { HEAP_BUCKET } else { CHUNK_BUCKET };
        piece.cut(self.transport.payload_max() as u64, bucket)
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
        // What waits for the lane goes before: it may be about the same memory.
        if self.must_wait(peer, Lane::Request) || self.waits_in_outbox(peer, Lane::Request) {
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
            self.transport.read(chunk.local, &mut self.scratch[..len]).map_err(SendError::Failed)?;
        }
        self.transport.send(peer, Lane::Request, &message.encode(len), &self.scratch[..len])?;
        Ok(signal.is_some())
    }

    /// Takes the answer to a chunk.
    #[inline(always)]
    pub(super) fn on_chunk(&mut self, peer: Rank, done: &ChunkDone, payload: &[u8]) {
        let key = done.op.key();
        // Several tokens lead to one place in the table; only one of them was sent.
        if OpId::of(key) != done.op || self.ops.get(key).is_none_or(|op| op.outcome.is_some()) {
            // A late answer to an operation that timed out is no offence.
            return;
        }
        let Some(chunk) = self.chunk_under_way(key, peer, done) else {
            self.counters.malformed += 1;
            return;
        };
        let mut result = chunk_result(done.status, peer, done.direction, chunk.remote, chunk.len);
        if done.direction == Direction::Get && result.is_ok() {
            result = if payload.len() as u64 == chunk.len {
                self.transport.write(chunk.local, payload)
            } else {
                Err(OpError::Protocol { peer, what: "an answer of the wrong length" })
            };
        }
        if let OpKind::Transfer(transfer) = &mut self.ops[key].kind {
            if let (Some(_), Some(After::Signal(word, atomic))) = (transfer.signalled, transfer.after) {
                let len = atomic.size();
                transfer.signalled = Some(done.old);
                if done.status == Some(Status::NoWord) {
                    result = Err(OpError::Fault { peer, mem: word.mem, addr: word.offset, len });
                }
                if matches!(done.status, Some(Status::Ok | Status::NoWord)) {
                    self.counters.add(Operation::Atomic, Mechanism::Message, len);
                }
            }
            if let Err(error) = result {
                transfer.error.get_or_insert(error);
            }
        }
        self.pump(key);
    }

    /// Takes the chunk that an answer is about out of its transfer's window.
    fn chunk_under_way(&mut self, key: OpKey, peer: Rank, done: &ChunkDone) -> Option<Piece> {
        let OpKind::Transfer(transfer) = &mut self.ops.get_mut(key)?.kind else { return None };
        if (transfer.peer, transfer.direction) != (peer, done.direction) {
            return None;
        }
        transfer.window.get_mut(usize::try_from(done.slot).ok()?)?.take()
    }

    fn end_transfer(&mut self, key: OpKey) {
        let OpKind::Transfer(transfer) = &mut self.ops[key].kind else { return };
        let (peer, error, after) = (transfer.peer, transfer.error, transfer.after.take());
        let signalled = transfer.signalled;
        if let Some(since) = transfer.since.filter(|_| error.is_none())
            && let (Some(registrar), Some(now)) = (&mut self.registrar, self.transport.now())
        {
            registrar.hoses.weighing(peer).on_message(now.saturating_sub(since));
        }
        match (error, signalled) {
            (Some(error), _) => self.finish(key, Err(error)),
            (None, Some(old)) => self.finish(key, Ok(old)),
            (None, None) => self.conclude(key, peer, after),
        }
    }

    /// Stores a chunk that a peer sent, and then changes the word that this is to be told by.
    pub(super) fn serve_put_signal(&mut self, peer: Rank, chunk: &Chunk, signal: &Signal, payload: &[u8]) {
        let Some(atomic) = signal.atomic else {
            self.counters.malformed += 1;
            return;
        };
        let stored = self.store_chunk(peer, chunk, payload);
        let word = Place::new(MemId::Heap, signal.word);
        let (status, old) = match stored.map(|()| self.transport.change_own(word, atomic)) {
            Ok(Ok(old)) => (Status::Ok, old),
            Ok(Err(_)) => (Status::NoWord, 0),
            Err(error) => (Status::of(&Err(error)), 0),
        };
        self.answer_put(peer, chunk, status, old);
    }

    /// Stores a chunk that a peer sent.
    #[inline(always)]
    pub(super) fn serve_put(&mut self, peer: Rank, chunk: &Chunk, payload: &[u8]) {
        let stored = self.store_chunk(peer, chunk, payload);
        self.answer_put(peer, chunk, Status::of(&stored), 0);
    }

    fn store_chunk(&mut self, peer: Rank, chunk: &Chunk, payload: &[u8]) -> Result<(), OpError> {
        match chunk.at {
            Some(place) if place.mem != MemId::Control => {
                let len = payload.len() as u64;
                self.permit_chunk(peer, Direction::Put, (place, len), chunk)?;
                self.transport.write(place, payload)?;
                self.count_served(peer, len);
                Ok(())
            }
            _ => Err(OpError::Protocol { peer, what: "a put into no memory" }),
        }
    }

    /// Counts what this process has copied for a peer.
    pub(super) fn count_served(&mut self, peer: Rank, len: u64) {
        // Its own operations on itself are counted as such.
        if peer != self.rank {
            self.counters.add(Operation::Served, Mechanism::Message, len);
        }
    }

    fn answer_put(&mut self, peer: Rank, chunk: &Chunk, status: Status, old: u64) {
        let done = ChunkDone::to(chunk, Direction::Put, status, old);
        self.answer(peer, Message::ChunkDone(done), 0);
    }

    /// Sends a chunk that a peer asked for.
    pub(super) fn serve_get(&mut self, peer: Rank, chunk: &Chunk, len: u32) {
        let len = len as usize;
        let result = match chunk.at {
            Some(place) if place.mem != MemId::Control && len <= self.scratch.len() => {
                let permit = self.permit_chunk(peer, Direction::Get, (place, len as u64), chunk);
                permit.and_then(|()| self.transport.read(place, &mut self.scratch[..len]))
            }
            _ => Err(OpError::Protocol { peer, what: "a get from no memory, or of too much" }),
        };
        let len = if result.is_ok() { len } else { 0 };
        if result.is_ok() {
            self.count_served(peer, len as u64);
        }
        let done = ChunkDone::to(chunk, Direction::Get, Status::of(&result), 0);
        self.answer(peer, Message::ChunkDone(done), len);
    }

    /// Answers a request with `len` bytes of the scratch space.
    #[inline(always)]
    pub(super) fn answer(&mut self, peer: Rank, message: Message, len: usize) {
        if self.answer_must_wait(peer) {
            let payload = self.scratch[..len].to_vec();
            self.hold(peer, Lane::Reply, message, &payload);
            return;
        }
        // The transport handed the request out, so there is room; only a peer that corrupts its own lane sees none,
        // and it alone then waits in vain.
        if self.transport.send(peer, Lane::Reply, &message.encode(len), &self.scratch[..len]).is_err() {
            self.counters.malformed += 1;
        }
    }
}

//! Puts, gets and atomics, and what of its private memory this process lets its peers read and write. How
//! they are done is in [`transfer`](crate::node::transfer).

use crate::exposure::Rights;
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::node::transfer::state::OnComplete;
use crate::op_id::OpId;
use crate::{Atomic, Direction, MemId, Nanos, OpError, Piece, Place, Rank, Transport};

impl<T: Transport> Node<T> {
    /// Starts a put or a get of all pieces, to or from one peer. The local places must stay valid until the
    /// operation has an outcome (for a put: until [`Node::is_locally_done`]). Failures show in the outcome.
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
            debug_assert!(self.goes_registered(peer, direction, pieces));
            return self.submit_fast(peer, direction, *piece, deadline, held, None);
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
            && let Some(id) = self.start_fast(peer, direction, piece, deadline)
        {
            debug_assert!(self.goes_registered(peer, direction, &[piece]));
            return id;
        }
        let id = self.start_transfer(peer, direction, pieces, deadline, None);
        self.work();
        id
    }

    /// Puts `pieces` to one peer, and then changes an aligned word of its heap, or of what it has granted. A
    /// thread there that sees the change by an atomic sees the bytes. The outcome is the old word; it is 0
    /// for a word of a grant where the atomic is [blind](Atomic::without_old). After a failure the bytes may
    /// have been put, or some of them, and the word has changed only after all of them. Nothing is put where
    /// it is [`OpError::NoSuchAtomic`], or the word is of other memory than these, which is a fault.
    pub fn transfer_then_signal(
        &mut self,
        peer: Rank,
        pieces: &[Piece],
        word: Place,
        atomic: Atomic,
        deadline: Option<Nanos>,
    ) -> OpId {
        if let Some(op) = atomic.impossible() {
            let key = self.ops.insert(OpKind::OneSided { peer, on_complete: None }, deadline);
            self.ops.finish(key, Err(OpError::NoSuchAtomic { peer, op, word: atomic.word }));
            return OpId::of(key);
        }
        if !matches!(word.mem, MemId::Heap | MemId::Grant(_)) {
            let key = self.ops.insert(OpKind::OneSided { peer, on_complete: None }, deadline);
            let (mem, addr, len) = (word.mem, word.offset, atomic.size());
            self.ops.finish(key, Err(OpError::Fault { peer, mem, addr, len }));
            return OpId::of(key);
        }
        let signal = OnComplete::Signal(word, atomic.signalling());
        let id = self.start_transfer(peer, Direction::Put, pieces, deadline, Some(signal));
        self.work();
        id
    }

    /// Starts an atomic on an aligned word of a peer's heap, or of what it has granted: there its owner is
    /// asked, whoever that is, and does it once. The outcome is the old word; it is 0 for a word of a grant
    /// where the atomic is [blind](Atomic::without_old). It is [`OpError::NoSuchAtomic`] where words of that
    /// type have no such operation.
    pub fn atomic(&mut self, peer: Rank, word: Place, atomic: Atomic, deadline: Option<Nanos>) -> OpId {
        let key = self.ops.insert(OpKind::OneSided { peer, on_complete: None }, deadline);
        if self.core.is_lost(peer) {
            self.ops.finish(key, Err(OpError::PeerLost { peer }));
            return OpId::of(key);
        }
        self.start_atomic(key, peer, word, atomic);
        OpId::of(key)
    }
}

/// Exposure.
impl<T: Transport> Node<T> {
    /// From now on peers reach only those ranges of this process's private memory that [`Node::expose`]
    /// names.
    pub fn expose_ranges_only(&mut self) {
        self.shown.exposed.get_or_insert_default();
    }

    /// Exposes `len` bytes of private memory from `start` on, until as many are withdrawn by
    /// [`Node::withdraw`]. Where everything is exposed that changes nothing.
    pub fn expose(&mut self, start: u64, len: u64, rights: Rights) {
        if let Some(exposed) = &mut self.shown.exposed {
            exposed.expose(start, len, rights);
        }
    }

    /// Withdraws what was exposed by the same call of [`Node::expose`]. No message gets there any more,
    /// unless another range covers it. Holders of a key for it are told to give that back; until then nothing
    /// is sent, as after [`Node::invalidate`].
    pub fn withdraw(&mut self, start: u64, len: u64, rights: Rights) {
        if let Some(exposed) = self.shown.exposed.as_mut().filter(|_| len > 0) {
            exposed.withdraw(start, len, rights);
            self.invalidate(start, len);
        }
    }
}

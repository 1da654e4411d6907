//! Copies to and from peers' heaps by key, where to register memory pins nothing.
//!
//! A heap is mapped for as long as its process lives, and no part of it is ever unmapped. So a provider that copies by the
//! owner's processor comes to no harm there, and all of it is registered at once: for each peer by itself, when that asks,
//! so that the key of one that is given up can be taken back. A provider that pins would pin all of it; there heaps go by
//! message.
//!
//! Whoever wants to copy asks for the key first, and goes by message until the answer has come. The answer also says how
//! much of the heap is live. Of what lies beyond, the owner judges: it goes by message, and what is live now is asked for.
//!
//! Words of 8 bytes always go by message, too: their owner, or somebody on its host, may be changing them by an atomic, and
//! no provider promises to copy them whole.

use std::sync::atomic::Ordering;

use engine::{
    Counters, Direction, Key, KeyedPiece, Mechanism, MemId, OpId, Operation, Piece, Place, Rank, Submit, Why,
};

use super::asked::{Answer, Known, Reach, Wanted};
use super::transport::OfiTransport;

/// Bytes of a word that may be changed by atomics.
const WORD: u64 = 8;

impl OfiTransport {
    /// Starts a copy to or from a peer's heap, if its key is known.
    pub(super) fn start_heap_copy(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        pieces: &[Piece],
    ) -> Submit {
        let Some(keyed) = self.by_heap_key(rank, pieces) else { return Submit::Unreachable(Why::Network) };
        let operation = if direction == Direction::Put { Operation::Put } else { Operation::Get };
        self.counters.add(operation, Mechanism::Registered, pieces.iter().map(|piece| piece.len).sum());
        self.start_copy(op, rank, direction, &keyed)
    }

    /// Operations that the engine does not count.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    fn by_heap_key(&mut self, rank: Rank, pieces: &[Piece]) -> Option<Vec<KeyedPiece>> {
        let may = |piece: &Piece| piece.remote.mem == MemId::Heap && piece.len != WORD;
        if !self.shares_heaps || rank == self.members.own.rank || !pieces.iter().all(may) {
            return None;
        }
        let end = pieces.iter().map(|piece| piece.remote.offset.saturating_add(piece.len)).max()?;
        match self.link(rank).ok()?.heaps.known {
            Known::Here(reach) if end <= reach.live => {
                pieces.iter().map(|piece| self.in_heap(piece, reach)).collect()
            }
            Known::Here(_) | Known::Nothing => {
                self.ask_for_heap(rank);
                None
            }
            Known::Refused => None,
        }
    }

    /// A piece with addresses at both ends. `None`: nothing lies there.
    fn in_heap(&self, piece: &Piece, reach: Reach) -> Option<KeyedPiece> {
        let Piece { remote, local, len } = *piece;
        let near = match local.mem {
            MemId::Space => local.offset,
            MemId::Heap => {
                let heap = self.own.itself().heap_up_to(local.offset.checked_add(len)?)?;
                heap.base_addr() + local.offset
            }
            MemId::Control => return None,
        };
        let far = reach.base.checked_add(remote.offset)?;
        let piece = Piece::new(Place::new(MemId::Space, far), Place::new(MemId::Space, near), len)?;
        Some(KeyedPiece { piece, key: reach.key, base: reach.base, local: None })
    }

    #[cold]
    fn ask_for_heap(&mut self, rank: Rank) {
        let asked = self.links.get_mut(rank).map(|link| std::mem::replace(&mut link.heaps.asked, true));
        if asked == Some(false) {
            self.ask(rank, Wanted::Heap);
        }
    }

    /// Lets a peer reach this process's heap, which has asked for it. `None`: it may not.
    #[cold]
    pub(super) fn give_heap(&mut self, rank: Rank) -> Option<Reach> {
        let heap = self.own.itself().heap();
        let link = self.links.get_mut(rank).filter(|_| self.shares_heaps)?;
        if link.heaps.given.is_none() {
            link.heaps.given = self.port.register_mapping(heap).ok();
        }
        let (_, key) = link.heaps.given?;
        let live = self.own.itself().control.live().load(Ordering::Acquire).min(heap.len());
        Some(Reach { key: Key(key), base: heap.base_addr(), live })
    }

    /// A peer is gone: it reaches this process's heap no more.
    pub(super) fn take_heap_back(&mut self, rank: Rank) {
        if let Some((region, _)) = self.links.get_mut(rank).and_then(|link| link.heaps.given.take()) {
            self.port.deregister(region);
        }
    }

    /// A peer has answered.
    #[cold]
    pub(super) fn on_heap(&mut self, rank: Rank, answer: Answer) {
        let Some(link) = self.links.get_mut(rank) else { return };
        link.heaps.asked = false;
        link.heaps.known = match answer {
            Answer::Done([live, key, base]) => Known::Here(Reach { key: Key(key), base, live }),
            Answer::Fault => Known::Refused,
        };
    }
}

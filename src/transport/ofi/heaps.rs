//! Copies to and from peers' heaps by key, where to register memory pins nothing.
//!
//! A heap is mapped for as long as its process lives, and no part of it is ever unmapped or closed again. So
//! a provider that copies by the owner's processor comes to no harm in what is open of it, and all of that is
//! registered at once. It is registered for each peer by itself, when that asks, so that the keys of one that
//! is given up can be taken back. A provider that pins would pin all of it; there the engine registers pages
//! of a heap as it does those of private memory, once a peer knows where the heap lies. Pages of freed blocks
//! are not taken away while they are registered
//! ([`HeapState::hold`](crate::transport::shm::heap_pages::HeapState::hold)), so that no key ever leads to
//! pages that are not the heap's any more.
//!
//! A peer that wants to copy asks for the key first, and goes by message until the answer has come. The
//! answer also says how much of the heap is live. The owner judges memory beyond. It goes by message, and the
//! peer asks what is live now; if more is open than any of its keys leads to, it gets another key.
//!
//! No provider promises to copy words whole, beside an atomic on one of them: who needs that asks the owner,
//! by an [atomic](super::atomics).

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::{
    Direction, Key, KeyedPiece, Mechanism, MemId, OpId, Operation, PathReason, Piece, Place, Rank, Submit,
};
use fabric::Region;

use super::pending_requests::{Answer, Given, Known, Reach, Wanted};
use super::transport::{DeferredClose, OfiTransport};

impl OfiTransport {
    /// Starts a copy to or from a peer's heap, if its key is known; and counts it, if nobody else does.
    pub(super) fn start_heap_copy(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        pieces: &[Piece],
        counts: bool,
    ) -> Submit {
        let mut keyed = std::mem::take(&mut self.keyed);
        let submit = match self.by_heap_key(rank, pieces, &mut keyed) {
            Some(()) => {
                if counts {
                    let operation = if direction == Direction::Put { Operation::Put } else { Operation::Get };
                    let bytes = pieces.iter().map(|piece| piece.len).sum();
                    self.counters.add(operation, Mechanism::Registered, bytes);
                }
                self.start_copy(op, rank, direction, &keyed)
            }
            None => Submit::Unreachable(PathReason::Network),
        };
        self.keyed = keyed;
        submit
    }

    /// Fills `keyed` with these pieces. `None`: they do not go by a heap's key.
    pub(super) fn by_heap_key(
        &mut self,
        rank: Rank,
        pieces: &[Piece],
        keyed: &mut Vec<KeyedPiece>,
    ) -> Option<()> {
        let are_of_heap = pieces.iter().all(|piece| piece.remote.mem == MemId::Heap);
        if !self.shares_heaps || rank == self.members.own.rank || !are_of_heap {
            return None;
        }
        let end = pieces.iter().map(|piece| piece.remote.offset.saturating_add(piece.len)).max()?;
        match self.link(rank).ok()?.heaps.known {
            Known::Here(reach) if end <= reach.live => {
                keyed.clear();
                for piece in pieces {
                    keyed.push(self.in_heap(piece, reach)?);
                }
                Some(())
            }
            Known::Here(_) | Known::Nothing => {
                self.ask_for_heap(rank);
                None
            }
            Known::Refused => None,
        }
    }

    /// Whether copies to and from a peer's heap go by its key. If that is not known yet, it is asked for.
    pub(super) fn knows_heap(&mut self, rank: Rank) -> bool {
        if !self.shares_heaps || rank == self.members.own.rank {
            return false;
        }
        match self.link(rank).map(|link| link.heaps.known) {
            Ok(Known::Here(_)) => true,
            Ok(Known::Nothing) => {
                self.ask_for_heap(rank);
                false
            }
            Ok(Known::Refused) | Err(_) => false,
        }
    }

    fn in_heap(&self, piece: &Piece, reach: Reach) -> Option<KeyedPiece> {
        let far = reach.base.checked_add(piece.remote.offset)?;
        let piece = self.with_addresses(piece, far)?;
        Some(KeyedPiece { piece, key: reach.key, base: reach.base, local: None })
    }

    /// A piece with addresses at both ends. `None`: nothing lies there.
    fn with_addresses(&self, piece: &Piece, far: u64) -> Option<Piece> {
        let near = match piece.local.mem {
            MemId::Space => piece.local.offset,
            MemId::Heap => {
                let heap = self.own.itself().heap_up_to(piece.local.offset.checked_add(piece.len)?)?;
                heap.base_addr() + piece.local.offset
            }
            MemId::Control | MemId::Grant(_) => return None,
        };
        Piece::new(Place::new(MemId::Space, far), Place::new(MemId::Space, near), piece.len)
    }

    /// A piece with addresses at both ends, where heaps are registered page by page and it is known where the
    /// peer's lies.
    pub(super) fn in_registered_heaps(&mut self, rank: Rank, piece: Piece) -> Option<Piece> {
        let Place { mem, offset } = piece.remote;
        let far = match mem {
            MemId::Space => offset,
            MemId::Heap if self.heap.is_some() => match self.link(rank).ok()?.heaps.known {
                Known::Here(reach) if offset.checked_add(piece.len)? <= reach.live => {
                    reach.base.checked_add(offset)?
                }
                Known::Here(_) | Known::Nothing => {
                    self.ask_for_heap(rank);
                    return None;
                }
                Known::Refused => return None,
            },
            MemId::Heap | MemId::Control | MemId::Grant(_) => return None,
        };
        self.with_addresses(&piece, far)
    }

    /// Holds the pages of the heap that are to be registered, if they are the heap's: where in it they lie.
    pub(super) fn hold(&self, addr: u64, len: u64) -> Option<Range<u64>> {
        let (state, heap) = (self.heap.as_ref()?, self.own.itself().heap());
        let start = addr.checked_sub(heap.base_addr())?;
        let part = start..start.checked_add(len).filter(|end| *end <= heap.open_bytes())?;
        state.hold(part.clone());
        Some(part)
    }

    /// Lets go of what was held.
    pub(super) fn let_go(&self, held: Option<Range<u64>>) {
        if let (Some(state), Some(part)) = (&self.heap, held) {
            state.let_go(part);
        }
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
        let mut live = self.own.itself().control.live().load(Ordering::Acquire).min(heap.open_bytes());
        let link = self.links.get_mut(rank)?;
        let key = match (self.shares_heaps, &self.heap) {
            (true, _) => {
                let is_enough = |given: &Given| given.len >= live;
                if !link.heaps.given.last().is_some_and(is_enough) {
                    // Pages that are not open yet would end this process by a touch, and the provider touches
                    // for the peer. Earlier keys stay, as something may be under way by them.
                    let len = heap.open_bytes();
                    match self.endpoint.register_mapped(heap, 0..len) {
                        Ok(Region { id, key, .. }) => link.heaps.given.push(Given { id, key, len }),
                        // The peer goes on with what it reaches already.
                        Err(error) => {
                            tracing::debug!(peer = rank, ?error, "no key for a heap that has grown")
                        }
                    }
                }
                let Given { key, len, .. } = link.heaps.given.last()?;
                live = live.min(*len);
                *key
            }
            // Each page has its own, which the engine gives.
            (false, Some(_)) => 0,
            (false, None) => return None,
        };
        Some(Reach { key: Key(key), base: heap.base_addr(), live })
    }

    /// A peer is gone: it reaches this process's heap no more.
    pub(super) fn take_heap_back(&mut self, rank: Rank) {
        let given = self.links.get_mut(rank).map(|link| std::mem::take(&mut link.heaps.given));
        for Given { id, .. } in given.into_iter().flatten() {
            self.close_region(DeferredClose { id, reg: None, held: None });
        }
    }

    /// A peer has answered.
    #[cold]
    pub(super) fn on_heap(&mut self, rank: Rank, answer: Answer) {
        let Some(link) = self.links.get_mut(rank) else { return };
        link.heaps.asked = false;
        link.heaps.known = match answer {
            Answer::Done([live, key, base, ..]) => Known::Here(Reach { key: Key(key), base, live }),
            Answer::Fault => Known::Refused,
        };
    }
}

//! Copies of few bytes to or from one place: each goes in a slot, and nothing is kept of it but what stands
//! there.
//!
//! Puts are not *injected* (`fi_inject_write`), which would spare the buffer and the completion. Each has an
//! end of its own that is told only when its bytes are there, and of injected ones nothing is heard, but that
//! they failed. To hear of it by something later would take an order of writes, or of a read after them, that
//! is assumed of no provider.

use super::buffers::Size;
use super::link::PARTS;
use super::rma_slots::SlotId;
use super::transport::OfiTransport;
use engine::{Direction, Event, KeyedPiece, OpError, OpId, Piece, Rank, Submit};
use fabric::Prepared;

const SMALL: usize = Size::Small as usize;

impl OfiTransport {
    /// Starts a copy of one piece. If it is small, its peer is there, and nothing of that waits, nothing is
    /// kept of it but its slot. An operation that waits or fails does so as a copy like any other.
    #[inline(always)]
    pub(super) fn start_one(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        keyed: &KeyedPiece,
    ) -> Submit {
        if keyed.local.is_some() {
            return self.start_longer(op, rank, direction, &[*keyed]);
        }
        let (id, slot) = self.endpoint.slots.take();
        let prepared = slot.lend(op, rank, direction, keyed);
        if self.start_small(prepared, rank, direction, keyed) {
            Submit::Pending
        } else {
            self.start_again(id)
        }
    }

    /// Starts the copy that a slot is lent for. `false`: it is not small, others like it wait for its peer,
    /// or the provider does not take it now.
    #[inline(always)]
    fn start_small(
        &mut self,
        prepared: Prepared,
        rank: Rank,
        direction: Direction,
        keyed: &KeyedPiece,
    ) -> bool {
        let KeyedPiece { piece: Piece { remote, local, len }, key, base, .. } = *keyed;
        if len.wrapping_sub(1) >= self.copies.small_max[direction as usize] {
            return false;
        }
        let Some(link) = self.links.get_mut(rank) else { return false };
        let Some(peer) = link.peer else { return false };
        if link.copying.parts[SMALL] >= PARTS[SMALL] || !link.copying.copies[SMALL].is_empty() {
            return false;
        }
        let remote = self.copies.far(remote, base, len as usize, key);
        if !self.endpoint.start_small(prepared, direction, peer, remote, local) {
            return false;
        }
        link.copying.parts[SMALL] += 1;
        link.has_room();
        true
    }

    /// Starts the copy in this slot as any other. Makes a slot for those to come, if none is free.
    #[cold]
    #[inline(never)]
    fn start_again(&mut self, id: SlotId) -> Submit {
        let (op, rank, direction, keyed) = self.endpoint.slots.take_back(id);
        self.endpoint.add_slot();
        self.start_longer(op, rank, direction, &[keyed])
    }

    /// A small copy has ended well. Returns which, if its end is to be told: before all else.
    #[inline(always)]
    pub(super) fn on_small(&mut self, id: SlotId) -> Option<OpId> {
        let slot = self.endpoint.ended_small(id)?;
        let (wanted, op, rank) = (slot.wanted, slot.op, slot.rank);
        self.endpoint.slots.put_back(id);
        let link = self.links.get_mut(rank)?;
        link.copying.parts[SMALL] = link.copying.parts[SMALL].checked_sub(1).expect("a place is freed once");
        link.copying.suspect = false;
        if !link.copying.copies[SMALL].is_empty() {
            self.go_on_with_copies(rank, SMALL);
        }
        if wanted { Some(op) } else { None }
    }

    /// A small copy has failed.
    #[cold]
    pub(super) fn on_small_failed(&mut self, id: SlotId) {
        let Some(slot) = self.endpoint.slots.get(id) else { return };
        let (wanted, op, rank) = (slot.wanted, slot.op, slot.rank);
        self.endpoint.slots.put_back(id);
        if wanted {
            self.events.push_back(Event::Completed { op, result: Err(OpError::PeerLost { peer: rank }) });
        }
        if let Some(link) = self.links.get_mut(rank) {
            link.copying.parts[SMALL] =
                link.copying.parts[SMALL].checked_sub(1).expect("a place is freed once");
        }
        self.lose(rank);
    }

    /// Has a small copy touch no local memory any more. It is reported nonetheless. Returns whether it may
    /// still write at the peer.
    pub(super) fn abandon_small(&mut self, op: OpId) -> bool {
        let mut its = self.endpoint.slots.under_way().filter(|slot| slot.op == op);
        // Bytes that come in at home do not go out.
        its.next().is_some_and(|slot| !std::mem::take(&mut slot.drains))
    }

    /// Ends all small copies with a peer that is gone.
    pub(super) fn lose_smalls(&mut self, rank: Rank) {
        let result = Err(OpError::PeerLost { peer: rank });
        for slot in self.endpoint.slots.under_way().filter(|slot| slot.rank == rank) {
            (slot.wanted, slot.drains) = (false, false);
            self.events.push_back(Event::Completed { op: slot.op, result });
        }
    }
}

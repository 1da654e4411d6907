//! Copies that go in slots.

use engine::{Direction, Place};
use fabric::{PREPARED_MAX, Peer, Prepared, Remote, RemotePiece};

use super::NetEndpoint;
use crate::transport::ofi::buffers::Size;
use crate::transport::ofi::rma_slots::{Slot, SlotId};

impl NetEndpoint {
    /// Starts the copy that a slot is lent for, whose prepared operation this is: from or to here, to or from
    /// this piece of the peer's memory. `false`: the provider has not taken it.
    #[inline(always)]
    pub(in crate::transport::ofi) fn start_small(
        &mut self,
        prepared: Prepared,
        direction: Direction,
        peer: Peer,
        RemotePiece { addr, len, key }: RemotePiece,
        local: Place,
    ) -> bool {
        #[cfg(test)]
        if self.script.connects {
            return false;
        }
        let Some(endpoint) = &mut self.endpoint else { return false };
        let remote = Remote { peer, addr, key };
        match direction {
            Direction::Put => {
                let from = std::ptr::with_exposed_provenance(local.offset as usize);
                // SAFETY: the engine hands on the pieces that it was given. This library gives it only pieces
                // of a `PieceList`, or of buffers that it keeps until the operation has ended: readable, and
                // not written meanwhile.
                unsafe { endpoint.deliver_prepared(prepared, from, len, remote) }
            }
            Direction::Get => endpoint.read_prepared(prepared, len, remote),
        }
    }

    /// The slot of a small copy that has ended well: its bytes are where they belong.
    #[inline(always)]
    pub(in crate::transport::ofi) fn ended_small(&mut self, id: SlotId) -> Option<&Slot> {
        let slot = self.slots.get(id)?;
        if slot.drains {
            drain(slot);
        }
        Some(slot)
    }

    /// Makes one more slot, if none is free and there may be one.
    pub(in crate::transport::ofi) fn add_slot(&mut self) {
        if self.slots.count() < PREPARED_MAX
            && !self.slots.has_free()
            && let Some(buffer) = self.take(Size::Small)
            && let Some(endpoint) = &mut self.endpoint
        {
            let local = self.buffers.give_away(buffer);
            // SAFETY: the buffer was given away for good; its memory is kept in `memory` until the endpoint
            // is closed, and registered where that is needed. While an operation from it is under way nobody
            // touches it: only the slot knows of it, and is not free then.
            let prepared = unsafe { endpoint.prepare(local, self.slots.next_token()) };
            let buffer = local.addr.expose_provenance();
            prepared.into_iter().for_each(|prepared| self.slots.add(buffer, prepared));
        }
    }
}

/// Copies the bytes that were read into a slot to the local end of a copy that has not been given up.
#[inline(always)]
fn drain(slot: &Slot) {
    let buffer: *const u8 = std::ptr::with_exposed_provenance(slot.buffer);
    let into: *mut u8 = std::ptr::with_exposed_provenance_mut(slot.local as usize);
    // SAFETY: the engine hands on the pieces that it was given. This library gives it only pieces of a
    // `PieceList`, or of buffers that it keeps until the operation has ended: writable, and referred to by
    // nothing else. So many bytes the buffer has, as it was asked for them, and the provider is done with it.
    // A word takes no call.
    unsafe {
        match slot.len {
            8 => into.cast::<u64>().write_unaligned(buffer.cast::<u64>().read_unaligned()),
            len => into.copy_from_nonoverlapping(buffer, len as usize),
        }
    }
}

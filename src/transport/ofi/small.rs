//! Copies of few bytes to or from one place: each goes in one buffer, and nothing is kept of it but what goes with that.
//!
//! Puts are not *injected* (`fi_inject_write`), which would spare the buffer and the completion: each has an end of its own
//! that is told only when its bytes are there, and of what is injected nothing is heard, but that it failed. To hear of it by
//! something later would take an order of writes, or of a read after them, that is assumed of no provider.

use std::num::NonZero;

use super::buffers::{Buffer, Purpose, Size, Small};
use super::link::PARTS;
use super::port::Kept;
use super::transport::OfiTransport;
use engine::{Direction, Event, KeyedPiece, MemId, OpError, OpId, Place, Rank};

const SMALL: usize = Size::Small as usize;
const BYTES_MAX: u64 = Size::Small.bytes() as u64;

impl OfiTransport {
    /// Starts a copy, if it is small, its peer is there, and nothing of that waits. `false`: it is not started.
    #[inline(always)]
    pub(super) fn start_small(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        keyed: KeyedPiece,
    ) -> bool {
        let KeyedPiece { piece, key, base, .. } = keyed;
        let put = direction == Direction::Put;
        let fits = piece.len.wrapping_sub(1) < BYTES_MAX && (!put || self.copies.delivers);
        if !fits || !self.gone.is_empty() && self.gone.contains(&rank) {
            return false;
        }
        let Some(link) = self.links.get_mut(rank) else { return false };
        let Some(peer) = link.peer else { return false };
        if link.parts[SMALL] >= PARTS[SMALL] || !link.copies.is_empty() {
            return false;
        }
        // If none is at hand, who starts any copy makes some.
        let Some(buffer) = self.port.buffers.take(Size::Small) else { return false };
        let len = piece.len as usize;
        let remote = self.copies.far(piece.remote, base, len, key);
        let small = |into| Purpose::Small(Small { op: Some(op), rank, len: piece.len as u32, into });
        let lent = if put {
            self.port.deliver(peer, remote, (piece.local, buffer), small(None))
        } else {
            self.port.fetch(peer, remote, buffer, small(NonZero::new(piece.local.offset)))
        };
        match lent {
            Ok(()) => {
                link.parts[SMALL] += 1;
                link.has_room();
                true
            }
            Err(Kept { buffer, .. }) => {
                // What waits or fails does so as a copy like any other.
                self.port.buffers.put_back_small(buffer);
                false
            }
        }
    }

    /// A small copy has ended. Returns what is to be told of it, before all else.
    #[inline(always)]
    pub(super) fn on_small(&mut self, small: Small, buffer: Buffer, done: bool) -> Option<Event> {
        let Small { op, rank, len, into } = small;
        if let Some(into) = into.filter(|_| done) {
            let into = Place::new(MemId::Space, into.get());
            self.port.buffers.drain(&buffer, 0, into, len as usize);
        }
        self.port.buffers.put_back_small(buffer);
        let link = self.links.get_mut(rank)?;
        link.parts[SMALL] -= 1;
        link.suspect &= !done;
        if !done || !link.copies.is_empty() {
            return self.go_on_after(op, rank, done);
        }
        Some(Event::Completed { op: op?, result: Ok(0) })
    }

    /// A small copy has ended that failed, or that others wait for.
    #[cold]
    fn go_on_after(&mut self, op: Option<OpId>, rank: Rank, done: bool) -> Option<Event> {
        if !done {
            self.lose(rank);
        }
        self.go_on_with_copies(rank);
        let result = if done { Ok(0) } else { Err(OpError::PeerLost { peer: rank }) };
        Some(Event::Completed { op: op?, result })
    }

    /// Has a small copy touch no local memory any more. It is reported nonetheless.
    pub(super) fn abandon_small(&mut self, op: OpId) {
        self.port.smalls().filter(|small| small.op == Some(op)).for_each(|small| small.into = None);
    }

    /// Ends all small copies with a peer that is gone.
    pub(super) fn lose_smalls(&mut self, rank: Rank) {
        let result = Err(OpError::PeerLost { peer: rank });
        for small in self.port.smalls().filter(|small| small.rank == rank) {
            small.into = None;
            self.events.extend(small.op.take().map(|op| Event::Completed { op, result }));
        }
    }
}

//! Copies of few bytes to or from one place: each goes in one buffer, and nothing is kept of it but what goes with that.

use engine::{Direction, Event, KeyedPiece, OpError, OpId, Rank};
use fabric::{Peer, Until};

use super::buffers::{Buffer, Purpose, Size, Small};
use super::link::PARTS;
use super::port::Kept;
use super::transport::OfiTransport;

const SMALL: usize = Size::Small as usize;

impl OfiTransport {
    /// Starts a copy, if it is small, and nothing of that peer's waits. `false`: it is not started.
    #[inline]
    pub(super) fn start_small(
        &mut self,
        op: OpId,
        (rank, peer): (Rank, Peer),
        direction: Direction,
        keyed: &KeyedPiece,
    ) -> bool {
        let KeyedPiece { piece, key, base, .. } = *keyed;
        let put = direction == Direction::Put;
        let fits = (1..=Size::Small.bytes() as u64).contains(&piece.len) && (!put || self.copies.delivers);
        let Some(link) = self.links.get_mut(rank).filter(|_| fits) else { return false };
        if link.parts[SMALL] >= PARTS[SMALL] || !link.copies.is_empty() {
            return false;
        }
        let Some(buffer) = self.port.take(Size::Small) else { return false };
        let len = piece.len as usize;
        let into = if put {
            self.port.buffers.fill(&buffer, 0, piece.local, len);
            None
        } else {
            Some(piece.local)
        };
        let remote = [self.copies.far(piece.remote, base, len, key)];
        let purpose = Purpose::Small(Small { op: Some(op), rank, len: piece.len as u32, into });
        let lent = if put {
            self.port.write(peer, &remote, (buffer, len), Until::Delivered, purpose)
        } else {
            self.port.read(peer, &remote, (buffer, len), purpose)
        };
        match lent {
            Ok(()) => {
                link.parts[SMALL] += 1;
                link.busy = None;
                true
            }
            Err(Kept { buffer, .. }) => {
                // What waits or fails does so as a copy like any other.
                self.port.buffers.put_back(buffer);
                false
            }
        }
    }

    /// A small copy has ended.
    #[inline]
    pub(super) fn on_small(&mut self, small: Small, buffer: Buffer, done: bool) {
        let Small { op, rank, len, into } = small;
        if let Some(into) = into.filter(|_| done) {
            self.port.buffers.drain(&buffer, 0, into, len as usize);
        }
        self.port.buffers.put_back(buffer);
        let Some(link) = self.links.get_mut(rank) else { return };
        link.parts[SMALL] -= 1;
        link.suspect &= !done;
        let waits = !link.copies.is_empty();
        if let Some(op) = op {
            let result = if done { Ok(0) } else { Err(OpError::PeerLost { peer: rank }) };
            self.events.push_back(Event::Completed { op, result });
        }
        if !done {
            self.lose(rank);
        }
        if waits {
            self.go_on_with_copies(rank);
        }
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

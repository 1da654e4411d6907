//! The private memory that this process lets its peers read and write.
//!
//! The heap is there to be shared, and always is. Private memory is exposed as a whole, or in ranges: then
//! each message that asks for it is looked at, and no key is handed out that reaches beyond them. A member
//! may read what a collective of this process offers to it, until it has it. It looks
//! at accesses by grants' names likewise, whatever is exposed.

use super::state::MessageTransfer;
use crate::exposure::Ranges;
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::registration::Run;
use crate::span::BucketSize;
use crate::wire::{Chunk, GrantAsk, GrantIs, Message};
use crate::{Atomic, Direction, Mechanism, MemId, OpError, Operation, Place, Rank, Transport};

impl<T: Transport> Node<T> {
    /// Where a peer does that by a message, if it may. The error is the initiator's.
    pub(in crate::node) fn permit(
        &mut self,
        peer: Rank,
        direction: Direction,
        place: Place,
        len: u64,
    ) -> Result<Place, OpError> {
        let (addr, is_private) = (place.offset, place.mem == MemId::Space);
        let permitted = match &self.shown.exposed {
            _ if place.in_grant().is_some() => {
                let start = self.shown.grants.resolve(self.core.rank, peer, direction.into(), (place, len));
                start.map(|start| Place::new(MemId::Space, start))
            }
            Some(exposed) if is_private && !exposed.allow(direction, addr, len) => {
                let is_offered = direction == Direction::Get && self.teams.has_offered(peer, addr, len);
                let grants = &mut self.shown.grants;
                let own = self.core.rank;
                match is_offered || grants.covering(own, peer, direction, (addr, len)).is_some() {
                    true => Ok(place),
                    false => Err(OpError::NotExposed { peer: self.core.rank, direction, addr, len }),
                }
            }
            _ => Ok(place),
        };
        if permitted.is_err() {
            self.count_denied(peer);
        }
        permitted
    }

    /// Where a word in a grant lies in this process's space, if the grant allows that atomic to the peer. The
    /// error is the initiator's.
    pub(in crate::node) fn permit_word(
        &mut self,
        peer: Rank,
        word: Place,
        atomic: Atomic,
    ) -> Result<Place, OpError> {
        let (own, size) = (self.core.rank, atomic.size());
        let start = self.shown.grants.resolve(own, peer, atomic.rights(), (word, size));
        // Its own address has to be aligned, and not where it lies in the grant: the processor counts so.
        let permitted = match (start, word.in_grant()) {
            (Ok(start), Some((grant, offset))) if !start.is_multiple_of(size) => {
                Err(OpError::Unaligned { peer: own, grant, offset, size })
            }
            (start, _) => start.map(|start| Place::new(MemId::Space, start)),
        };
        if permitted.is_err() {
            self.count_denied(peer);
        }
        permitted
    }

    /// Counts what this process has copied for a peer.
    pub(in crate::node) fn count_served(&mut self, peer: Rank, len: u64) {
        // Its own operations on itself are counted as such.
        if peer != self.core.rank {
            self.core.counters.add(Operation::Served, Mechanism::Message, len);
        }
    }

    /// Counts an access of a peer's that this process refuses.
    fn count_denied(&mut self, peer: Rank) {
        self.core.counters.denied += 1;
        self.shown.tallies.of(peer, self.core.is_lost(peer)).denied += 1;
    }

    /// Tells a peer which grant covers memory that it knows by address.
    pub(in crate::node) fn serve_grant_ask(&mut self, peer: Rank, ask: &GrantAsk) {
        let Some(direction) = ask.direction else {
            self.core.counters.malformed += 1;
            return;
        };
        let found = self.shown.grants.covering(self.core.rank, peer, direction, (ask.addr, ask.len));
        let answer = Message::GrantIs(GrantIs { ask: *ask, found });
        self.mail.answer(&mut self.core, peer, answer, 0);
    }

    /// As [`Node::permit`], for a part of a transfer, which `chunk` is. A message in this process's own name
    /// is only taken for its own if it has just such a part under way: others may write to the rings that it
    /// lies in.
    pub(in crate::node) fn permit_chunk(
        &mut self,
        peer: Rank,
        direction: Direction,
        piece: (Place, u64),
        chunk: &Chunk,
    ) -> Result<Place, OpError> {
        let is_own = |transfer: &MessageTransfer| {
            let sent = transfer.window.get(chunk.slot as usize).copied().flatten();
            (transfer.peer, transfer.direction) == (peer, direction)
                && sent.is_some_and(|sent| (sent.remote, sent.len) == piece)
        };
        match self.ops.get(chunk.op.key()).map(|op| &op.kind) {
            Some(OpKind::ByMessage(transfer))
                if peer == self.core.rank && piece.0.in_grant().is_none() && is_own(transfer) =>
            {
                Ok(piece.0)
            }
            _ => self.permit(peer, direction, piece.0, piece.1),
        }
    }
}

/// Whether a key for that run reaches nothing but what may be read and written.
pub(in crate::node) fn allow_key(exposed: Option<&Ranges>, bucket: BucketSize, run: Run) -> bool {
    let Some(exposed) = exposed else { return true };
    let (start, len) =
        (run.first.checked_mul(bucket.bytes()), u64::from(run.count).checked_mul(bucket.bytes()));
    start.zip(len).is_some_and(|(start, len)| {
        exposed.allow(Direction::Get, start, len) && exposed.allow(Direction::Put, start, len)
    })
}

//! Copies by key: starting them, going on with them, ending them.

use engine::{Direction, Event, KeyedPiece, OpError, OpId, Rank, Submit};
use fabric::Until;

use super::copies::{Cursor, Part};
use super::link::PARTS;
use super::port::{Buffer, Kept, Size};
use super::transport::OfiTransport;

impl OfiTransport {
    pub(super) fn start_copy(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        pieces: &[KeyedPiece],
    ) -> Submit {
        let peer = match self.link(rank) {
            Ok(link) => link.peer,
            Err(error) => return Submit::Failed(error),
        };
        let Some(peer) = peer else {
            return Submit::Failed(OpError::Protocol { peer: rank, what: "a copy by key to oneself" });
        };
        let copy = self.copies.insert(op, rank, peer, direction, pieces);
        self.advance(copy);
        Submit::Pending
    }

    /// Starts as many parts of a copy as there is room for, and ends it when nothing is left of it. `false`: there was no
    /// room for all.
    fn advance(&mut self, copy: usize) -> bool {
        loop {
            let Some(known) = self.copies.all.get_mut(copy) else { return true };
            if known.is_started() {
                if known.under_way > 0 {
                    return true;
                }
                // What was written is still to be found there.
                if known.confirmed || known.error.is_some() || known.pieces.is_empty() {
                    self.end_copy(copy);
                    return true;
                }
            }
            let Some((buffer, part)) = known.ready.take().or_else(|| self.next_part(copy)) else {
                self.wait(copy);
                return false;
            };
            if !self.start_part(buffer, part) {
                return false;
            }
        }
    }

    /// The part of a copy that comes next, with its bytes in a buffer where it has any to send.
    fn next_part(&mut self, copy: usize) -> Option<(Buffer, Part)> {
        let known = &self.copies.all[copy];
        if known.is_started() {
            let part = Part { copy, from: Cursor::default(), len: 1, confirms: true };
            let rank = known.rank;
            return Some((self.take_for(rank, Size::Small)?, part));
        }
        let (rank, direction) = (known.rank, known.direction);
        let part = self.copies.plan(copy);
        let size = if part.len <= Size::Small.bytes() { Size::Small } else { Size::Large };
        let buffer = self.take_for(rank, size)?;
        if direction == Direction::Put {
            self.copies.fill(&part, &buffer);
        }
        self.copies.pass(&part);
        Some((buffer, part))
    }

    /// A buffer for a part, if the peer may have one more.
    fn take_for(&mut self, rank: Rank, size: Size) -> Option<Buffer> {
        let started = &mut self.links.get_mut(&rank)?.parts[size as usize];
        if *started >= PARTS[size as usize] {
            return None;
        }
        let buffer = self.port.take(size)?;
        *started += 1;
        Some(buffer)
    }

    /// Takes a part's buffer back.
    fn put_back(&mut self, rank: Rank, buffer: Buffer) {
        if let Some(link) = self.links.get_mut(&rank) {
            link.parts[buffer.size() as usize] -= 1;
        }
        self.port.put_back(buffer);
    }

    /// Has a copy wait until something of its peer's has ended, or, if nothing will, until it is tried again.
    fn wait(&mut self, copy: usize) {
        let known = &mut self.copies.all[copy];
        let rank = known.rank;
        let Some(link) = self.links.get_mut(&rank) else { return };
        if !std::mem::replace(&mut known.waits, true) {
            link.copies.push_back(copy);
        }
        if link.parts == [0; 2] {
            self.grow_impatient(rank);
        }
    }

    /// Gives a part to the provider. `false`: it is not taken now, or its peer is lost.
    fn start_part(&mut self, buffer: Buffer, part: Part) -> bool {
        let known = &self.copies.all[part.copy];
        let (rank, peer, direction) = (known.rank, known.peer, known.direction);
        let (list, count) = self.copies.remote(&part);
        let number = self.copies.parts.insert(part);
        let until = if self.copies.delivers { Until::Delivered } else { Until::Reusable };
        let lent = if direction == Direction::Put && !part.confirms {
            self.port.write(peer, &list[..count], (buffer, part.len), until, number)
        } else {
            self.port.read(peer, &list[..count], (buffer, part.len), number)
        };
        let Err(Kept { buffer, busy }) = lent else {
            self.copies.all[part.copy].under_way += 1;
            if let Some(link) = self.links.get_mut(&rank) {
                link.busy = None;
            }
            return true;
        };
        self.copies.parts.remove(number);
        if busy {
            self.copies.all[part.copy].ready = Some((buffer, part));
            self.wait(part.copy);
            self.grow_impatient(rank);
        } else {
            self.put_back(rank, buffer);
            self.lose(rank);
        }
        false
    }

    /// A part has ended.
    pub(super) fn on_part(&mut self, number: usize, buffer: Buffer, done: bool) {
        let part = self.copies.parts.remove(number);
        let known = &mut self.copies.all[part.copy];
        known.under_way -= 1;
        known.confirmed |= part.confirms;
        let (rank, wanted) = (known.rank, !known.given_up && known.error.is_none());
        if done && wanted && known.direction == Direction::Get {
            self.copies.drain(&part, &buffer);
        }
        self.put_back(rank, buffer);
        if !done {
            self.lose(rank);
        }
        self.advance(part.copy);
        self.go_on_with_copies(rank);
    }

    /// Goes on with a peer's copies that found no room, until there is none again.
    pub(super) fn go_on_with_copies(&mut self, rank: Rank) {
        while let Some(copy) = self.links.get_mut(&rank).and_then(|link| link.copies.pop_front()) {
            if let Some(known) =
                self.copies.all.get_mut(copy).filter(|known| known.waits && known.rank == rank)
            {
                known.waits = false;
                if !self.advance(copy) {
                    return;
                }
            }
        }
    }

    /// Has a copy touch no local memory any more. It is still reported, when it touches none of the peer's either.
    pub(super) fn abandon_copy(&mut self, op: OpId) {
        let found = self.copies.all.iter_mut().find(|(_, copy)| copy.op == op && !copy.reported);
        let Some((copy, known)) = found else { return };
        known.given_up = true;
        // A part that only confirms is made anew.
        let (rank, unsent) = (known.rank, known.ready.take());
        unsent.into_iter().for_each(|(buffer, _)| self.put_back(rank, buffer));
        self.advance(copy);
    }

    /// Ends all copies with a peer that is gone. What the provider still has of them is in buffers of this transport.
    pub(super) fn lose_copies(&mut self, rank: Rank) {
        let with_it = self.copies.all.iter().filter(|(_, copy)| copy.rank == rank).map(|(copy, _)| copy);
        for copy in with_it.collect::<Vec<_>>() {
            let known = &mut self.copies.all[copy];
            known.error = Some(OpError::PeerLost { peer: rank });
            let unsent = known.ready.take();
            unsent.into_iter().for_each(|(buffer, _)| self.put_back(rank, buffer));
            self.report(copy);
            self.advance(copy);
        }
    }

    fn report(&mut self, copy: usize) {
        let known = &mut self.copies.all[copy];
        if !std::mem::replace(&mut known.reported, true) {
            let result = known.error.map_or(Ok(0), Err);
            self.events.push_back(Event::Completed { op: known.op, result });
        }
    }

    fn end_copy(&mut self, copy: usize) {
        self.report(copy);
        self.copies.remove(copy);
    }
}

//! One-sided copies and atomics on their way: what is checked and moved when they arrive is in [`super::access`].

use engine::{Atomic, Direction, Event as Told, Key, KeyedPiece, Nanos, OpError, OpId, Piece, Place, Rank};

use crate::acquaintance::Admission;
use crate::flight::{Flight, Origin, Work};
use crate::hearsay::Heard;
use crate::queue::Event;
use crate::world::World;

impl World {
    /// Starts a copy by which the card reaches all memory.
    pub(crate) fn start_copy(
        &mut self,
        op: OpId,
        from: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
    ) {
        let pieces =
            pieces.iter().map(|piece| KeyedPiece { piece: *piece, key: Key(0), base: 0, local: None });
        self.launch(op, from, peer, direction, pieces, false);
    }

    /// Starts a copy by which the card reaches what is registered.
    pub(crate) fn start_keyed(
        &mut self,
        op: OpId,
        from: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[KeyedPiece],
    ) {
        self.launch(op, from, peer, direction, pieces.iter().copied(), true);
    }

    fn launch(
        &mut self,
        op: OpId,
        from: Rank,
        peer: Rank,
        direction: Direction,
        all: impl Iterator<Item = KeyedPiece>,
        keyed: bool,
    ) {
        let origin = self.origin(from, peer);
        let mut pieces = self.spare_pieces.pop().unwrap_or_default();
        pieces.extend(all.filter(|keyed| keyed.piece.len > 0));
        let copied =
            pieces.iter().filter(|part| keyed && part.local.is_none()).map(|part| part.piece.len).sum();
        let ready = self.spend(from, self.costs.send_overhead_ns + self.costs.copy_ns(copied));
        let misses = if keyed { self.translate(from, peer, &pieces) } else { 0 };
        let work = misses * self.costs.table_miss_ns
            + match direction {
                Direction::Put => self.card_ns(&pieces),
                Direction::Get => self.costs.card_ns(0),
            };
        let left = self.leave(from, ready, work);
        let at = left + self.wire(from, peer);
        let work = Work::Copy { direction, pieces, keyed };
        // To the process that its initiator has met.
        let peer_incarnation = self.met(from, peer);
        let flight = Flight { op: Some(op), peer, peer_incarnation, origin, left, work };
        let flight = self.take_off(op, flight);
        self.queue
            .push(at, if direction == Direction::Put { Event::Land(flight) } else { Event::Fetch(flight) });
    }

    pub(crate) fn start_atomic(&mut self, op: OpId, from: Rank, peer: Rank, word: Place, atomic: Atomic) {
        let origin = self.origin(from, peer);
        let ready = self.spend(from, self.costs.send_overhead_ns);
        let left = self.leave(from, ready, self.costs.card_ns(8));
        let at = left + self.wire(from, peer);
        let told = self.process(from).heard.clone();
        let work = Work::Atomic(word, atomic, told);
        let peer_incarnation = self.met(from, peer);
        let flight = Flight { op: Some(op), peer, peer_incarnation, origin, left, work };
        let flight = self.take_off(op, flight);
        self.queue.push(at, Event::Land(flight));
    }

    fn take_off(&mut self, op: OpId, flight: Flight) -> u32 {
        let index = self.flights.insert(flight);
        match self.flight_ops.get_mut(index) {
            Some(place) => *place = op,
            None => self.flight_ops.push(op),
        }
        index as u32
    }

    /// Gives an operation up: it touches local memory no more.
    pub(crate) fn abandon(&mut self, op: OpId, from: Rank) {
        let incarnation = self.incarnation(from);
        // Of all flights few are looked at: those of other ranks that have the name, too, and some that are over.
        let named = self.flight_ops.iter().enumerate().filter(|(_, name)| **name == op);
        for (index, _) in named {
            let Some(flight) = self.flights.get_mut(index) else { continue };
            let Origin { rank, incarnation: of, .. } = flight.origin;
            if (flight.op, rank, of) == (Some(op), from, incarnation) {
                match flight.work {
                    Work::Copy { keyed: true, .. } => flight.origin.abandoned = true,
                    Work::Copy { .. } | Work::Atomic(..) => flight.op = None,
                    // It is over, and touches nothing any more.
                    Work::Report(..) => {}
                }
            }
        }
    }

    /// The cards' time for these pieces.
    fn card_ns(&self, pieces: &[KeyedPiece]) -> Nanos {
        let each = pieces.iter().map(|keyed| self.costs.card_ns(keyed.piece.len));
        each.sum::<Nanos>().max(self.costs.card_ns(0))
    }

    /// Translations that either card has to look up.
    fn translate(&mut self, from: Rank, peer: Rank, pieces: &[KeyedPiece]) -> u64 {
        let page_bytes = self.costs.page_bytes;
        let mut misses = 0;
        for KeyedPiece { piece, local, .. } in pieces {
            let nic = &mut self.process_mut(peer).nic;
            misses += nic.translate(piece.remote.offset, piece.len, page_bytes);
            if local.is_some() {
                let nic = &mut self.process_mut(from).nic;
                misses += nic.translate(piece.local.offset, piece.len, page_bytes);
            }
        }
        misses
    }

    /// The target's card sends what a get asks for.
    pub(crate) fn fetch(&mut self, index: u32) {
        let flight = &self.flights[index as usize];
        let (from, peer) = (flight.origin.rank, flight.peer);
        let (Work::Copy { pieces, .. }, true) = (&flight.work, self.is_on(flight)) else {
            self.break_off(index);
            return;
        };
        let card_ns = self.card_ns(pieces);
        if !self.lets_in(index, Event::Fetch(index)) {
            return;
        }
        let left = self.leave(peer, self.now, card_ns);
        let at = left + self.wire(peer, from);
        self.queue.push(at, Event::Land(index));
    }

    /// A put's bytes or an atomic reach the target, or a get's bytes the initiator.
    pub(crate) fn land(&mut self, index: u32) {
        if !self.is_on(&self.flights[index as usize]) {
            self.break_off(index);
            return;
        }
        // The bytes of a get have left, but are read only now.
        if !self.lets_in(index, Event::Land(index)) {
            return;
        }
        let flight = &mut self.flights[index as usize];
        let (origin, peer) = (flight.origin.clone(), flight.peer);
        let from = origin.rank;
        let work = std::mem::replace(&mut flight.work, Work::Report(Ok(0), Heard::default()));
        let mut answered_at = self.now;
        let (result, heard) = match work {
            Work::Copy { direction, mut pieces, keyed } => {
                if direction == Direction::Put {
                    answered_at += self.wire(peer, from);
                }
                let copied = self.copy_all(&origin, peer, direction, &pieces, keyed);
                pieces.clear();
                self.spare_pieces.push(pieces);
                (copied.map(|()| 0), Heard::default())
            }
            Work::Atomic(word, atomic, told) => {
                answered_at += self.wire(peer, from);
                let fault = OpError::Fault { peer, mem: word.mem, addr: word.offset, len: 8 };
                (self.process(peer).apply(word, atomic).ok_or(fault), self.whisper(peer, word, told))
            }
            Work::Report(result, heard) => (result, heard),
        };
        self.flights[index as usize].work = Work::Report(result, heard);
        if answered_at == self.now {
            self.report(index);
        } else {
            self.queue.push(answered_at, Event::Report(index));
        }
    }

    /// The initiator's card learns of the end.
    pub(crate) fn report(&mut self, index: u32) {
        let flight = self.flights.remove(index as usize);
        let rank = flight.origin.rank;
        if let (Some(op), Work::Report(result, heard)) = (flight.op, flight.work)
            && self.lived(rank, flight.origin.incarnation, self.now)
        {
            self.process_mut(rank).heard.merge(&heard);
            self.tell(rank, Told::Completed { op, result });
        }
    }

    /// An end is gone. Who waits for a copy by key is told so, for its registrations are still in use.
    fn break_off(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        let peer = flight.peer;
        if matches!(flight.work, Work::Copy { keyed: true, .. }) {
            flight.work = Work::Report(Err(OpError::PeerLost { peer }), Heard::default());
            self.queue.push(self.now + self.costs.latency_ns, Event::Report(index));
        } else {
            self.flights.remove(index as usize);
        }
    }

    /// Whether the target's card has to do with its initiator: `false` if not, or not yet.
    fn lets_in(&mut self, index: u32, event: Event) -> bool {
        let flight = &self.flights[index as usize];
        let (peer, Origin { rank, incarnation, .. }) = (flight.peer, &flight.origin);
        match self.admit(peer, *rank, *incarnation, event) {
            Admission::Granted => return true,
            Admission::Waits => {}
            Admission::Refused => self.break_off(index),
        }
        false
    }

    /// Whether anything still comes of it: somebody waits for its end, and both ends were there when they were needed,
    /// and are the processes that they were.
    fn is_on(&self, flight: &Flight) -> bool {
        let Origin { rank, incarnation, .. } = flight.origin;
        let sent = self.lived(rank, incarnation, flight.left) && self.lived(rank, incarnation, self.now);
        flight.op.is_some() && sent && self.lived(flight.peer, flight.peer_incarnation, self.now)
    }
}

//! One-sided copies and atomics on their way: what is checked and moved when they arrive is in
//! [`super::access`].

use engine::{
    Atomic, Direction, Event as Told, Key, KeyedPiece, Nanos, OpError, OpId, Piece, Place, Rank, Submit,
};

use crate::causality::CausalHistory;
use crate::flight::{Flight, Origin, Work};
use crate::known_peer::Admission;
use crate::queue::Event;
use crate::trace::Action;
use crate::world::World;

/// An error's number in the run's digest. The numbers stay as they are.
fn number_of(error: &OpError) -> u64 {
    match error {
        OpError::PeerLost { .. } => 1,
        OpError::Fault { .. } => 2,
        OpError::NotExposed { .. } => 3,
        OpError::LocalFault { .. } => 4,
        OpError::Timeout { .. } => 5,
        OpError::Protocol { .. } => 6,
        OpError::Team { .. } => 7,
        OpError::Unsupported { .. } => 8,
        OpError::NoSuchHandler { .. } => 9,
        OpError::NoSuchAtomic { .. } => 10,
        OpError::Panicked => 11,
        OpError::Revoked { .. } => 12,
        OpError::NotGranted { .. } => 13,
        OpError::Unaligned { .. } => 14,
    }
}

impl World {
    /// Starts a copy by which the card reaches all memory; `bounced`: to or from a bounce buffer.
    pub(crate) fn start_copy(
        &mut self,
        op: OpId,
        from: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        bounced: bool,
    ) {
        let flight = self.take_off(op, from, peer);
        self.flights[flight as usize].bounced = bounced;
        let keyed = |piece: &Piece| KeyedPiece { piece: *piece, key: Key(0), base: 0, local: None };
        let pieces = pieces.iter().filter(|piece| piece.len > 0).map(keyed);
        self.flights[flight as usize].pieces.extend(pieces);
        self.launch(flight, direction, false);
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
        let flight = self.take_off(op, from, peer);
        let pieces = pieces.iter().filter(|keyed| keyed.piece.len > 0);
        self.flights[flight as usize].pieces.extend(pieces);
        self.launch(flight, direction, true);
    }

    /// Notes that something happens to an operation, and how it has gone so far.
    pub(crate) fn note_flight(&mut self, action: Action, index: u32) {
        let Flight { origin, peer, result, .. } = &self.flights[index as usize];
        self.trace.note(action, self.now, origin.rank, *peer);
        self.trace.word(origin.serial);
        let (ended, value) = match result {
            Ok(value) => (0, *value),
            Err(error) => (number_of(error), 0),
        };
        self.trace.word(ended);
        self.trace.word(value);
    }

    fn note_pieces(&mut self, index: u32, direction: Direction, keyed: bool) {
        self.note_flight(Action::Start, index);
        let direction = u64::from(direction == Direction::Put);
        self.trace.word(direction << 1 | u64::from(keyed));
        let place = |place: Place| [place.mem.to_wire(), place.offset];
        for KeyedPiece { piece, key, base, local } in &self.flights[index as usize].pieces {
            let ends = [place(piece.remote), place(piece.local), [piece.len, key.0]];
            ends.as_flattened().iter().for_each(|word| self.trace.word(*word));
            self.trace.word(*base);
            let registration =
                local.map_or(u64::MAX, |reg| u64::from(reg.index) << 32 | u64::from(reg.generation));
            self.trace.word(registration);
        }
    }

    /// Sends a copy on its way that has its pieces.
    fn launch(&mut self, index: u32, direction: Direction, keyed: bool) {
        self.note_pieces(index, direction, keyed);
        let flight = &mut self.flights[index as usize];
        flight.work = Work::Copy { direction, keyed };
        let (from, peer) = (flight.origin.rank, flight.peer);
        let pieces = std::mem::take(&mut flight.pieces);
        let copied =
            pieces.iter().filter(|part| keyed && part.local.is_none()).map(|part| part.piece.len).sum();
        let ready = self.spend(from, self.costs.send_overhead_ns + self.costs.copy_ns(copied));
        let misses = if keyed { self.translate(from, peer, &pieces) } else { 0 };
        let work = misses * self.costs.table_miss_ns
            + match direction {
                Direction::Put => self.card_ns(&pieces),
                Direction::Get => self.costs.card_ns(0),
            };
        self.flights[index as usize].pieces = pieces;
        let at = self.send_off(index, ready, work);
        self.queue
            .push(at, if direction == Direction::Put { Event::Land(index) } else { Event::Fetch(index) });
    }

    pub(crate) fn start_atomic(&mut self, op: OpId, from: Rank, peer: Rank, word: Place, atomic: Atomic) {
        let index = self.take_off(op, from, peer);
        self.note_flight(Action::Start, index);
        [word.mem.to_wire(), word.offset]
            .iter()
            .chain(&atomic.to_wire())
            .for_each(|word| self.trace.word(*word));
        let heard = self.process(from).heard.clone();
        let flight = &mut self.flights[index as usize];
        (flight.work, flight.heard) = (Work::Atomic(word, atomic), heard);
        let ready = self.spend(from, self.costs.send_overhead_ns);
        let at = self.send_off(index, ready, self.costs.card_ns(8));
        self.queue.push(at, Event::Land(index));
    }

    /// Copies by the initiator's own processor, at once.
    pub(crate) fn copy_at_once(
        &mut self,
        rank: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
    ) -> Submit {
        if !self.is_as_met(rank, peer) {
            return Submit::Failed(OpError::PeerLost { peer });
        }
        let keyed = |piece: &Piece| KeyedPiece { piece: *piece, key: Key(0), base: 0, local: None };
        let pieces: Vec<KeyedPiece> = pieces.iter().filter(|piece| piece.len > 0).map(keyed).collect();
        self.spend(rank, self.costs.copy_ns(pieces.iter().map(|keyed| keyed.piece.len).sum()));
        let origin = self.origin(rank, peer);
        match self.copy_all(&origin, peer, direction, &pieces, false, &[]) {
            Ok(()) => Submit::Done(0),
            Err(error) => Submit::Failed(error),
        }
    }

    /// Changes a word by the initiator's own processor, at once.
    pub(crate) fn atomic_at_once(&mut self, rank: Rank, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        if !self.is_as_met(rank, peer) {
            return Submit::Failed(OpError::PeerLost { peer });
        }
        self.spend(rank, self.costs.send_overhead_ns);
        let Some(old) = self.process(peer).apply(word, atomic) else {
            return Submit::Failed(OpError::Fault {
                peer,
                mem: word.mem,
                addr: word.offset,
                len: atomic.size(),
            });
        };
        let told = self.process(rank).heard.clone();
        let heard = self.whisper(peer, word, told);
        self.process_mut(rank).heard.merge(&heard);
        Submit::Done(old)
    }

    /// Whether the peer runs, and is the process that this one has met.
    fn is_as_met(&self, rank: Rank, peer: Rank) -> bool {
        self.lived(peer, self.met(rank, peer), self.now)
    }

    /// Has the initiator's card send what takes it so long, once the initiator's processor is `ready`.
    /// Returns when it is there.
    fn send_off(&mut self, index: u32, ready: Nanos, work: Nanos) -> Nanos {
        let Flight { origin: Origin { rank, .. }, peer, .. } = self.flights[index as usize];
        let left = self.leave(rank, ready, work);
        self.flights[index as usize].left = left;
        left + self.wire(rank, peer)
    }

    /// A place for an operation of `rank` with `peer` that starts now: its work, and when it left, are to be
    /// filled in.
    fn take_off(&mut self, op: OpId, rank: Rank, peer: Rank) -> u32 {
        let origin = self.origin(rank, peer);
        // To the process that its initiator has met.
        let peer_incarnation = self.met(rank, peer);
        if let Some(index) = self.landed.pop() {
            self.flight_ops[index as usize] = op;
            let flight = &mut self.flights[index as usize];
            (flight.op, flight.origin, flight.result) = (Some(op), origin, Ok(0));
            (flight.peer, flight.peer_incarnation) = (peer, peer_incarnation);
            return index;
        }
        self.flight_ops.push(op);
        self.flights.push(Flight {
            op: Some(op),
            origin,
            peer,
            peer_incarnation,
            left: 0,
            work: Work::Report,
            pieces: Vec::new(),
            carried: Vec::new(),
            bounced: false,
            late: 0,
            result: Ok(0),
            heard: CausalHistory::default(),
        });
        self.flights.len() as u32 - 1
    }

    /// An operation is over: its place is another's.
    fn put_away(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        flight.op = None;
        flight.pieces.clear();
        (flight.carried, flight.bounced, flight.late) = (Vec::new(), false, 0);
        flight.heard = CausalHistory::default();
        self.landed.push(index);
    }

    /// Gives an operation up: it touches local memory no more. What a put or an atomic brings goes on, and
    /// its end is reported nonetheless. Returns whether it may still write at the peer.
    pub(crate) fn abandon(&mut self, op: OpId, from: Rank) -> bool {
        let (incarnation, mut writing) = (self.incarnation(from), None);
        // Of all flights few are looked at: those of other ranks that have the name, too, and some that are
        // over.
        let named = self.flight_ops.iter().enumerate().filter(|(_, name)| **name == op);
        for (index, _) in named {
            let flight = &mut self.flights[index];
            let Origin { rank, incarnation: of, .. } = flight.origin;
            if (flight.op, rank, of) == (Some(op), from, incarnation) {
                flight.origin.abandoned = true;
                if flight.work.writes() {
                    writing = Some(index);
                }
            }
        }
        let Some(index) = writing else { return false };
        let late = self.weather.lateness(self.costs.latency_ns);
        let carried = self.carry(from, &self.flights[index].pieces);
        let flight = &mut self.flights[index];
        (flight.carried, flight.late) = (carried, late);
        true
    }

    /// Has nothing come of an operation that was started, nor its end be told.
    pub(crate) fn withdraw(&mut self, op: OpId, from: Rank) {
        let of = self.incarnation(from);
        let is_it = |flight: &&mut Flight| {
            (flight.op, flight.origin.rank, flight.origin.incarnation) == (Some(op), from, of)
        };
        self.flights.iter_mut().filter(is_it).for_each(|flight| flight.op = None);
    }

    /// The peer of a one-sided operation that this process of `from` has started and that can still write,
    /// other than to a bounce buffer, for each of them.
    pub(crate) fn written_by_flights(&self, from: Rank) -> impl Iterator<Item = Rank> {
        let incarnation = self.incarnation(from);
        let is_its = move |flight: &&Flight| {
            let Origin { rank, incarnation: of, .. } = flight.origin;
            (rank, of) == (from, incarnation) && flight.work.writes() && !flight.bounced && self.is_on(flight)
        };
        self.flights.iter().filter(is_its).map(|flight| flight.peer)
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
        if !self.is_on(flight) {
            self.break_off(index);
            return;
        }
        let card_ns = self.card_ns(&flight.pieces);
        if !self.lets_in(index, Event::Fetch(index)) {
            return;
        }
        let left = self.leave(peer, self.now, card_ns);
        let at = left + self.wire(peer, from);
        self.queue.push(at, Event::Land(index));
    }

    /// A put's bytes or an atomic reach the target, or a get's bytes the initiator.
    pub(crate) fn land(&mut self, index: u32) {
        let late = std::mem::take(&mut self.flights[index as usize].late);
        if late > 0 {
            return self.queue.push(self.now + late, Event::Land(index));
        }
        if !self.is_on(&self.flights[index as usize]) {
            self.break_off(index);
            return;
        }
        // The bytes of a get have left, but are read only now.
        if !self.lets_in(index, Event::Land(index)) {
            return;
        }
        let flight = &mut self.flights[index as usize];
        let (rank, peer, work) = (flight.origin.rank, flight.peer, flight.work);
        flight.work = Work::Report;
        let mut answered_at = self.now;
        match work {
            Work::Copy { direction, keyed } => {
                if direction == Direction::Put {
                    answered_at += self.wire(peer, rank);
                }
                self.copy(index, direction, keyed);
            }
            Work::Atomic(word, atomic) => {
                answered_at += self.wire(peer, rank);
                let told = std::mem::take(&mut self.flights[index as usize].heard);
                let fault = OpError::Fault { peer, mem: word.mem, addr: word.offset, len: atomic.size() };
                let (result, heard) =
                    (self.process(peer).apply(word, atomic).ok_or(fault), self.whisper(peer, word, told));
                let flight = &mut self.flights[index as usize];
                (flight.result, flight.heard) = (result, heard);
            }
            Work::Report => {}
        }
        if answered_at == self.now {
            self.report(index);
        } else {
            self.queue.push(answered_at, Event::Report(index));
        }
    }

    /// Copies a flight's pieces.
    fn copy(&mut self, index: u32, direction: Direction, keyed: bool) {
        let flight = &mut self.flights[index as usize];
        let (origin, peer) = (flight.origin, flight.peer);
        let mut pieces = std::mem::take(&mut flight.pieces);
        let carried = std::mem::take(&mut flight.carried);
        let copied = self.copy_all(&origin, peer, direction, &pieces, keyed, &carried);
        pieces.clear();
        let flight = &mut self.flights[index as usize];
        flight.pieces = pieces;
        if let Err(error) = copied {
            flight.result = Err(error);
        }
    }

    /// The initiator's card learns of the end.
    pub(crate) fn report(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        let Origin { rank, incarnation, .. } = flight.origin;
        let (op, result, heard) = (flight.op, flight.result, std::mem::take(&mut flight.heard));
        self.put_away(index);
        if let (Some(op), true) = (op, self.lived(rank, incarnation, self.now)) {
            self.process_mut(rank).heard.merge(&heard);
            self.tell(rank, Told::Completed { op, result });
        }
    }

    /// An end is gone. Who waits for a copy by key is told so, for its registrations are still in use.
    fn break_off(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        let peer = flight.peer;
        if matches!(flight.work, Work::Copy { keyed: true, .. }) {
            (flight.work, flight.result) = (Work::Report, Err(OpError::PeerLost { peer }));
            self.queue.push(self.now + self.costs.latency_ns, Event::Report(index));
        } else {
            self.put_away(index);
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

    /// Whether anything still comes of it: somebody waits for its end, and both ends were there when they
    /// were needed, and are the processes that they were.
    fn is_on(&self, flight: &Flight) -> bool {
        let Origin { rank, incarnation, .. } = flight.origin;
        let sent = self.lived(rank, incarnation, flight.left) && self.lived(rank, incarnation, self.now);
        flight.op.is_some() && sent && self.lived(flight.peer, flight.peer_incarnation, self.now)
    }
}

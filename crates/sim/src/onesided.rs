//! One-sided copies and atomics, and the registrations that keyed copies go by.

use engine::registration::RegisterError;
use engine::{
    Atomic, Deregistering, Direction, Event as Told, Key, KeyedPiece, MemId, Nanos, OpError, OpId, Piece,
    Place, Rank, RegId, Registering,
};

use crate::flight::{Flight, Work};
use crate::process::Health;
use crate::queue::Event;
use crate::space::Access;
use crate::violation::{Breach, Violation};
use crate::world::World;

/// One end of a piece: whose memory it is, where, and by which right the card goes there.
#[derive(Clone, Copy)]
struct End {
    rank: Rank,
    place: Place,
    right: Right,
}

#[derive(Clone, Copy)]
enum Right {
    /// The card reaches all of it.
    All,
    Key(Key),
    Reg(RegId),
}

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
        let pieces = pieces.iter().map(|piece| KeyedPiece { piece: *piece, key: Key(0), local: None });
        self.launch(op, from, peer, direction, pieces.collect(), false);
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
        self.launch(op, from, peer, direction, pieces.to_vec(), true);
    }

    fn launch(
        &mut self,
        op: OpId,
        from: Rank,
        peer: Rank,
        direction: Direction,
        mut pieces: Vec<KeyedPiece>,
        keyed: bool,
    ) {
        let started = self.now;
        pieces.retain(|keyed| keyed.piece.len > 0);
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
        let flight = self.flights.insert(Flight { op: Some(op), from, peer, started, left, work }) as u32;
        self.queue
            .push(at, if direction == Direction::Put { Event::Land(flight) } else { Event::Fetch(flight) });
    }

    pub(crate) fn start_atomic(&mut self, op: OpId, from: Rank, peer: Rank, word: Place, atomic: Atomic) {
        let started = self.now;
        let ready = self.spend(from, self.costs.send_overhead_ns);
        let left = self.leave(from, ready, self.costs.card_ns(8));
        let at = left + self.wire(from, peer);
        let work = Work::Atomic(word, atomic);
        let flight = self.flights.insert(Flight { op: Some(op), from, peer, started, left, work });
        self.queue.push(at, Event::Land(flight as u32));
    }

    /// Gives an operation up: it touches local memory no more.
    pub(crate) fn abandon(&mut self, op: OpId, from: Rank) {
        for (_, flight) in &mut self.flights {
            if (flight.op, flight.from) == (Some(op), from) {
                flight.op = None;
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
        let (from, peer) = (flight.from, flight.peer);
        let (Work::Copy { pieces, .. }, true) = (&flight.work, self.is_on(flight)) else {
            self.flights.remove(index as usize);
            return;
        };
        let left = self.leave(peer, self.now, self.card_ns(pieces));
        let at = left + self.wire(peer, from);
        self.queue.push(at, Event::Land(index));
    }

    /// A put's bytes or an atomic reach the target, or a get's bytes the initiator.
    pub(crate) fn land(&mut self, index: u32) {
        if !self.is_on(&self.flights[index as usize]) {
            self.flights.remove(index as usize);
            return;
        }
        let flight = &mut self.flights[index as usize];
        let (from, peer, started) = (flight.from, flight.peer, flight.started);
        let work = std::mem::replace(&mut flight.work, Work::Report(Ok(0)));
        let mut answered_at = self.now;
        let result = match work {
            Work::Copy { direction, pieces, keyed } => {
                if direction == Direction::Put {
                    answered_at += self.wire(peer, from);
                }
                self.copy_all(started, from, peer, direction, &pieces, keyed).map(|()| 0)
            }
            Work::Atomic(word, atomic) => {
                answered_at += self.wire(peer, from);
                let fault = OpError::Fault { peer, mem: word.mem, addr: word.offset, len: 8 };
                self.process(peer).apply(word, atomic).ok_or(fault)
            }
            Work::Report(result) => result,
        };
        self.flights[index as usize].work = Work::Report(result);
        self.queue.push(answered_at, Event::Report(index));
    }

    /// The initiator's card learns of the end.
    pub(crate) fn report(&mut self, index: u32) {
        let flight = self.flights.remove(index as usize);
        if let (Some(op), Work::Report(result)) = (flight.op, flight.work)
            && self.process(flight.from).lived_at(self.now)
        {
            self.tell(flight.from, Told::Completed { op, result });
        }
    }

    /// Whether anything still comes of it: it was not given up, and both ends were there when they were needed.
    fn is_on(&self, flight: &Flight) -> bool {
        let sent =
            self.process(flight.from).lived_at(flight.left) && self.process(flight.from).lived_at(self.now);
        flight.op.is_some() && sent && self.process(flight.peer).lived_at(self.now)
    }

    fn copy_all(
        &mut self,
        started: Nanos,
        from: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[KeyedPiece],
        keyed: bool,
    ) -> Result<(), OpError> {
        if keyed {
            self.check_unregistered(started, from, pieces)?;
        }
        for KeyedPiece { piece, key, local } in pieces {
            let right = |reg: Option<RegId>| reg.map_or(Right::All, Right::Reg);
            let near = End { rank: from, place: piece.local, right: right(*local) };
            let far = if keyed { Right::Key(*key) } else { Right::All };
            let far = End { rank: peer, place: piece.remote, right: far };
            let (source, target) = match direction {
                Direction::Put => (near, far),
                Direction::Get => (far, near),
            };
            let len = piece.len;
            let fault = |end: End, addr| match end.rank == far.rank && end.place == far.place {
                true => OpError::Fault { peer, mem: end.place.mem, addr, len },
                false => OpError::LocalFault { mem: end.place.mem, addr, len },
            };
            self.check(started, from, source, len).map_err(|addr| fault(source, addr))?;
            self.check(started, from, target, len).map_err(|addr| fault(target, addr))?;
            self.copy_piece(source, target, len).map_err(|(end, addr)| fault(end, addr))?;
        }
        Ok(())
    }

    /// What lies at the local end and is not registered must be little.
    fn check_unregistered(
        &mut self,
        started: Nanos,
        from: Rank,
        pieces: &[KeyedPiece],
    ) -> Result<(), OpError> {
        let private = |keyed: &&KeyedPiece| keyed.local.is_none() && keyed.piece.local.mem == MemId::Space;
        let len: u64 = pieces.iter().filter(private).map(|keyed| keyed.piece.len).sum();
        let Some(first) = pieces.iter().find(private).filter(|_| len > self.costs.unregistered_max_bytes)
        else {
            return Ok(());
        };
        let Place { mem, offset } = first.piece.local;
        self.note(started, from, from, offset, len, Breach::Unregistered);
        Err(OpError::LocalFault { mem, addr: offset, len })
    }

    /// Whether the card finds this end registered. What is not is noted; `Err` where the card refuses.
    fn check(&mut self, started: Nanos, initiator: Rank, end: End, len: u64) -> Result<(), u64> {
        let (nic, at) = (&self.process(end.rank).nic, end.place.offset);
        let found = match end.right {
            Right::All => return Ok(()),
            Right::Key(_) | Right::Reg(_) if end.place.mem != MemId::Space => Err(Breach::Beyond),
            Right::Key(key) => nic.by_key(key, at, len),
            Right::Reg(reg) => nic.find(reg, at, len),
        };
        let found = found.map(|registration| registration.stale_since(at, len));
        let breach = match found {
            Ok(None) => return Ok(()),
            Ok(Some(since)) => Breach::Stale { since },
            Err(breach) => breach,
        };
        self.note(started, initiator, end.rank, at, len, breach);
        if found.is_ok() { Ok(()) } else { Err(at) }
    }

    fn note(&mut self, started: Nanos, initiator: Rank, owner: Rank, offset: u64, len: u64, breach: Breach) {
        let at = self.now;
        self.violations.push(Violation { at, started, initiator, owner, offset, len, breach });
    }

    /// Copies between ends that were checked. `Err` with the end, and the first byte there, that cannot be accessed.
    fn copy_piece(&mut self, source: End, target: End, len: u64) -> Result<(), (End, u64)> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.resize(len as usize, 0);
        let copied = self
            .read_end(source, &mut bytes)
            .map_err(|addr| (source, addr))
            .and_then(|()| self.write_end(target, &bytes).map_err(|addr| (target, addr)));
        self.scratch = bytes;
        copied
    }

    fn read_end(&self, end: End, into: &mut [u8]) -> Result<(), u64> {
        let (process, base, len) = (self.process(end.rank), end.place.offset, into.len() as u64);
        let registration = match end.right {
            Right::All => return process.read(end.place, into),
            Right::Key(key) => process.nic.by_key(key, base, len),
            Right::Reg(reg) => process.nic.find(reg, base, len),
        };
        let registration = registration.expect("the end was checked");
        registration.walk(base, len, Access::Read, |part, at, run| {
            part.read(at, &mut into[(at - base) as usize..][..run as usize]);
        })
    }

    fn write_end(&self, end: End, from: &[u8]) -> Result<(), u64> {
        let (process, base, len) = (self.process(end.rank), end.place.offset, from.len() as u64);
        let registration = match end.right {
            Right::All => return process.write(end.place, from),
            Right::Key(key) => process.nic.by_key(key, base, len),
            Right::Reg(reg) => process.nic.find(reg, base, len),
        };
        let registration = registration.expect("the end was checked");
        registration.walk(base, len, Access::Full, |part, at, run| {
            part.write(at, &from[(at - base) as usize..][..run as usize]);
        })
    }

    pub(crate) fn register(&mut self, rank: Rank, reg: RegId, offset: u64, len: u64) -> Registering {
        let (latency, process) = (self.costs.latency_ns, &mut self.processes[rank as usize]);
        let before = process.nic.pinned();
        let key = match process.nic.register(reg, &process.space, offset, len) {
            Ok(key) => key,
            Err(error) => {
                self.spend(rank, self.costs.register_fixed_ns);
                return Registering::Failed(error);
            }
        };
        let bytes = self.process(rank).nic.pinned() - before;
        let done = self.spend(rank, self.costs.register_ns(bytes));
        let fails = self.weather.registering_fails();
        if let Some(later) = self.weather.registering_lasts(latency) {
            self.queue.push(done + later, Event::Registered { rank, reg, fails });
            return Registering::Pending;
        }
        if fails {
            self.unpin(rank, reg);
            return Registering::Failed(RegisterError::Limit);
        }
        self.process_mut(rank).nic.ready(reg);
        Registering::Done(key)
    }

    pub(crate) fn end_register(&mut self, rank: Rank, reg: RegId, fails: bool) {
        if matches!(self.process(rank).health, Health::Dead(_)) {
            return;
        }
        let nic = &mut self.process_mut(rank).nic;
        let Some(key) = nic.ready(reg) else { return };
        if fails {
            self.unpin(rank, reg);
        }
        let result = if fails { Err(RegisterError::Limit) } else { Ok(key) };
        self.tell(rank, Told::Registered { reg, result });
    }

    pub(crate) fn deregister(&mut self, rank: Rank, reg: RegId) -> Deregistering {
        let bytes = self.process_mut(rank).nic.revoke(reg);
        let done = self.spend(rank, self.costs.deregister_ns(bytes));
        let latency = self.costs.latency_ns;
        if let Some(later) = self.weather.registering_lasts(latency) {
            self.queue.push(done + later, Event::Deregistered { rank, reg });
            return Deregistering::Pending;
        }
        self.unpin(rank, reg);
        Deregistering::Done
    }

    pub(crate) fn end_deregister(&mut self, rank: Rank, reg: RegId) {
        self.unpin(rank, reg);
        if !matches!(self.process(rank).health, Health::Dead(_)) {
            self.tell(rank, Told::Deregistered { reg });
        }
    }

    fn unpin(&mut self, rank: Rank, reg: RegId) {
        let page_bytes = self.costs.page_bytes;
        self.process_mut(rank).nic.unpin(reg, page_bytes);
    }
}

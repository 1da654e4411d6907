//! What a card may touch, and what it does there when a copy arrives.

use engine::{Direction, Key, KeyedPiece, MemId, OpError, Place, Rank, RegId};

use crate::flight::Origin;
use crate::nic::{Registration, Unmapped};
use crate::process::Process;
use crate::space::{Space, first};
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
    /// What the key reaches begins at this offset, as the initiator has it.
    Key(Key, u64),
    Reg(RegId),
}

impl World {
    /// Copies all pieces, each checked at both ends. `Err` names the end that was at fault; what was copied
    /// before stays. Of what was given up only a put's bytes are still copied, which it `carried` away.
    pub(crate) fn copy_all(
        &mut self,
        origin: &Origin,
        peer: Rank,
        direction: Direction,
        pieces: &[KeyedPiece],
        keyed: bool,
        mut carried: &[u8],
    ) -> Result<(), OpError> {
        if keyed {
            self.check_unregistered(origin, pieces)?;
        }
        for KeyedPiece { piece, key, base, local } in pieces {
            let right = |reg: Option<RegId>| reg.map_or(Right::All, Right::Reg);
            let near = End { rank: origin.rank, place: piece.local, right: right(*local) };
            let far = if keyed { Right::Key(*key, *base) } else { Right::All };
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
            // Mostly all is as it should be, and what was found is what is copied.
            if !origin.abandoned
                && let Some(copied) = self.copy_clean(source, target, len)
            {
                copied.map_err(|(end, addr)| fault(end, addr))?;
                continue;
            }
            self.check(origin, source, len).map_err(|addr| fault(source, addr))?;
            self.check(origin, target, len).map_err(|addr| fault(target, addr))?;
            if !origin.abandoned {
                self.copy_piece(source, target, len).map_err(|(end, addr)| fault(end, addr))?;
            } else if let Some((these, rest)) = carried.split_at_checked(len as usize) {
                let target_memory = reach(&self.processes, target, len).expect("the end was checked");
                target_memory.write(these).map_err(|addr| fault(target, addr))?;
                carried = rest;
            }
        }
        Ok(())
    }

    /// The bytes of a put's local ends, as they are now; none where some cannot be read.
    pub(crate) fn carry(&self, rank: Rank, pieces: &[KeyedPiece]) -> Vec<u8> {
        let mut carried = Vec::new();
        for KeyedPiece { piece, local, .. } in pieces {
            let right = local.map_or(Right::All, Right::Reg);
            let source = End { rank, place: piece.local, right };
            let from = carried.len();
            carried.resize(from + piece.len as usize, 0);
            let read =
                reach(&self.processes, source, piece.len).map(|memory| memory.read(&mut carried[from..]));
            if !matches!(read, Ok(Ok(()))) {
                return Vec::new();
            }
        }
        carried
    }

    /// What lies at the local end and is not registered must be little.
    fn check_unregistered(&mut self, origin: &Origin, pieces: &[KeyedPiece]) -> Result<(), OpError> {
        let private = |keyed: &&KeyedPiece| keyed.local.is_none() && keyed.piece.local.mem == MemId::Space;
        let len: u64 = pieces.iter().filter(private).map(|keyed| keyed.piece.len).sum();
        let Some(first) = pieces.iter().find(private).filter(|_| len > self.costs.unregistered_max_bytes)
        else {
            return Ok(());
        };
        let Place { mem, offset } = first.piece.local;
        self.note(origin, origin.rank, offset, len, Breach::Unregistered);
        Err(OpError::LocalFault { mem, addr: offset, len })
    }

    /// Whether the card finds this end registered. What is not is noted; `Err` where the card refuses.
    fn check(&mut self, origin: &Origin, end: End, len: u64) -> Result<(), u64> {
        let at = end.place.offset;
        let found = reach(&self.processes, end, len).map(|reached| reached.unmapped(len));
        let breach = match found {
            Ok(None) => return Ok(()),
            Ok(Some(unmapped)) => {
                let heard = if end.rank == origin.rank { origin.heard_own } else { origin.heard };
                Breach::Stale { since: unmapped.since, knew: heard >= unmapped.change }
            }
            Err(breach) => breach,
        };
        self.note(origin, end.rank, at, len, breach);
        if found.is_ok() { Ok(()) } else { Err(at) }
    }

    fn note(&mut self, origin: &Origin, owner: Rank, offset: u64, len: u64, breach: Breach) {
        let (at, initiator) = (self.now, origin.rank);
        let Origin { started, serial, .. } = *origin;
        self.violations.push(Violation { at, started, serial, initiator, owner, offset, len, breach });
    }

    /// Copies, if both ends are registered and nothing there was unmapped since: `None` if not. `Err` as
    /// [`World::copy_piece`]'s.
    fn copy_clean(&mut self, source: End, target: End, len: u64) -> Option<Result<(), (End, u64)>> {
        let clean = |reached: &Reached<'_>| reached.unmapped(len).is_none();
        let from = reach(&self.processes, source, len).ok().filter(clean)?;
        let to = reach(&self.processes, target, len).ok().filter(clean)?;
        let all = first(&mut self.scratch, len);
        let read = from.read(all).map_err(|addr| (source, addr));
        Some(read.and_then(|()| to.write(all).map_err(|addr| (target, addr))))
    }

    /// Copies between ends that were checked. `Err` with the end, and the first byte there, that cannot be
    /// accessed.
    fn copy_piece(&mut self, source: End, target: End, len: u64) -> Result<(), (End, u64)> {
        let reach = |end| reach(&self.processes, end, len).expect("the end was checked");
        let all = first(&mut self.scratch, len);
        reach(source).read(all).map_err(|addr| (source, addr))?;
        reach(target).write(all).map_err(|addr| (target, addr))
    }
}

/// The memory that a card finds at an end, and where it begins there.
enum Reached<'a> {
    All(&'a Space, u64),
    Pinned(&'a Registration, u64),
}

/// What a card finds at an end, if its right to go there is good.
fn reach(processes: &[Process], end: End, len: u64) -> Result<Reached<'_>, Breach> {
    let (process, Place { mem, offset }) = (&processes[end.rank as usize], end.place);
    let registration = match end.right {
        Right::All => return Ok(Reached::All(process.memory(mem), offset)),
        Right::Key(..) | Right::Reg(_) if mem != MemId::Space => Err(Breach::Beyond),
        Right::Key(key, base) => process.nic.by_key(key, base, offset, len),
        Right::Reg(reg) => process.nic.find(reg, offset, len),
    };
    registration.map(|registration| Reached::Pinned(registration, offset))
}

impl Reached<'_> {
    /// Whether any of it was unmapped since it was pinned.
    fn unmapped(&self, len: u64) -> Option<Unmapped> {
        match self {
            Reached::All(..) => None,
            Reached::Pinned(registration, at) => registration.unmapped(*at, len),
        }
    }

    fn read(&self, into: &mut [u8]) -> Result<(), u64> {
        match *self {
            Reached::All(space, at) => space.read(at, into),
            Reached::Pinned(registration, at) => registration.read(at, into),
        }
    }

    fn write(&self, from: &[u8]) -> Result<(), u64> {
        match *self {
            Reached::All(space, at) => space.write(at, from),
            Reached::Pinned(registration, at) => registration.write(at, from),
        }
    }
}

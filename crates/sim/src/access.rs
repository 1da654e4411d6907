//! What a card may touch, and what it does there when a copy arrives.

use engine::{Direction, Key, KeyedPiece, MemId, OpError, Place, Rank, RegId};

use crate::flight::Origin;
use crate::space::{Access, first};
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
    /// Copies all pieces, each checked at both ends. `Err` names the end that was at fault; what was copied before stays.
    pub(crate) fn copy_all(
        &mut self,
        origin: &Origin,
        peer: Rank,
        direction: Direction,
        pieces: &[KeyedPiece],
        keyed: bool,
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
            self.check(origin, source, len).map_err(|addr| fault(source, addr))?;
            self.check(origin, target, len).map_err(|addr| fault(target, addr))?;
            if origin.abandoned {
                continue;
            }
            self.copy_piece(source, target, len).map_err(|(end, addr)| fault(end, addr))?;
        }
        Ok(())
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
        let (nic, at) = (&self.process(end.rank).nic, end.place.offset);
        let found = match end.right {
            Right::All => return Ok(()),
            Right::Key(..) | Right::Reg(_) if end.place.mem != MemId::Space => Err(Breach::Beyond),
            Right::Key(key, base) => nic.by_key(key, base, at, len),
            Right::Reg(reg) => nic.find(reg, at, len),
        };
        let found = found.map(|registration| registration.unmapped(at, len));
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

    /// Copies between ends that were checked. `Err` with the end, and the first byte there, that cannot be accessed.
    fn copy_piece(&mut self, source: End, target: End, len: u64) -> Result<(), (End, u64)> {
        let mut bytes = std::mem::take(&mut self.scratch);
        let all = first(&mut bytes, len);
        let copied = self
            .read_end(source, all)
            .map_err(|addr| (source, addr))
            .and_then(|()| self.write_end(target, all).map_err(|addr| (target, addr)));
        self.scratch = bytes;
        copied
    }

    fn read_end(&self, end: End, into: &mut [u8]) -> Result<(), u64> {
        let (process, at, len) = (self.process(end.rank), end.place.offset, into.len() as u64);
        let registration = match end.right {
            Right::All => return process.read(end.place, into),
            Right::Key(key, base) => process.nic.by_key(key, base, at, len),
            Right::Reg(reg) => process.nic.find(reg, at, len),
        };
        let registration = registration.expect("the end was checked");
        registration.walk(at, len, Access::Read, |part, from, run| {
            part.read(from, &mut into[(from - at) as usize..][..run as usize]);
        })
    }

    fn write_end(&self, end: End, from: &[u8]) -> Result<(), u64> {
        let (process, at, len) = (self.process(end.rank), end.place.offset, from.len() as u64);
        let registration = match end.right {
            Right::All => return process.write(end.place, from),
            Right::Key(key, base) => process.nic.by_key(key, base, at, len),
            Right::Reg(reg) => process.nic.find(reg, at, len),
        };
        let registration = registration.expect("the end was checked");
        registration.walk(at, len, Access::Full, |part, to, run| {
            part.write(to, &from[(to - at) as usize..][..run as usize]);
        })
    }
}

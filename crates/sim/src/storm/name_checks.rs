//! Operations by names of grants: how they must end, and what must lie in objects.

use engine::{Direction, GrantId, MemId, OpError, Place, Rank, Rights};

use super::counters::{ASKEW, BEYOND, Counter, Counting, GRANTED_BYTES, PLACE_BYTES};
use super::granted::{FORGED_LINE, Found, Granted, Named, Owner, SLOT_WORDS, Since};
use super::run::{Flying, Health, Run, Work};
use super::shadow::WORD;
use crate::space;

impl Run {
    /// Takes the memory back at which nobody is any more, for other objects.
    pub(super) fn take_memory_back(&mut self, rank: Rank) -> Result<(), String> {
        let Some(granted) = &mut self.granted else { return Ok(()) };
        let node = self.cluster.view(rank);
        let is_idle = |&mut (name, _): &mut (u32, u32)| node.is_grant_idle(granted.names[name as usize].id);
        let mut leaving = std::mem::take(&mut granted.owners[rank as usize].leaving);
        let left: Vec<(u32, u32)> = leaving.extract_if(.., is_idle).collect();
        granted.owners[rank as usize].leaving = leaving;
        for (name, object) in left {
            let Some(granted) = &mut self.granted else { break };
            if granted.is_left(name, object, self.step) {
                self.judge_object(rank, object)?;
                if let Some(granted) = &mut self.granted {
                    granted.free(rank, object);
                }
            }
        }
        Ok(())
    }

    /// Nothing lies in an object but what its owner and puts by its names have put there.
    fn judge_object(&mut self, rank: Rank, object: u32) -> Result<(), String> {
        let Some(granted) = &self.granted else { return Ok(()) };
        let (place, len) = (granted.place(object, 0), u64::from(SLOT_WORDS) * WORD);
        let bytes = space::first(&mut self.bytes, len);
        if self.cluster.peek(rank, place, bytes).is_err() {
            return Ok(());
        }
        let has_holes = self.shadow.was_unmapped(rank, granted.arena, Granted::arena_bytes());
        let found = Found { first: 0, bytes, has_holes };
        granted.judge_object(object, found).map_err(|what| format!("object {object} of rank {rank}: {what}"))
    }

    /// An operation by names has succeeded: it was allowed, and what it got is what they stood for.
    pub(super) fn judge_by_name(
        &mut self,
        rank: Rank,
        flying: &Flying,
        is_clean: bool,
    ) -> Result<(), String> {
        let Work::ByName { direction, named } = &flying.work else { return Ok(()) };
        let since = Since { step: flying.started, known: flying.known };
        let Some(granted) = &self.granted else { return Ok(()) };
        for piece in named {
            let name = &granted.names[piece.name as usize];
            let wrong = |what| Err(format!("rank {rank} went by a name that {what}: {name:?}, {flying:?}"));
            if piece.forged {
                return wrong("nobody made");
            }
            if !name.is_for(rank, *direction) {
                return wrong("is not for that");
            }
            if piece.at + piece.count > name.words {
                return wrong("does not go so far");
            }
            if name.incarnation != flying.met || !name.shown.iter().any(|shown| since.may_see(shown)) {
                return wrong("stood for nothing any more");
            }
            if *direction == Direction::Put || !is_clean {
                continue;
            }
            let bytes = space::first(&mut self.bytes, u64::from(piece.count) * WORD);
            let local = Place::new(MemId::Space, piece.local);
            self.cluster.peek(rank, local, bytes).map_err(|at| format!("{at:#x} is unmapped"))?;
            let is_gone = name.incarnation != self.cluster.incarnation(name.owner);
            let arena = (granted.arena, Granted::arena_bytes());
            let has_holes = is_gone || self.shadow.was_unmapped(name.owner, arena.0, arena.1);
            let found = Found { first: name.first + piece.at, bytes, has_holes };
            let judged = granted.judge_got(piece.name, since, found);
            judged.map_err(|what| format!("rank {rank} got by {name:?}: {what}"))?;
        }
        Ok(())
    }

    /// Whether an operation by names may have failed so.
    pub(super) fn explains_by_name(&self, rank: Rank, flying: &Flying, error: OpError) -> bool {
        let (Work::ByName { direction, named }, Some(granted)) = (&flying.work, &self.granted) else {
            return false;
        };
        let is_gone = flying.met != self.cluster.incarnation(flying.peer);
        let id_of = |piece: &Named| {
            let GrantId { line, generation } = granted.names[piece.name as usize].id;
            GrantId { line: if piece.forged { FORGED_LINE } else { line }, generation }
        };
        named.iter().any(|piece| {
            let name = &granted.names[piece.name as usize];
            match error {
                OpError::Revoked { grant, .. } => {
                    let is_over = piece.forged || name.revoked || name.incarnation != flying.met || is_gone;
                    grant == id_of(piece) && is_over
                }
                OpError::NotGranted { grant, rights, .. } => {
                    grant == id_of(piece)
                        && rights == Rights::from(*direction)
                        && !name.is_for(rank, *direction)
                }
                OpError::Fault { mem: MemId::Grant(generation), .. } => {
                    let is_it = generation == id_of(piece).generation;
                    let arena = (granted.arena, Granted::arena_bytes());
                    let hole = || self.shadow.had_hole(flying.peer, arena.0, arena.1, flying.started);
                    is_it && (piece.at + piece.count > name.words || is_gone || hole())
                }
                _ => false,
            }
        })
    }

    /// At the end, what names stand for is what it should be, and nothing is kept that they do not.
    pub(super) fn end_grants(&mut self, rank: Rank) -> Result<(), String> {
        let Some(granted) = &self.granted else { return Ok(()) };
        let Owner { live, leaving, .. } = &granted.owners[rank as usize];
        let names = (live.len() + granted.counters.live(rank)) as u64;
        let count = self.cluster.view(rank).grants();
        if count != names {
            return Err(format!("rank {rank} counts {count} grants, and has {names}"));
        }
        if let Some((name, object)) = leaving.first() {
            return Err(format!("rank {rank} never has object {object} back, of name {name}"));
        }
        let objects: Vec<u32> = granted.objects_of(rank).collect();
        objects.into_iter().try_for_each(|object| self.judge_object(rank, object))
    }
}

/// Atomics by counters' names.
impl Run {
    /// The words in a place for a counter. `None`: they say nothing, as some of it was unmapped.
    pub(super) fn counter_words(&mut self, rank: Rank, place: u32) -> Option<[u64; 2]> {
        let start = self.granted.as_ref()?.counter_place(place);
        let mut bytes = [0; GRANTED_BYTES as usize];
        let is_there = self.cluster.peek(rank, start, &mut bytes).is_ok();
        let is_whole = is_there && !self.shadow.was_unmapped(rank, start, PLACE_BYTES);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        is_whole.then(|| [word(0), word(8)])
    }

    /// An atomic by a counter's name has succeeded: it was allowed, and found what may have lain there.
    pub(super) fn judge_count(&mut self, rank: Rank, flying: &Flying, value: u64) -> Result<(), String> {
        let (Work::ByCounter(counting), Some(granted)) = (&flying.work, &mut self.granted) else {
            return Ok(());
        };
        let Counting { counter, atomic, forged, at, floor } = *counting;
        let start = granted.counter_place(granted.counters.all[counter as usize].place);
        let counter = &mut granted.counters.all[counter as usize];
        let wrong = |what: &str, counter: &Counter| {
            Err(format!(
                "rank {rank} went by a counter that {what}, and found {value}: {counter:?}, {flying:?}"
            ))
        };
        if forged || at != 0 {
            return wrong("is nowhere", counter);
        }
        if !counter.is_for(rank, atomic.rights()) {
            return wrong("is not for that", counter);
        }
        let is_over = counter.revoked.is_some_and(|revoked| revoked.step < flying.started);
        if is_over || counter.incarnation != flying.met {
            return wrong("was there no more", counter);
        }
        if atomic.blind {
            counter.blind += 1;
            return if value == 0 { Ok(()) } else { wrong("tells nobody", counter) };
        }
        if self.shadow.was_unmapped(counter.owner, start, PLACE_BYTES) {
            return Ok(());
        }
        let is_fine = match atomic.may_change() {
            true => value < counter.begun && counter.found.insert(value),
            false => (floor..=counter.begun).contains(&value),
        };
        if is_fine { Ok(()) } else { wrong("was something else", counter) }
    }

    /// Whether an atomic by a counter's name may have failed so.
    pub(super) fn explains_by_counter(&self, rank: Rank, flying: &Flying, error: OpError) -> bool {
        let (Work::ByCounter(counting), Some(granted)) = (&flying.work, &self.granted) else { return false };
        let Counting { counter, atomic, forged, at, .. } = *counting;
        let counter = &granted.counters.all[counter as usize];
        let is_gone = flying.met != self.cluster.incarnation(flying.peer);
        let line = if forged { FORGED_LINE } else { counter.id.line };
        let name = GrantId { line, ..counter.id };
        match error {
            OpError::Revoked { grant, offset, len: 8, .. } => {
                let is_over = forged || counter.revoked.is_some() || counter.incarnation != flying.met;
                grant == name && offset == at && (is_over || is_gone)
            }
            OpError::NotGranted { grant, rights, offset, len: 8, .. } => {
                let is_told = grant == name && offset == at && rights == atomic.rights();
                is_told && !counter.is_for(rank, rights)
            }
            OpError::Unaligned { grant, offset: ASKEW, size: 8, .. } => grant == name && at == ASKEW,
            OpError::Fault { mem, addr, len: 8, .. } => {
                let place = Place::granted(name, 0).saturating_plus(at);
                let arena = (granted.arena, Granted::arena_bytes());
                let hole = || self.shadow.had_hole(flying.peer, arena.0, arena.1, flying.started);
                place == Place::new(mem, addr) && (BEYOND.contains(&at) || is_gone || hole())
            }
            _ => false,
        }
    }

    /// At the end, counters have counted what was begun, each addition once, and none when it was too late.
    pub(super) fn end_counters(&mut self) -> Result<(), String> {
        let count = self.granted.as_ref().map_or(0, |granted| granted.counters.all.len());
        for number in 0..count {
            let Some(granted) = &self.granted else { break };
            let Counter { owner, incarnation, place, revoked, .. } = granted.counters.all[number];
            let is_there = self.cluster.incarnation(owner) == incarnation
                && self.crews[owner as usize].health != Health::Dead;
            let words = match revoked {
                Some(revoked) => revoked.words,
                None if is_there => self.counter_words(owner, place),
                None => None,
            };
            let Some(granted) = &self.granted else { break };
            let counter = &granted.counters.all[number];
            words.map_or(Ok(()), |words| counter.judge(words))?;
        }
        Ok(())
    }
}

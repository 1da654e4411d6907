//! Atomics by names: counters that owners grant.
//!
//! An owner's arena ends with places for counters. One that is granted begins with 0, and ranks add to it and
//! load it by its name. When the owner revokes that, the count is looked at, and the place is another
//! counter's soon: an atomic by the old name must not change that one.

use std::sync::Arc;

use engine::{Atomic, GrantId, MemId, OpError, Place, Rank, Rights, WordType};
use rustc_hash::FxHashSet;

use super::granted::{FORGED_LINE, Granted};
use super::run::{Flying, Health, Run, Work};

/// Counters that an owner can have at a time.
const PLACES: u32 = 4;

/// Bytes of a place: the counter, a word that is granted with it and that nobody changes, and one that is not
/// granted.
const PLACE_BYTES: u64 = 24;
const GRANTED_BYTES: u64 = 16;

/// Counters, at most, from the newest on, of which ranks take one.
const RECENT: u64 = 10;

/// Offsets at which there is no counter: not aligned, or partly or wholly beyond the grant.
const ASKEW: u64 = 4;
const BEYOND: [u64; 3] = [12, 16, 1 << 39];

/// A counter that was granted.
#[derive(Debug)]
pub(super) struct Counter {
    owner: Rank,
    /// How many processes had the owner's rank before.
    incarnation: u32,
    id: GrantId,
    place: u32,
    rights: Rights,
    to: Option<Arc<Vec<Rank>>>,
    /// Additions that were begun.
    begun: u64,
    /// What additions found that have ended; and how many have of which nobody asked for that.
    found: FxHashSet<u64>,
    blind: u64,
    revoked: Option<Revoked>,
}

/// The step at which a counter was revoked, and what lay there then, if that says anything.
#[derive(Clone, Copy, Debug)]
struct Revoked {
    step: u64,
    words: Option<[u64; 2]>,
}

impl Counter {
    fn is_for(&self, rank: Rank, rights: Rights) -> bool {
        let is_named = self.to.as_ref().is_none_or(|to| to.contains(&rank));
        self.rights.include(rights) && (rank == self.owner || is_named)
    }

    fn ended(&self) -> u64 {
        self.found.len() as u64 + self.blind
    }

    /// Judges what lies there after all that has ended.
    fn judge(&self, [count, beside]: [u64; 2]) -> Result<(), String> {
        let is_counted = (self.ended()..=self.begun).contains(&count);
        if !is_counted || beside != 0 || self.found.iter().any(|found| *found >= count) {
            return Err(format!("{count} lies there, and {beside} beside it: {self:?}"));
        }
        Ok(())
    }
}

/// The counters of all owners.
#[derive(Debug)]
pub(super) struct Counters {
    all: Vec<Counter>,
    /// By owner and place.
    live: Vec<[Option<u32>; PLACES as usize]>,
}

impl Counters {
    pub(super) fn new(ranks: u32) -> Counters {
        Counters { all: Vec::new(), live: vec![[None; PLACES as usize]; ranks as usize] }
    }

    /// Bytes at the end of an arena.
    pub(super) const fn bytes() -> u64 {
        PLACES as u64 * PLACE_BYTES
    }

    /// `rank` is another process, which has granted nothing.
    pub(super) fn restart(&mut self, rank: Rank) {
        self.live[rank as usize] = [None; PLACES as usize];
    }

    /// Counters that an owner grants.
    pub(super) fn live(&self, owner: Rank) -> usize {
        self.live[owner as usize].iter().flatten().count()
    }
}

/// An atomic by a counter's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting {
    counter: u32,
    atomic: Atomic,
    /// Nobody ever made this name.
    forged: bool,
    /// Where in the grant.
    at: u64,
    /// Of a load, so many additions had ended before.
    floor: u64,
}

impl Run {
    /// `rank` grants a counter, takes one back, or counts.
    pub(super) fn act_by_counter(&mut self, rank: Rank) {
        let place = self.dice.below(PLACES.into()) as u32;
        match self.dice.below(8) {
            0 => self.grant_counter(rank, place),
            1 => self.revoke_counter(rank, place),
            _ => self.count_by_name(rank),
        }
    }

    fn place_of(&self, place: u32) -> Place {
        let arena = self.granted.as_ref().map_or(Place::new(MemId::Space, 0), |granted| granted.arena);
        arena.plus(Granted::objects_bytes() + u64::from(place) * PLACE_BYTES)
    }

    fn grant_counter(&mut self, rank: Rank, place: u32) {
        let (start, ranks) = (self.place_of(place), u64::from(self.cluster.size()));
        let rights = self.dice.pick(&[Rights::ReadWrite, Rights::ReadWrite, Rights::Write, Rights::Read]);
        let some = self.dice.once_in(4).then(|| Arc::new(vec![self.dice.below(ranks) as Rank]));
        let Some(granted) = &mut self.granted else { return };
        let is_taken = granted.counters.live[rank as usize][place as usize].is_some();
        if is_taken || self.cluster.poke(rank, start, &[0; PLACE_BYTES as usize]).is_err() {
            return;
        }
        let (start, len, to) = (start.offset, GRANTED_BYTES, some.clone());
        let made = self.cluster.node(rank).grant(engine::Granted { start, len, rights, to: some });
        let (id, incarnation) = (made.expect("there are few of them"), self.cluster.incarnation(rank));
        let counters = &mut granted.counters;
        counters.live[rank as usize][place as usize] = Some(counters.all.len() as u32);
        counters.all.push(Counter {
            owner: rank,
            incarnation,
            id,
            place,
            rights,
            to,
            begun: 0,
            found: FxHashSet::default(),
            blind: 0,
            revoked: None,
        });
    }

    fn revoke_counter(&mut self, rank: Rank, place: u32) {
        let words = self.counter_words(rank, place);
        let Some(granted) = &mut self.granted else { return };
        let Some(counter) = granted.counters.live[rank as usize][place as usize].take() else { return };
        let counter = &mut granted.counters.all[counter as usize];
        counter.revoked = Some(Revoked { step: self.step, words });
        assert!(self.cluster.node(rank).revoke(counter.id).is_some(), "it was granted");
    }

    /// What lies in a place for a counter. `None`: it says nothing, as some of it was unmapped.
    fn counter_words(&mut self, rank: Rank, place: u32) -> Option<[u64; 2]> {
        let (start, mut bytes) = (self.place_of(place), [0; GRANTED_BYTES as usize]);
        let is_there = self.cluster.peek(rank, start, &mut bytes).is_ok();
        let is_whole = is_there && !self.shadow.was_unmapped(rank, start, PLACE_BYTES);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        is_whole.then(|| [word(0), word(8)])
    }

    /// Adds to a counter, or loads one, that may be old, another's, or nobody's.
    fn count_by_name(&mut self, rank: Rank) {
        let add = Atomic::fetch_add(1);
        let atomic = self.dice.pick(&[add, add, add.without_old(), Atomic::load(WordType::U64)]);
        let at =
            if self.dice.once_in(16) { self.dice.pick(&[ASKEW, BEYOND[0], BEYOND[1], BEYOND[2]]) } else { 0 };
        let (forged, deadline) = (self.dice.once_in(40), self.deadline(rank));
        let Some(granted) = &mut self.granted else { return };
        let all = &mut granted.counters.all;
        let count = all.len() as u64;
        if count == 0 {
            return;
        }
        let number = count - 1 - self.dice.below(count.min(RECENT));
        let counter = &mut all[number as usize];
        counter.begun += u64::from(atomic.may_change());
        let (peer, floor) = (counter.owner, counter.ended());
        let id = if forged { GrantId { line: FORGED_LINE, ..counter.id } } else { counter.id };
        let word = Place::granted(id, 0).saturating_plus(at);
        let op = self.cluster.node(rank).atomic(peer, word, atomic, deadline);
        let counting = Counting { counter: number as u32, atomic, forged, at, floor };
        self.launch(rank, peer, None, op, deadline, Work::ByCounter(counting));
    }

    /// An atomic by a counter's name has succeeded: it was allowed, and found what may have lain there.
    pub(super) fn judge_count(&mut self, rank: Rank, flying: &Flying, value: u64) -> Result<(), String> {
        let (Work::ByCounter(counting), Some(granted)) = (&flying.work, &mut self.granted) else {
            return Ok(());
        };
        let Counting { counter, atomic, forged, at, floor } = *counting;
        let counter = &mut granted.counters.all[counter as usize];
        let start = granted.arena.plus(Granted::objects_bytes() + u64::from(counter.place) * PLACE_BYTES);
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
            let is_there = self.cluster.incarnation(owner) == incarnation && !self.is(owner, Health::Dead);
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

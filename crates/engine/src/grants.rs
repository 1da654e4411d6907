//! A process's grants: ranges of its memory that peers reach by a name, until the grant is revoked.
//!
//! A name is a line of the owner's table and that line's generation, which is another one for each grant that
//! the line ever has. So a name that was revoked means nothing for ever, whoever has the memory then, and
//! nobody else's grant is reached by it. A [`Place`] in a grant has the generation as part of its memory, the
//! line in its offset's upper bits, and where in the grant it is in the lower ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::grant_id::{GENERATIONS, GRANT_BYTES, GRANTS_MAX, OFFSET_BITS};
use crate::{Direction, GrantId, OpError, Place, Rank, Rights};

/// An Active Message tells a generation's rest by this.
const TOLD: u32 = 16;

/// Why memory is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGranted {
    /// It has no bytes.
    Empty,
    /// It has more bytes than a grant may have, or goes beyond the last address.
    TooLong,
    /// There are as many grants as there may be.
    Full,
}

/// Memory that is granted.
#[derive(Clone, Debug)]
pub struct Granted {
    /// Where it begins in the owner's space.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The accesses that peers may make.
    pub rights: Rights,
    /// The peers that may, in rising order. `None`: every one.
    pub to: Option<Arc<Vec<Rank>>>,
}

impl Granted {
    pub(crate) fn is_for(&self, peer: Rank) -> bool {
        is_for(&self.to, peer)
    }
}

fn is_for(to: &Option<Arc<Vec<Rank>>>, peer: Rank) -> bool {
    to.as_ref().is_none_or(|ranks| ranks.binary_search(&peer).is_ok())
}

/// A line of the table, as small as it can be: a process may have a million grants.
#[derive(Debug)]
struct Line {
    start: u64,
    /// 0: no grant is there, as each has bytes.
    len: u64,
    to: Option<Arc<Vec<Rank>>>,
    /// Of the grant that is there, or that will be there next.
    generation: u32,
    rights: Rights,
}

impl Line {
    fn empty(generation: u32) -> Line {
        Line { start: 0, len: 0, to: None, generation, rights: Rights::Read }
    }

    fn is_granted(&self) -> bool {
        self.len != 0
    }

    fn granted(&self) -> Granted {
        Granted { start: self.start, len: self.len, rights: self.rights, to: self.to.clone() }
    }

    fn is_for(&self, peer: Rank) -> bool {
        is_for(&self.to, peer)
    }
}

/// All grants of a process.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    lines: Vec<Line>,
    /// Lines without a grant: the last one is the next to have one.
    free: Vec<u32>,
    /// The lines' first generations are drawn by it, so that another process's names mean nothing here.
    seed: u64,
    /// The grants that are there, by how long they are about, where their memory begins, and their line: from
    /// when it is asked for by address.
    by_address: Option<BTreeSet<(u32, u64, u32)>>,
}

/// Grants of one length, about, that are looked at, at most, for one that covers memory.
const LOOKS: usize = 64;

/// How long a grant is, about: of all of a class the longest is less than twice the shortest.
const fn class(len: u64) -> u32 {
    if len == 0 { 0 } else { len.ilog2() }
}

impl Grants {
    /// From now on new lines' generations are drawn by this.
    pub(crate) fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    pub(crate) fn grant(&mut self, granted: Granted) -> Result<GrantId, NotGranted> {
        if granted.len == 0 {
            return Err(NotGranted::Empty);
        }
        if granted.len >= GRANT_BYTES || granted.start.checked_add(granted.len).is_none() {
            return Err(NotGranted::TooLong);
        }
        let line = match self.free.pop() {
            Some(line) => line,
            None if self.lines.len() < GRANTS_MAX as usize => {
                let line = self.lines.len() as u32;
                self.lines.push(Line::empty(self.first(line)));
                line
            }
            None => return Err(NotGranted::Full),
        };
        if let Some(by_address) = &mut self.by_address {
            by_address.insert((class(granted.len), granted.start, line));
        }
        let generation = self.lines[line as usize].generation;
        let Granted { start, len, rights, to } = granted;
        self.lines[line as usize] = Line { start, len, to, generation, rights };
        Ok(GrantId { line, generation })
    }

    /// Ends a grant. `None`: there is none such.
    pub(crate) fn revoke(&mut self, grant: GrantId) -> Option<Granted> {
        let first = self.first(grant.line);
        let granted = self.get(grant)?;
        if let Some(by_address) = &mut self.by_address {
            by_address.remove(&(class(granted.len), granted.start, grant.line));
        }
        let line = &mut self.lines[grant.line as usize];
        *line = Line::empty((grant.generation + 1) % GENERATIONS);
        // A line that has had all of them is never used again.
        if line.generation != first {
            self.free.push(grant.line);
        }
        Some(granted)
    }

    /// Has a grant name other memory of the same length. `None`: there is no such grant. Returns where its
    /// memory began until now.
    pub(crate) fn repoint(&mut self, grant: GrantId, start: u64) -> Option<u64> {
        self.line(grant)?;
        let line = &mut self.lines[grant.line as usize];
        let (old, class) = (std::mem::replace(&mut line.start, start), class(line.len));
        if let Some(by_address) = &mut self.by_address {
            by_address.remove(&(class, old, grant.line));
            by_address.insert((class, start, grant.line));
        }
        Some(old)
    }

    pub(crate) fn get(&self, grant: GrantId) -> Option<Granted> {
        self.line(grant).map(Line::granted)
    }

    fn line(&self, grant: GrantId) -> Option<&Line> {
        let line = self.lines.get(grant.line as usize)?;
        Some(line).filter(|line| line.generation == grant.generation && line.is_granted())
    }

    /// Where in this process's space those bytes lie that a peer reaches by a grant. `owner` is this process,
    /// which may do what the rights say as well. The error is the initiator's.
    pub(crate) fn resolve(
        &self,
        owner: Rank,
        peer: Rank,
        rights: Rights,
        (place, len): (Place, u64),
    ) -> Result<u64, OpError> {
        let fault = OpError::Fault { peer: owner, mem: place.mem, addr: place.offset, len };
        let (grant, offset) = place.in_grant().ok_or(fault)?;
        let granted = self.line(grant).ok_or(OpError::Revoked { peer: owner, grant, offset, len })?;
        if !(granted.rights.include(rights) && (peer == owner || granted.is_for(peer))) {
            return Err(OpError::NotGranted { peer: owner, grant, rights, offset, len });
        }
        match offset.checked_add(len) {
            Some(end) if end <= granted.len => Ok(granted.start + offset),
            _ => Err(fault),
        }
    }

    /// A grant that covers all of these bytes of this process's space, for such an access by a peer; where it
    /// begins, and how many bytes it has. Of several that do, one of the shortest.
    pub(crate) fn covering(
        &mut self,
        owner: Rank,
        peer: Rank,
        direction: Direction,
        (addr, len): (u64, u64),
    ) -> Option<(GrantId, u64, u64)> {
        let lines = &self.lines;
        let by_address = self.by_address.get_or_insert_with(|| {
            let granted = (0..).zip(lines).filter(|(_, line)| line.is_granted());
            granted.map(|(at, line)| (class(line.len), line.start, at)).collect()
        });
        let near = |long: u32| {
            let first = addr.saturating_sub(1 << (long + 1));
            by_address.range((long, first, 0)..=(long, addr, u32::MAX)).rev().take(LOOKS)
        };
        (class(len)..OFFSET_BITS).flat_map(near).copied().find_map(|(_, start, at)| {
            let line = &lines[at as usize];
            let covers = len <= line.len && addr - start <= line.len - len;
            let may = line.rights.allow(direction) && (peer == owner || line.is_for(peer));
            let grant = GrantId { line: at, generation: line.generation };
            (covers && may).then_some((grant, start, line.len))
        })
    }

    /// The grant that a peer's message says it has put so many bytes into, if it may: the message has but the
    /// lower bits of its generation. Where in it, and how many bytes it has.
    pub(crate) fn landed(&self, peer: Rank, (place, len): (Place, u64)) -> Option<(GrantId, u64, u64)> {
        let (told, offset) = place.in_grant()?;
        let line = self.lines.get(told.line as usize)?;
        let is_told = line.is_granted() && line.generation % TOLD == told.generation % TOLD;
        let may = is_told && line.rights.allow(Direction::Put) && line.is_for(peer);
        let fits = offset.checked_add(len).is_some_and(|end| end <= line.len);
        (may && fits).then_some((GrantId { generation: line.generation, ..told }, offset, line.len))
    }

    /// Grants that are there.
    pub(crate) fn count(&self) -> u64 {
        self.lines.iter().filter(|line| line.is_granted()).count() as u64
    }

    /// The generation that a line begins with, by Steele, Lea and Flood's SplitMix64.
    fn first(&self, line: u32) -> u32 {
        let mut mixed = self.seed.wrapping_add((u64::from(line) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 32) as u32 % GENERATIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(start: u64, len: u64) -> Granted {
        Granted { start, len, rights: Rights::ReadWrite, to: None }
    }

    fn at(grant: GrantId, offset: u64, len: u64) -> (Place, u64) {
        (Place::granted(grant, offset), len)
    }

    #[test]
    fn a_name_reaches_its_memory_and_nothing_once_it_is_revoked() {
        let mut grants = Grants::default();
        let first = grants.grant(granted(1000, 10)).expect("there is room");
        assert_eq!(grants.resolve(0, 1, Rights::Write, at(first, 3, 7)), Ok(1003));
        assert!(grants.revoke(first).is_some() && grants.revoke(first).is_none());
        let second = grants.grant(granted(1000, 10)).expect("there is room");
        assert_eq!((second.line, second.generation), (first.line, (first.generation + 1) % GENERATIONS));
        let revoked = OpError::Revoked { peer: 0, grant: first, offset: 3, len: 7 };
        assert_eq!(grants.resolve(0, 1, Rights::Write, at(first, 3, 7)), Err(revoked));
        assert_eq!((grants.resolve(0, 1, Rights::Read, at(second, 0, 10)), grants.count()), (Ok(1000), 1));
    }

    #[test]
    fn what_is_beyond_a_grants_end_reaches_no_other_one() {
        let mut grants = Grants::default();
        let all: Vec<GrantId> =
            (0..64).map(|at| grants.grant(granted(at * 100, 10)).expect("there is room")).collect();
        for beyond in [10, 11, GRANT_BYTES - 1, GRANT_BYTES, 2 * GRANT_BYTES, u64::MAX] {
            let place = Place::granted(all[3], 0).saturating_plus(beyond);
            assert!(matches!(
                grants.resolve(0, 1, Rights::Read, (place, 1)),
                Err(OpError::Fault { peer: 0, .. })
            ));
        }
        let before = Place::granted(all[3], 0).wrapping_plus(1_u64.wrapping_neg());
        assert!(grants.resolve(0, 1, Rights::Read, (before, 1)).is_err());
        assert!(grants.resolve(0, 1, Rights::Read, at(all[3], 9, 2)).is_err(), "a part of it is beyond");
        assert_eq!(grants.resolve(0, 1, Rights::Read, at(all[3], 9, 1)), Ok(309));
    }

    #[test]
    fn rights_and_peers_are_looked_at() {
        let mut grants = Grants::default();
        let to = Some(Arc::new(vec![2, 5]));
        let read = Granted { rights: Rights::Read, to, ..granted(0, 8) };
        let grant = grants.grant(read).expect("there is room");
        for (peer, rights, is_fine) in [
            (2, Rights::Read, true),
            (5, Rights::Write, false),
            (5, Rights::ReadWrite, false),
            (3, Rights::Read, false),
            (0, Rights::Read, true),
        ] {
            let refused = OpError::NotGranted { peer: 0, grant, rights, offset: 0, len: 8 };
            let expected = if is_fine { Ok(0) } else { Err(refused) };
            assert_eq!(grants.resolve(0, peer, rights, at(grant, 0, 8)), expected, "{peer} {rights:?}");
        }
    }

    #[test]
    fn a_grant_is_found_by_the_address_of_memory_that_it_covers() {
        let mut grants = Grants::default();
        let early = grants.grant(granted(5000, 100)).expect("there is room");
        let find = |grants: &mut Grants, addr, len| {
            grants.covering(0, 1, Direction::Get, (addr, len)).map(|(grant, start, _)| (grant, start))
        };
        assert_eq!(find(&mut grants, 5000, 100), Some((early, 5000)));
        let late = grants.grant(granted(1000, 8000)).expect("there is room");
        for (addr, len, found) in [
            (999, 1, None),
            (1000, 8000, Some((late, 1000))),
            (1000, 8001, None),
            (5050, 50, Some((early, 5000))),
            (5050, 51, Some((late, 1000))),
            (8999, 1, Some((late, 1000))),
            (9000, 1, None),
            (8000, u64::MAX, None),
            (u64::MAX, 1, None),
        ] {
            assert_eq!(find(&mut grants, addr, len), found, "{addr} {len}");
        }
        grants.repoint(late, 20_000);
        assert_eq!([find(&mut grants, 1000, 1), find(&mut grants, 20_000, 9)], [None, Some((late, 20_000))]);
        grants.revoke(early);
        assert_eq!(find(&mut grants, 5050, 50), None);
        let others = grants.grant(Granted { to: Some(Arc::new(vec![7])), ..granted(5000, 100) });
        assert!(others.is_ok() && find(&mut grants, 5050, 50).is_none());
        // One that lies under thousands of short ones.
        let long = grants.grant(granted(1 << 20, 1 << 25)).expect("there is room");
        (0..2048).for_each(|block| _ = grants.grant(granted((1 << 20) + (block << 14), 1 << 14)));
        let across = (1 << 20) + (2000 << 14) - 8;
        assert_eq!(find(&mut grants, across, 16), Some((long, 1 << 20)));
    }

    #[test]
    fn no_grant_is_empty_or_longer_than_one_may_be() {
        let mut grants = Grants::default();
        for (start, len, why) in [
            (0, 0, NotGranted::Empty),
            (0, GRANT_BYTES, NotGranted::TooLong),
            (0, 1 << 63, NotGranted::TooLong),
            (u64::MAX, 2, NotGranted::TooLong),
        ] {
            assert_eq!(grants.grant(granted(start, len)), Err(why));
        }
        assert!(grants.grant(granted(0, GRANT_BYTES - 1)).is_ok());
    }

    #[test]
    fn a_line_that_has_had_all_its_generations_is_left_alone() {
        let mut grants = Grants::default();
        let first = grants.grant(granted(0, 1)).expect("there is room");
        grants.lines[0].generation = (first.generation + GENERATIONS - 1) % GENERATIONS;
        let last = GrantId { line: 0, generation: grants.lines[0].generation };
        assert!(grants.revoke(last).is_some());
        assert_eq!(grants.grant(granted(0, 1)).map(|grant| grant.line), Ok(1));
        assert!(grants.get(first).is_none());
    }

    #[test]
    fn another_seeds_names_mean_nothing() {
        let mut grants = [Grants::default(), Grants::default()];
        grants[1].set_seed(7);
        let names = grants.each_mut().map(|grants| {
            let all: Vec<_> =
                (0..1000).map(|_| grants.grant(granted(0, 1)).expect("there is room")).collect();
            all
        });
        assert!(names[0].iter().all(|grant| grants[1].get(*grant).is_none()));
    }

    #[test]
    fn ids_go_through_words_and_strangers_are_none() {
        for (line, generation) in [(0, 0), ((1 << 24) - 1, GENERATIONS - 1), (7, 9)] {
            let grant = GrantId { line, generation };
            assert_eq!(GrantId::from_word(grant.to_word()), Some(grant));
            assert_eq!(Place::granted(grant, 5).in_grant(), Some((grant, 5)));
        }
        assert!([1 << 24, u64::MAX, 1 << 60].into_iter().all(|word| GrantId::from_word(word).is_none()));
    }
}

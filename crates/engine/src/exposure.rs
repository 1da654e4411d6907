//! The private memory that a process lets its peers read and write: everything, or ranges.
//!
//! The owner asks before it does what a message asks for, and before it hands out a key. Ranges may overlap,
//! and each counts until it is withdrawn: memory is exposed as long as any range that covers it is.

use std::collections::BTreeMap;

use crate::Direction;

/// The accesses that peers may make to memory. There is nothing else to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Get it, and load words of it.
    Read,
    /// Put to it, and change words of it by atomics that tell nobody what was there before.
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    /// Whether a transfer of that direction, as the peer calls it, needs no more than these.
    pub const fn allow(self, direction: Direction) -> bool {
        matches!(
            (self, direction),
            (Rights::ReadWrite, _) | (Rights::Read, Direction::Get) | (Rights::Write, Direction::Put)
        )
    }

    /// Whether these are all of `wanted`, or more.
    pub const fn include(self, wanted: Rights) -> bool {
        matches!(
            (self, wanted),
            (Rights::ReadWrite, _) | (Rights::Read, Rights::Read) | (Rights::Write, Rights::Write)
        )
    }
}

/// The rights that a transfer of that direction needs.
impl From<Direction> for Rights {
    fn from(direction: Direction) -> Rights {
        if direction == Direction::Put { Rights::Write } else { Rights::Read }
    }
}

/// The ranges that are exposed.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    readable: Covered,
    writable: Covered,
}

impl Ranges {
    /// Exposes `len` bytes from `start` on. A range that would go beyond the last address ends there.
    pub(crate) fn expose(&mut self, start: u64, len: u64, rights: Rights) {
        self.each(rights, |covered| covered.add(start, start.saturating_add(len)));
    }

    /// Withdraws what was exposed by the same call of [`Ranges::expose`].
    pub(crate) fn withdraw(&mut self, start: u64, len: u64, rights: Rights) {
        self.each(rights, |covered| covered.remove(start, start.saturating_add(len)));
    }

    fn each(&mut self, rights: Rights, change: impl Fn(&mut Covered)) {
        let all = [(Direction::Get, &mut self.readable), (Direction::Put, &mut self.writable)];
        all.into_iter()
            .filter(|(direction, _)| rights.allow(*direction))
            .for_each(|(_, covered)| change(covered));
    }

    /// Whether a peer may do that with all of these bytes.
    pub(crate) fn allow(&self, direction: Direction, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        match direction {
            Direction::Get => self.readable.has(start, end),
            Direction::Put => self.writable.has(start, end),
        }
    }
}

/// Addresses that ranges cover: by its start, each run of those that equally many ranges cover, its end and
/// how many that are. Runs that touch are covered by different numbers, so there are at most two for each
/// range.
#[derive(Debug, Default)]
struct Covered(BTreeMap<u64, (u64, u32)>);

impl Covered {
    fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let mut gaps = Vec::new();
        let mut at = start;
        for (first, (last, count)) in self.0.range_mut(start..end) {
            if at < *first {
                gaps.push((at, *first));
            }
            *count += 1;
            at = *last;
        }
        if at < end {
            gaps.push((at, end));
        }
        self.0.extend(gaps.into_iter().map(|(first, last)| (first, (last, 1))));
        self.tidy(start, end);
    }

    fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        for (_, (_, count)) in self.0.range_mut(start..end) {
            *count = count.saturating_sub(1);
        }
        let gone: Vec<u64> =
            self.0.range(start..end).filter(|(_, (_, count))| *count == 0).map(|(first, _)| *first).collect();
        gone.iter().for_each(|first| _ = self.0.remove(first));
        self.tidy(start, end);
    }

    /// Cuts the run that lies over `at`, if one begins before it.
    fn split(&mut self, at: u64) {
        if let Some((_, (last, count))) = self.0.range_mut(..at).next_back()
            && *last > at
        {
            let rest = (std::mem::replace(last, at), *count);
            self.0.insert(at, rest);
        }
    }

    /// Joins runs that touch, from that before `start` to that from `end` on, where they are covered alike.
    fn tidy(&mut self, start: u64, end: u64) {
        let before = self.0.range(..start).next_back().map_or(start, |(first, _)| *first);
        let firsts: Vec<u64> = self.0.range(before..=end).map(|(first, _)| *first).collect();
        for pair in firsts.windows(2).rev() {
            let (Some((last, count)), Some(next)) =
                (self.0.get(&pair[0]).copied(), self.0.get(&pair[1]).copied())
            else {
                continue;
            };
            if (last, count) == (pair[1], next.1) {
                self.0.remove(&pair[1]);
                self.0.insert(pair[0], (next.0, count));
            }
        }
    }

    fn has(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            match self.0.range(..=at).next_back() {
                Some((_, (last, _))) if *last > at => at = *last,
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RIGHTS: [Rights; 3] = [Rights::Read, Rights::Write, Rights::ReadWrite];

    #[test]
    fn ranges_that_touch_are_as_one_and_no_bytes_are_always_there() {
        let mut ranges = Ranges::default();
        ranges.expose(100, 50, Rights::Read);
        ranges.expose(150, 50, Rights::ReadWrite);
        assert!(ranges.allow(Direction::Get, 100, 100) && !ranges.allow(Direction::Get, 99, 2));
        assert!(!ranges.allow(Direction::Put, 149, 2) && ranges.allow(Direction::Put, 150, 50));
        assert!(ranges.allow(Direction::Put, 7, 0) && !ranges.allow(Direction::Get, u64::MAX, 2));
        ranges.withdraw(150, 50, Rights::ReadWrite);
        assert!(ranges.allow(Direction::Get, 100, 50) && !ranges.allow(Direction::Get, 100, 51));
    }

    #[test]
    fn a_range_that_comes_and_goes_within_another_leaves_nothing_behind() {
        let mut ranges = Ranges::default();
        ranges.expose(0, 1000, Rights::ReadWrite);
        for at in 1..100 {
            ranges.expose(at, at, Rights::ReadWrite);
            ranges.withdraw(at, at, Rights::ReadWrite);
        }
        assert_eq!((ranges.readable.0.len(), ranges.writable.0.len()), (1, 1));
    }

    proptest! {
        #[test]
        fn each_byte_is_exposed_as_long_as_a_range_covers_it(
            steps in proptest::collection::vec((0_u64..60, 0_u64..20, 0_usize..3, any::<bool>()), 1..60),
            asked in (0_u64..80, 0_u64..20),
        ) {
            let (mut ranges, mut live) = (Ranges::default(), Vec::new());
            for (start, len, rights, goes) in steps {
                match live.pop() {
                    Some((start, len, rights)) if goes => ranges.withdraw(start, len, rights),
                    other => {
                        live.extend(other);
                        ranges.expose(start, len, RIGHTS[rights]);
                        live.insert(live.len() / 2, (start, len, RIGHTS[rights]));
                    }
                }
                for (direction, covered) in
                    [(Direction::Get, &ranges.readable), (Direction::Put, &ranges.writable)]
                {
                    let has = |at: u64| live.iter().any(|(start, len, rights)| {
                        rights.allow(direction) && (*start..start + len).contains(&at)
                    });
                    let (at, len) = asked;
                    prop_assert_eq!(ranges.allow(direction, at, len), (at..at + len).all(has));
                    prop_assert!(covered.0.len() <= 2 * live.len());
                }
            }
        }
    }
}

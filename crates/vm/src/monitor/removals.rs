//! Removals of pages (`MADV_DONTNEED` and its kin) that were announced and may not be over.
//!
//! The kernel announces a removal, lets its caller go on when the announcement is read, and only then takes
//! the pages away. Memory that is pinned between is stale when the removal is over, and nothing tells when
//! that is. So memory under an announced removal is not to be kept registered until the removal is *shown* to
//! be over: when each thread of the process has been seen elsewhere since ([`super::threads`]).
//!
//! Until then the range stays in doubt. That costs time, never truth: its transfers are not kept registered.

use std::array;

use crate::sync::{AtomicU64, Ordering};

/// Ranges in doubt at a time; if there are more, some are taken together with what lies between.
pub(super) const RANGES: usize = 64;

/// The ranges in doubt, for all to see. Whole only between two looks at a sequence word that found it even
/// and the same.
pub(super) struct InDoubt {
    count: AtomicU64,
    ranges: [Shown; RANGES],
    /// The last removal that is over, as all before it.
    over: AtomicU64,
}

/// A [`Removal`], for all to see.
struct Shown {
    start: AtomicU64,
    end: AtomicU64,
    last: AtomicU64,
}

impl InDoubt {
    pub(super) fn new() -> InDoubt {
        let zero = || AtomicU64::new(0);
        let ranges = array::from_fn(|_| Shown { start: zero(), end: zero(), last: zero() });
        InDoubt { count: zero(), ranges, over: zero() }
    }

    /// Whether one of them touches the range.
    pub(super) fn touch(&self, start: u64, end: u64) -> bool {
        let touches = |shown: &Shown| {
            shown.start.load(Ordering::Relaxed) < end && start < shown.end.load(Ordering::Relaxed)
        };
        self.all().any(touches)
    }

    /// How many they are.
    pub(super) fn count(&self) -> u64 {
        self.all().count() as u64
    }

    /// The removal of that number is over, and all before it.
    pub(super) fn end(&self, last: u64) {
        self.over.fetch_max(last, Ordering::Relaxed);
    }

    /// The last removal that is over, as all before it.
    pub(super) fn over(&self) -> u64 {
        self.over.load(Ordering::Relaxed)
    }

    /// Shows these. Only while the sequence word is odd.
    pub(super) fn show(&self, removals: &[Removal]) {
        for (shown, removal) in self.ranges.iter().zip(removals) {
            shown.start.store(removal.start, Ordering::Relaxed);
            shown.end.store(removal.end, Ordering::Relaxed);
            shown.last.store(removal.last, Ordering::Relaxed);
        }
        self.count.store(removals.len() as u64, Ordering::Relaxed);
    }

    fn all(&self) -> impl Iterator<Item = &Shown> {
        let (count, over) = (self.count.load(Ordering::Relaxed) as usize, self.over());
        self.ranges[..count.min(RANGES)].iter().filter(move |shown| shown.last.load(Ordering::Relaxed) > over)
    }
}

/// A removal that may not be over, or some that are taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The number of the last one: they are counted from 1 as they are announced.
    pub(super) last: u64,
}

impl Removal {
    fn with(self, other: Removal) -> Removal {
        let (start, end) = (self.start.min(other.start), self.end.max(other.end));
        Removal { start, end, last: self.last.max(other.last) }
    }
}

/// Takes note of one more removal, and forgets those up to `over`. Allocates nothing, if there is room for
/// [`RANGES`].
pub(super) fn add(removals: &mut Vec<Removal>, mut new: Removal, over: u64) {
    removals.retain(|removal| removal.last > over);
    while let Some(at) = removals.iter().position(|old| old.start < new.end && new.start < old.end) {
        new = removals.swap_remove(at).with(new);
    }
    if removals.len() >= RANGES {
        let gap = |old: &Removal| old.start.saturating_sub(new.end).max(new.start.saturating_sub(old.end));
        let nearest = (0..removals.len()).min_by_key(|at| gap(&removals[*at]));
        let nearest = removals.swap_remove(nearest.expect("they are many"));
        return add(removals, nearest.with(new), over);
    }
    removals.push(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(start: u64, end: u64, last: u64) -> Removal {
        Removal { start, end, last }
    }

    #[test]
    fn those_that_overlap_become_one_that_is_over_with_the_last() {
        let mut removals = Vec::with_capacity(RANGES);
        add(&mut removals, removal(10, 20, 1), 0);
        add(&mut removals, removal(20, 30, 2), 0);
        assert_eq!(removals, [removal(10, 20, 1), removal(20, 30, 2)]);
        add(&mut removals, removal(15, 25, 3), 0);
        assert_eq!(removals, [removal(10, 30, 3)]);
        let shown = InDoubt::new();
        shown.show(&removals);
        shown.end(2);
        assert!(shown.touch(29, 30) && shown.count() == 1);
        shown.end(3);
        shown.end(1);
        assert!(!shown.touch(29, 30) && shown.count() == 0 && shown.over() == 3);
        add(&mut removals, removal(40, 50, 4), 3);
        assert_eq!(removals, [removal(40, 50, 4)]);
    }

    #[test]
    fn too_many_are_taken_together_and_none_is_forgotten() {
        let mut removals = Vec::with_capacity(RANGES);
        let shown = InDoubt::new();
        for at in 0..10 * RANGES as u64 {
            add(&mut removals, removal(at * 100, at * 100 + 10, at + 1), 0);
            shown.show(&removals);
            assert!((0..=at).all(|at| shown.touch(at * 100 + 9, at * 100 + 10)));
        }
        assert_eq!((removals.len(), removals.capacity()), (RANGES, RANGES));
        assert!(!shown.touch(100 * 10 * RANGES as u64, u64::MAX));
        shown.show(&removals[..1]);
        assert_eq!(shown.count(), 1);
    }
}

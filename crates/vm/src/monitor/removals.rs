//! Removals of pages (`MADV_DONTNEED` and its kin) that were announced and may not be over.
//!
//! The kernel announces a removal, lets its caller go on when the announcement is read, and only then takes the pages
//! away. What is pinned between is stale when the removal is over, and nothing tells when that is. So memory under an
//! announced removal is not to be kept registered until the removal is *shown* to be over:
//!
//! - A page of the range that was there when the announcement had been read, and then is not, was taken away by the
//!   removal: it has begun. The kernel removes a range in one go under the lock of the process's mappings, for reading;
//!   so it is over when that lock has been had for writing.
//! - Nothing is mapped there any more: there is nothing to be stale.
//!
//! Neither is seen where the removal was over before the first look, or where the pages were written again before the
//! second. Such a range stays in doubt. That costs time, never truth: its transfers are not kept registered.

use std::array;

use crate::sync::{AtomicU64, Ordering};

/// Ranges in doubt at a time; if there are more, some are taken together with what lies between.
pub(super) const RANGES: usize = 64;
/// Pages of a range that are looked at again.
pub(super) const WITNESSES: usize = 8;

/// The ranges in doubt, for all to see. Whole only between two looks at a sequence word that found it even and the same.
pub(super) struct InDoubt {
    count: AtomicU64,
    ranges: [(AtomicU64, AtomicU64); RANGES],
}

impl InDoubt {
    pub(super) fn new() -> InDoubt {
        let range = |_| (AtomicU64::new(0), AtomicU64::new(0));
        InDoubt { count: AtomicU64::new(0), ranges: array::from_fn(range) }
    }

    /// Whether one of them touches the range.
    pub(super) fn touch(&self, start: u64, end: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed) as usize;
        let touches = |(from, to): &(AtomicU64, AtomicU64)| {
            from.load(Ordering::Relaxed) < end && start < to.load(Ordering::Relaxed)
        };
        self.ranges[..count.min(RANGES)].iter().any(touches)
    }

    /// How many they are.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Shows these. Only while the sequence word is odd.
    pub(super) fn show(&self, removals: &[Removal]) {
        for (shown, removal) in self.ranges.iter().zip(removals) {
            shown.0.store(removal.start, Ordering::Relaxed);
            shown.1.store(removal.end, Ordering::Relaxed);
        }
        self.count.store(removals.len() as u64, Ordering::Relaxed);
    }
}

/// A removal that may not be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Pages that were there when it had been announced.
    witnesses: [u64; WITNESSES],
    count: usize,
}

impl Removal {
    /// A removal of which the first `count` witnesses were there.
    pub(super) fn new(start: u64, end: u64, witnesses: [u64; WITNESSES], count: usize) -> Removal {
        Removal { start, end, witnesses, count }
    }

    /// Pages whose being gone shows that it has begun.
    pub(super) fn witnesses(&self) -> &[u64] {
        &self.witnesses[..self.count]
    }

    /// Both, of which no page can be a witness: it would not say of which.
    fn with(self, other: Removal) -> Removal {
        let (start, end) = (self.start.min(other.start), self.end.max(other.end));
        Removal { start, end, count: 0, ..self }
    }
}

/// Takes note of one more removal. Allocates nothing, if there is room for [`RANGES`].
pub(super) fn add(removals: &mut Vec<Removal>, mut new: Removal) {
    // Two removals of one page: whichever took it away, the other may not have begun.
    while let Some(at) = removals.iter().position(|old| old.start < new.end && new.start < old.end) {
        new = removals.swap_remove(at).with(new);
    }
    if removals.len() >= RANGES {
        let gap = |old: &Removal| old.start.saturating_sub(new.end).max(new.start.saturating_sub(old.end));
        let nearest = (0..removals.len()).min_by_key(|at| gap(&removals[*at]));
        let nearest = removals.swap_remove(nearest.expect("they are many"));
        return add(removals, nearest.with(new));
    }
    removals.push(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(start: u64, end: u64) -> Removal {
        Removal::new(start, end, [start; WITNESSES], 1)
    }

    #[test]
    fn those_that_touch_become_one_without_witnesses() {
        let mut removals = Vec::with_capacity(RANGES);
        add(&mut removals, removal(10, 20));
        add(&mut removals, removal(20, 30));
        assert_eq!(removals, [removal(10, 20), removal(20, 30)]);
        add(&mut removals, removal(15, 25));
        assert_eq!((removals[0].start, removals[0].end, removals.len()), (10, 30, 1));
        assert!(removals[0].witnesses().is_empty());
    }

    #[test]
    fn too_many_are_taken_together_and_none_is_forgotten() {
        let mut removals = Vec::with_capacity(RANGES);
        let shown = InDoubt::new();
        for at in 0..10 * RANGES as u64 {
            add(&mut removals, removal(at * 100, at * 100 + 10));
            shown.show(&removals);
            assert!((0..=at).all(|at| shown.touch(at * 100 + 9, at * 100 + 10)));
        }
        assert_eq!((removals.len(), removals.capacity()), (RANGES, RANGES));
        assert!(!shown.touch(100 * 10 * RANGES as u64, u64::MAX));
        shown.show(&removals[..1]);
        assert_eq!(shown.count(), 1);
    }
}

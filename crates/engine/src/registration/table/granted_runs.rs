//! The runs of granted memory, by what they are looked for.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::GrantId;
use crate::registration::Run;
use crate::registration::extent::Extent;

/// How many buckets a run has, about: of all of a class the longest is less than twice the shortest.
pub(super) fn class(run: Run) -> u32 {
    run.count.ilog2()
}

/// The registrations of granted memory, by what they are looked for.
#[derive(Default)]
pub(super) struct GrantedRuns {
    /// By the places of runs.
    pub(super) extents: HashMap<u32, Extent>,
    /// The runs that stand for grants now.
    pub(super) current: HashMap<GrantId, u32>,
    /// How many runs each grant has, those that are on their way out included.
    pub(super) counts: HashMap<GrantId, u32>,
    /// The current ones: by how long they are, about, and where they begin.
    pub(super) by_address: BTreeSet<(u32, u64, u32)>,
}

impl GrantedRuns {
    pub(super) fn add(&mut self, at: u32, extent: Extent, run: Run) {
        self.extents.insert(at, extent);
        self.current.insert(extent.grant, at);
        *self.counts.entry(extent.grant).or_default() += 1;
        self.by_address.insert((class(run), run.first, at));
    }

    /// The memory of a run, if it is a grant's.
    pub(super) fn extent(&self, at: u32) -> Option<Extent> {
        self.extents.get(&at).copied()
    }

    /// A run is to be found no more. `false`: it is no grant's.
    pub(super) fn forget(&mut self, at: u32, run: Run) -> bool {
        let Some(extent) = self.extents.get(&at) else { return false };
        if self.current.get(&extent.grant) == Some(&at) {
            self.current.remove(&extent.grant);
            self.by_address.remove(&(class(run), run.first, at));
        }
        true
    }

    /// A run is no more.
    pub(super) fn remove(&mut self, at: u32) {
        let Some(Extent { grant, .. }) = self.extents.remove(&at) else { return };
        let count = self.counts.get_mut(&grant).expect("each run of a grant is counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&grant);
        }
    }

    /// The current runs that may have buckets from `first` to before `end`.
    pub(super) fn touching(&self, first: u64, end: u64) -> Vec<u32> {
        if self.by_address.is_empty() {
            return Vec::new();
        }
        let of = |long: u32| {
            let from = first.saturating_sub(2_u64 << long);
            self.by_address.range((long, from, 0)..(long, end, 0))
        };
        (0..u32::BITS - 1).flat_map(of).map(|(.., at)| *at).collect()
    }

    /// Bytes of memory that all of this takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.extents.allocation_size()
            + self.current.allocation_size()
            + self.counts.allocation_size()
            + self.by_address.len() * size_of::<(u32, u64, u32)>()
    }
}

//! How much a second.

use std::ops::AddAssign;

use engine::{Mechanism, Operation};

use crate::transport::shm::stats_page::PageSnapshot;

/// Operations and their bytes, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Operations a second.
    pub operations: f64,
    /// Bytes a second.
    pub bytes: f64,
}

impl AddAssign for Rate {
    fn add_assign(&mut self, other: Rate) {
        self.operations += other.operations;
        self.bytes += other.bytes;
    }
}

/// How much one rank, or several, did a second between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates([[Rate; Mechanism::ALL.len()]; Operation::ALL.len()]);

impl Rates {
    /// Operations of a kind that went by a mechanism.
    pub fn get(&self, operation: Operation, mechanism: Mechanism) -> Rate {
        self.0[operation.index()][mechanism.index()]
    }

    /// Adds what one part of a rank did from `then` to `now`, each on the rank's own clock. Impossible
    /// counts, such as those that shrink, are nothing.
    pub(super) fn add(&mut self, then: &PageSnapshot, now: &PageSnapshot) {
        let nanos = now.at.saturating_sub(then.at);
        if nanos == 0 {
            return;
        }
        let (before, after) = (then.figures.counters(), now.figures.counters());
        let per_second = |before: u64, after: u64| after.saturating_sub(before) as f64 * 1e9 / nanos as f64;
        for (operation, mechanism) in Operation::by_mechanism() {
            let (before, after) = (before.get(operation, mechanism), after.get(operation, mechanism));
            self.0[operation.index()][mechanism.index()] += Rate {
                operations: per_second(before.count, after.count),
                bytes: per_second(before.bytes, after.bytes),
            };
        }
    }
}

impl AddAssign<&Rates> for Rates {
    fn add_assign(&mut self, other: &Rates) {
        for (mine, theirs) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine += *theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::node::RegistrationCounters;
    use engine::{Counters, Tally};

    use super::*;
    use crate::transport::shm::stats_page::PageCounters;

    fn shown(at: u64, count: u64, bytes: u64) -> PageSnapshot {
        let mut counters = Counters::default();
        counters.add_many(Operation::Put, Mechanism::Cma, Tally { count, bytes });
        PageSnapshot { at, figures: PageCounters::new(&counters, RegistrationCounters::default()) }
    }

    #[test]
    fn a_rate_is_the_difference_over_the_ranks_own_time() {
        let mut rates = Rates::default();
        rates.add(&shown(1_000_000_000, 10, 100), &shown(1_500_000_000, 30, 1100));
        let rate = Rate { operations: 40.0, bytes: 2000.0 };
        assert_eq!(rates.get(Operation::Put, Mechanism::Cma), rate);
        assert_eq!(rates.get(Operation::Get, Mechanism::Cma), Rate::default());
        let again = rates.clone();
        rates += &again;
        assert_eq!(rates.get(Operation::Put, Mechanism::Cma).operations, 80.0);
    }

    #[test]
    fn what_cannot_be_is_nothing() {
        let mut rates = Rates::default();
        rates.add(&shown(2, 10, 100), &shown(2, 30, 300));
        rates.add(&shown(3, 10, 100), &shown(2, 30, 300));
        rates.add(&shown(2, 10, 100), &shown(3, 5, 50));
        assert_eq!(rates, Rates::default());
    }
}

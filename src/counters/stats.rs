//! A node's counters, to be looked at.

use engine::counters::Scalar;
use engine::{Counters, Mechanism, Operation, PathReason, Tally};

/// Counts of a node's operations since it opened: by operation, by mechanism, and by the reason for the path
/// taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    counters: Counters,
}

impl Stats {
    pub(crate) fn new(counters: Counters) -> Stats {
        Stats { counters }
    }

    /// Operations of this kind that went by this mechanism, and their bytes.
    pub fn get(&self, operation: Operation, mechanism: Mechanism) -> Tally {
        self.counters.get(operation, mechanism)
    }

    /// Operations of this kind by any mechanism.
    pub fn total(&self, operation: Operation) -> Tally {
        Mechanism::ALL.iter().map(|mechanism| self.get(operation, *mechanism)).fold(
            Tally::default(),
            |sum, tally| Tally { count: sum.count + tally.count, bytes: sum.bytes + tally.bytes },
        )
    }

    /// How many operations took their path for this reason.
    pub fn why(&self, why: PathReason) -> u64 {
        self.counters.why(why)
    }

    /// The plain counters that metrics and `standpipe top --json` show, by their keys there, in their order.
    pub fn scalars(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Scalar::shown().map(|(scalar, _)| (scalar.key, scalar.get(&self.counters)))
    }

    /// Bytes of this node's puts and gets by message that went through peers' heaps on their way, as long
    /// pieces do over a network that registers no private memory.
    pub fn staged_bytes(&self) -> u64 {
        self.counters.staged
    }

    /// Operations of this node that were cancelled or late while they could still write at their peers.
    /// [`Node::quiet`](crate::Node::quiet) waits for them.
    pub fn given_up(&self) -> u64 {
        self.counters.given_up
    }

    /// Messages from peers that could not be understood, and were dropped.
    pub fn malformed(&self) -> u64 {
        self.counters.malformed
    }

    /// Active Messages from peers whose handlers are not here, and that were refused.
    pub fn refused(&self) -> u64 {
        self.counters.refused
    }

    /// Accesses of peers by message that this node refused, as its memory is not exposed to them or granted.
    /// Near peers look at grants themselves: they count what these do not allow as [`Stats::barred`].
    pub fn denied(&self) -> u64 {
        self.counters.denied
    }

    /// Grants of this node that there are.
    pub fn grants(&self) -> u64 {
        self.counters.grants
    }

    /// Bytes that these name; memory that is granted twice counts twice.
    pub fn granted_bytes(&self) -> u64 {
        self.counters.granted
    }

    /// Grants that this node ever made.
    pub fn grants_made(&self) -> u64 {
        self.counters.grants_made
    }

    /// Accesses of this node by peers' grants, near and far, that ended with
    /// [`Error::Revoked`](crate::Error::Revoked), [`Error::NotGranted`](crate::Error::NotGranted) or
    /// [`Error::Fault`](crate::Error::Fault).
    pub fn barred(&self) -> u64 {
        self.counters.barred
    }

    /// Calls of [`Grant::wait_idle`](crate::Grant::wait_idle) and [`Grant::repoint`](crate::Grant::repoint)
    /// that found a peer at the memory.
    pub fn revocations_waited(&self) -> u64 {
        self.counters.revocations_waited
    }

    /// Of these, calls that ended with [`GrantError::StillInUse`](crate::GrantError::StillInUse).
    pub fn revocations_in_use(&self) -> u64 {
        self.counters.revocations_in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter that is added later need not have a method. One that has no metric is told by nothing else.
    #[test]
    fn each_plain_counter_is_told_by_a_method_or_by_its_key() {
        let mut counters = Counters::default();
        for (value, scalar) in (1..).zip(Counters::SCALARS) {
            *scalar.get_mut(&mut counters) = value;
        }
        let row = |key: &str| Counters::SCALARS.iter().find(|scalar| scalar.key == key);
        let stats = Stats::new(counters.clone());
        let methods = [
            ("malformed", stats.malformed()),
            ("refused", stats.refused()),
            ("staged_bytes", stats.staged_bytes()),
            ("given_up", stats.given_up()),
            ("denied", stats.denied()),
            ("grants", stats.grants()),
            ("granted_bytes", stats.granted_bytes()),
            ("grants_made", stats.grants_made()),
            ("barred", stats.barred()),
            ("revocations_waited", stats.revocations_waited()),
            ("revocations_in_use", stats.revocations_in_use()),
        ];
        for (key, value) in stats.scalars().chain(methods) {
            assert_eq!(row(key).map(|scalar| scalar.get(&counters)), Some(value), "{key}");
        }
        let is_told = |key| stats.scalars().chain(methods).any(|(told, _)| told == key);
        let missing: Vec<_> =
            Counters::SCALARS.iter().map(|scalar| scalar.key).filter(|key| !is_told(*key)).collect();
        assert!(missing.is_empty(), "`Stats` has no method for {missing:?}, which have no metric either");
    }
}

//! Counts of operations and bytes by mechanism, and of the reasons for the paths taken.

use crate::{Mechanism, PathReason};

/// The kinds of operation that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Puts, plain and scattered.
    Put,
    /// Gets, plain and scattered.
    Get,
    /// Atomics on heap words.
    Atomic,
    /// Active-Message requests sent.
    Request,
    /// Active-Message replies sent.
    Reply,
    /// Handlers run here.
    Handled,
    /// Barriers passed.
    Barrier,
    /// Parts of peers' puts and gets by message, which this process copied for them, and their atomics on
    /// words that it has granted.
    Served,
}

impl Operation {
    /// Every kind, in the order of [`Operation::index`].
    pub const ALL: [Operation; 8] = [
        Operation::Put,
        Operation::Get,
        Operation::Atomic,
        Operation::Request,
        Operation::Reply,
        Operation::Handled,
        Operation::Barrier,
        Operation::Served,
    ];

    /// Every kind with every mechanism: what is tallied apart.
    pub fn by_mechanism() -> impl Iterator<Item = (Operation, Mechanism)> {
        let with_all = |operation| Mechanism::ALL.into_iter().map(move |mechanism| (operation, mechanism));
        Operation::ALL.into_iter().flat_map(with_all)
    }

    /// Its name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Atomic => "atomic",
            Operation::Request => "request",
            Operation::Reply => "reply",
            Operation::Handled => "handled",
            Operation::Barrier => "barrier",
            Operation::Served => "served",
        }
    }

    /// Its place in [`Operation::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// How often, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub count: u64,
    /// Bytes of payload that they moved.
    pub bytes: u64,
}

/// A plain counter: one field of [`Counters`] that is a number of its own.
#[derive(Debug)]
pub struct Scalar {
    /// Its key in reports; it ends in `_bytes` where it counts bytes.
    pub key: &'static str,
    /// How collectors get it. `None`: only the process itself tells it, by a method of its own.
    pub metric: Option<Metric>,
    get: fn(&Counters) -> u64,
    get_mut: fn(&mut Counters) -> &mut u64,
}

/// A counter's name and meaning for collectors.
#[derive(Debug)]
pub struct Metric {
    /// Its name without the prefix that all metrics have; it ends in `_bytes` where it counts bytes.
    pub name: &'static str,
    /// Its meaning, in words.
    pub help: &'static str,
    /// Whether it also falls, as it says how much there is now, and not how much there ever was.
    pub is_gauge: bool,
}

impl Metric {
    const fn counter(name: &'static str, help: &'static str) -> Metric {
        Metric { name, help, is_gauge: false }
    }

    const fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { name, help, is_gauge: true }
    }
}

impl Scalar {
    /// The counters that collectors and reports show.
    pub fn shown() -> impl Iterator<Item = (&'static Scalar, &'static Metric)> {
        Counters::SCALARS.iter().filter_map(|scalar| scalar.metric.as_ref().map(|metric| (scalar, metric)))
    }

    /// Its value there.
    pub fn get(&self, counters: &Counters) -> u64 {
        (self.get)(counters)
    }

    /// Its field there.
    pub fn get_mut<'a>(&self, counters: &'a mut Counters) -> &'a mut u64 {
        (self.get_mut)(counters)
    }
}

/// A number for each kind of operation by each mechanism.
type ByMechanism = [[u64; Mechanism::ALL.len()]; Operation::ALL.len()];

/// Counts of everything that one node did, or one part of it.
///
/// A plain counter is a field here and its row in [`Counters::SCALARS`]: pages, metrics and reports follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: ByMechanism,
    /// Apart from the counts, as compilers would add both at once, which takes them twice as many
    /// instructions.
    bytes: ByMechanism,
    why: [u64; PathReason::ALL.len()],
    /// Messages that could not be understood, and were dropped.
    pub malformed: u64,
    /// Active Messages that were refused, as this node has no such handler.
    pub refused: u64,
    /// Accesses of peers by message that this node refused, as its memory is not exposed or granted for them.
    pub denied: u64,
    /// Bytes of puts and gets by message that went through bounce buffers in the peers' heaps.
    pub staged: u64,
    /// Operations that were cancelled or late while they could still write at their peers.
    pub given_up: u64,
    /// Grants of this node that there are.
    pub grants: u64,
    /// Bytes that they name; memory that is granted twice counts twice.
    pub granted: u64,
    /// Grants that this node ever made.
    pub grants_made: u64,
    /// Accesses of this node that ended with an error, as the peer's grant was revoked, was for others, or
    /// ended before.
    pub barred: u64,
    /// Waits for memory that this node had granted, and then revoked or re-pointed, which found a peer at the
    /// memory.
    pub revocations_waited: u64,
    /// Of these, waits that ended while the peer was still at it.
    pub revocations_in_use: u64,
}

impl Counters {
    /// All plain counters, in the order in which everybody shows them.
    pub const SCALARS: &[Scalar] = &[
        Scalar {
            key: "malformed",
            metric: Some(Metric::counter("malformed_messages", "Messages that could not be understood")),
            get: |counters| counters.malformed,
            get_mut: |counters| &mut counters.malformed,
        },
        Scalar {
            key: "refused",
            metric: Some(Metric::counter(
                "refused_messages",
                "Active Messages for handlers that are not there",
            )),
            get: |counters| counters.refused,
            get_mut: |counters| &mut counters.refused,
        },
        Scalar {
            key: "denied",
            metric: Some(Metric::counter(
                "denied_accesses",
                "Accesses of peers to memory that is not theirs to reach",
            )),
            get: |counters| counters.denied,
            get_mut: |counters| &mut counters.denied,
        },
        Scalar {
            key: "staged_bytes",
            metric: Some(Metric::counter("staged_bytes", "Bytes by message that went through peers' heaps")),
            get: |counters| counters.staged,
            get_mut: |counters| &mut counters.staged,
        },
        Scalar {
            key: "given_up",
            metric: None,
            get: |counters| counters.given_up,
            get_mut: |counters| &mut counters.given_up,
        },
        Scalar {
            key: "grants",
            metric: Some(Metric::gauge("grants", "Grants of memory that there are now")),
            get: |counters| counters.grants,
            get_mut: |counters| &mut counters.grants,
        },
        Scalar {
            key: "granted_bytes",
            metric: Some(Metric::gauge("granted_bytes", "Bytes that these name")),
            get: |counters| counters.granted,
            get_mut: |counters| &mut counters.granted,
        },
        Scalar {
            key: "grants_made",
            metric: Some(Metric::counter("grants_made", "Grants that were ever made")),
            get: |counters| counters.grants_made,
            get_mut: |counters| &mut counters.grants_made,
        },
        Scalar {
            key: "barred",
            metric: Some(Metric::counter("barred_accesses", "Accesses that peers' grants did not allow")),
            get: |counters| counters.barred,
            get_mut: |counters| &mut counters.barred,
        },
        Scalar {
            key: "revocations_waited",
            metric: Some(Metric::counter(
                "revocations_waited",
                "Waits for memory that was granted which found a peer at it",
            )),
            get: |counters| counters.revocations_waited,
            get_mut: |counters| &mut counters.revocations_waited,
        },
        Scalar {
            key: "revocations_in_use",
            metric: Some(Metric::counter(
                "revocations_in_use",
                "Waits that ended while the peer was still at it",
            )),
            get: |counters| counters.revocations_in_use,
            get_mut: |counters| &mut counters.revocations_in_use,
        },
    ];

    /// Counts one operation of `bytes` bytes.
    #[inline]
    pub fn add(&mut self, operation: Operation, mechanism: Mechanism, bytes: u64) {
        self.add_many(operation, mechanism, Tally { count: 1, bytes });
    }

    /// Counts several operations at once.
    #[inline]
    pub fn add_many(&mut self, operation: Operation, mechanism: Mechanism, tally: Tally) {
        self.counts[operation.index()][mechanism.index()] += tally.count;
        self.bytes[operation.index()][mechanism.index()] += tally.bytes;
    }

    /// Counts `times` choices made for the reason `why`.
    pub fn add_why(&mut self, why: PathReason, times: u64) {
        self.why[why.index()] += times;
    }

    /// Operations of a kind that went by a mechanism.
    pub fn get(&self, operation: Operation, mechanism: Mechanism) -> Tally {
        let (operation, mechanism) = (operation.index(), mechanism.index());
        Tally { count: self.counts[operation][mechanism], bytes: self.bytes[operation][mechanism] }
    }

    /// How often a path was taken for this reason.
    pub fn why(&self, why: PathReason) -> u64 {
        self.why[why.index()]
    }

    /// Adds another part's counts to these.
    pub fn merge(&mut self, other: &Counters) {
        for (operation, mechanism) in Operation::by_mechanism() {
            self.add_many(operation, mechanism, other.get(operation, mechanism));
        }
        for why in PathReason::ALL {
            self.add_why(why, other.why(why));
        }
        for scalar in Counters::SCALARS {
            *scalar.get_mut(self) += scalar.get(other);
        }
    }
}

/// Bytes of the counts of operations and reasons.
const TALLIES_BYTES: usize = 2 * size_of::<ByMechanism>() + size_of::<[u64; PathReason::ALL.len()]>();
const _: () = assert!(
    size_of::<Counters>() == TALLIES_BYTES + Counters::SCALARS.len() * size_of::<u64>(),
    "each plain counter has its row in SCALARS"
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_row_has_a_field_and_names_of_its_own() {
        let mut counters = Counters::default();
        for (value, scalar) in (1..).zip(Counters::SCALARS) {
            *scalar.get_mut(&mut counters) = value;
        }
        for (value, scalar) in (1..).zip(Counters::SCALARS) {
            assert_eq!(scalar.get(&counters), value, "{} is read and written as one field", scalar.key);
        }
        let keys: BTreeSet<_> = Counters::SCALARS.iter().map(|scalar| scalar.key).collect();
        let metrics: BTreeSet<_> = Scalar::shown().map(|(_, metric)| metric.name).collect();
        assert_eq!((keys.len(), metrics.len()), (Counters::SCALARS.len(), Scalar::shown().count()));
        let mut twice = counters.clone();
        twice.merge(&counters);
        assert!(Counters::SCALARS.iter().all(|scalar| scalar.get(&twice) == 2 * scalar.get(&counters)));
    }
}

//! What happened, counted: operations and bytes by mechanism, and the reasons for the paths taken.

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
    /// Parts of peers' puts and gets by message, which this process copied for them.
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

/// A number for each kind of operation by each mechanism.
type ByMechanism = [[u64; Mechanism::ALL.len()]; Operation::ALL.len()];

/// Counts of everything that one node did, or one part of it.
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
    /// Bytes of puts and gets by message that went through bounce buffers in the peers' heaps.
    pub staged: u64,
    /// Operations that were cancelled or late while they could still write at their peers.
    pub given_up: u64,
}

impl Counters {
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
        self.malformed += other.malformed;
        self.refused += other.refused;
        self.staged += other.staged;
        self.given_up += other.given_up;
    }
}

//! What decides a storm, and what comes of it.

use crate::costs::Costs;
use crate::faults::Faults;

/// Ranks, at most, of a storm.
pub const NODES_MAX: u32 = 1 << 16;

/// What decides a storm, to the last bit.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Ranks: 2 to [`NODES_MAX`].
    pub nodes: u32,
    /// Decides everything else.
    pub seed: u64,
    /// Steps ([`Cluster::step`]) for which ranks start operations and faults happen; the storm then goes on
    /// until all has ended.
    ///
    /// [`Cluster::step`]: crate::Cluster::step
    pub steps: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// What everything costs; `None`: a machine that the seed picks.
    pub costs: Option<Costs>,
}

/// How a storm went that nothing was wrong with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations that ended, and Active Messages that were handled.
    pub operations: u64,
    /// Of these, operations that failed as the faults explain.
    pub failed: u64,
    /// Steps, those after the storm included.
    pub steps: u64,
    /// The most bytes that any rank had pinned.
    pub pinned_peak_bytes: u64,
    /// M + MAXVICTIM of each rank.
    pub pinned_budget_bytes: u64,
    /// The same for the same storm.
    pub fingerprint: u64,
}

/// What went wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The step after which it was noticed.
    pub step: u64,
    /// What it was.
    pub what: String,
    /// The settings that the seed had picked.
    pub settings: String,
    /// The command that does it again.
    pub replay: String,
}

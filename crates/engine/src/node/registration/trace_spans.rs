//! Spans of what the registration protocol waits for: from the question to its answer. Where nobody listens,
//! one costs a load.

use tracing::Span;
use tracing::field::Empty;

use crate::Rank;
use crate::registration::Run;

/// Buckets of all runs.
fn buckets(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// A move, from its request to its answer.
#[derive(Debug)]
pub(in crate::node) struct MoveSpan(Span);

impl MoveSpan {
    /// Asks `peer` for these runs, and gives so many rights back.
    pub(in crate::node) fn begin(peer: Rank, runs: &[Run], given_back: usize, rides: bool) -> MoveSpan {
        let asked = buckets(runs);
        MoveSpan(tracing::trace_span!("move", peer, asked, given_back, rides, moved = Empty, outcome = Empty))
    }

    /// The peer has answered with so many buckets; the rights to some of them may be its again already.
    pub(in crate::node) fn answered(self, runs: &[Run], moved: u64) {
        let outcome = match moved {
            0 if !runs.is_empty() => "refused",
            _ if moved < buckets(runs) => "partly",
            _ => "granted",
        };
        self.0.record("moved", moved).record("outcome", outcome);
    }

    /// The peer is gone.
    pub(in crate::node) fn lost(self) {
        self.0.record("outcome", "lost");
    }
}

/// A recall: from asking a holder to give back what it does not use until it says that it has.
#[derive(Debug)]
pub(in crate::node) struct RecallSpan(Span);

impl RecallSpan {
    /// Asks `peer` for so many bytes.
    pub(in crate::node) fn begin(peer: Rank, bytes: u64) -> RecallSpan {
        RecallSpan(tracing::debug_span!("recall", peer, bytes, outcome = Empty))
    }

    /// The holder has answered, or has given back as much by itself.
    pub(in crate::node) fn answered(&self) {
        self.0.record("outcome", "answered");
    }

    /// The holder is gone.
    pub(in crate::node) fn lost(&self) {
        self.0.record("outcome", "lost");
    }
}

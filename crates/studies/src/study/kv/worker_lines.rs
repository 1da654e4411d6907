//! What a worker tells the command that started it: its lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One line of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// What the sweep over numbers of pieces measured, before the replay.
    Sweep(Vec<Sweep>),
    /// Times of a pull and of its alternatives, measured before the replay.
    Yardsticks(Yardsticks),
    /// What was done since the line before. A worker that dies has told all but its last fraction of a
    /// second.
    Tick(Tick),
    /// The worker's requests are all served; what its node counted.
    Done(Done),
}

/// Pulls of blocks of one size, cut into this many pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sweep {
    /// Pieces of the block.
    pub pieces: usize,
    /// Duration of each scatter get in nanoseconds.
    pub took_ns: Vec<u64>,
}

/// A pull and its alternatives: medians, in nanoseconds for one block of the replay's pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Yardsticks {
    /// A pull, from a worker that makes blocks.
    pub pull_ns: f64,
    /// One memcpy of the same bytes, within a process.
    pub memcpy_ns: f64,
    /// The same bytes by a TCP connection over loopback: asked for, sent by a thread of the owner's while it
    /// makes blocks, and received.
    pub socket_ns: f64,
    /// Blocks that the owner fills in a thousand seconds of its processor time while nobody pulls, and while
    /// a peer pulls from it without a pause.
    pub made_alone: f64,
    /// See `made_alone`.
    pub made_pulled: f64,
}

/// Work done since the last tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tick {
    /// When, in milliseconds since all workers were ready.
    pub at_ms: u64,
    /// Requests served.
    pub requests: u64,
    /// Blocks found in the worker's own store.
    pub local_hits: u64,
    /// Blocks made, because no worker held them.
    pub made: u64,
    /// Blocks recycled to make room.
    pub evictions: u64,
    /// Blocks that could not be stored because every victim was being read.
    pub not_stored: u64,
    /// Blocks that were recycled, or whose owner died, between being looked up and being pinned.
    pub stale: u64,
    /// Bytes pulled and checked.
    pub verified_bytes: u64,
    /// Bytes among them that were wrong.
    pub mismatched_bytes: u64,
    /// Bytes of blocks held now.
    pub stored_bytes: u64,
    /// The most bytes that were registered here at a time, so far.
    #[serde(default)]
    pub pinned_peak_bytes: u64,
    /// Blocks pulled from other workers.
    pub pulls: Vec<Pull>,
}

/// One block pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pull {
    /// The worker that held the block.
    #[serde(rename = "o")]
    pub owner: usize,
    /// Duration of the scatter get in nanoseconds.
    #[serde(rename = "t")]
    pub took_ns: u64,
    /// The puller's processor time during it, in nanoseconds; the rest of the time it waited for a core.
    #[serde(rename = "p")]
    pub processor_ns: u64,
    /// Bytes of the block.
    #[serde(rename = "b")]
    pub bytes: u64,
    /// Whether the owner was computing when the pull began.
    #[serde(rename = "c")]
    pub computing: bool,
}

/// A worker's last line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Bytes moved, by mechanism, for all that the worker asked of its peers.
    pub mechanisms: BTreeMap<String, u64>,
    /// Why operations took the path they took: reason to number of operations.
    pub reasons: BTreeMap<String, u64>,
}

impl Done {
    /// What was counted after `before`; what is zero is left out.
    #[must_use]
    pub(crate) fn since(self, before: &Self) -> Self {
        let subtract = |after: BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
            after
                .into_iter()
                .map(|(name, count)| (before.get(&name).map_or(count, |old| count - old), name))
                .filter(|&(count, _)| count > 0)
                .map(|(count, name)| (name, count))
                .collect()
        };
        Self {
            mechanisms: subtract(self.mechanisms, &before.mechanisms),
            reasons: subtract(self.reasons, &before.reasons),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survival::survive;

    #[test]
    fn counts_from_before_do_not_count() {
        let counts = |cma, mapped| Done {
            mechanisms: [("cma".to_owned(), cma), ("mapped".to_owned(), mapped)].into(),
            ..Done::default()
        };
        assert_eq!(counts(9, 4).since(&counts(2, 4)).mechanisms, [("cma".to_owned(), 7)].into());
        assert_eq!(counts(9, 4).since(&Done::default()).mechanisms.len(), 2);
    }

    #[test]
    fn what_is_said_arrives() {
        let pull = Pull { owner: 3, took_ns: 91_000, processor_ns: 90_000, bytes: 1 << 20, computing: true };
        let tick = Line::Tick(Tick { at_ms: 5, requests: 2, pulls: vec![pull], ..Tick::default() });
        let done = Line::Done(Done { mechanisms: [("cma".to_owned(), 9)].into(), ..Done::default() });
        let sweep = Line::Sweep(vec![Sweep { pieces: 4, took_ns: vec![7, 8] }]);
        let yardsticks = Line::Yardsticks(Yardsticks { pull_ns: 1.5, ..Yardsticks::default() });
        survive(vec![sweep, yardsticks, tick, done]);
    }
}

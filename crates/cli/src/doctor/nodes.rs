//! This user's running nodes: how long their calls take, and what hints at why.

use std::thread;
use std::time::Duration;

use measure::progress::bar;
use serde::Serialize;
use standpipe::watch::{Job, RankView, State, jobs};
use standpipe::{Mechanism, Operation};

use crate::latency_figures::Calls;

/// Jobs that are looked at, at most.
const JOBS_MAX: usize = 16;

/// Ranks of a job that are told of, at most.
const RANKS_MAX: usize = 8;

/// A node that has not made progress for so long keeps others waiting.
const AWAY: Duration = Duration::from_secs(1);

/// A running node, as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Node {
    /// Its process.
    pub(super) pid: u32,
    /// Its number in its job.
    pub(super) rank: u32,
    /// Its program.
    pub(super) program: String,
    /// How long its calls took, by kind.
    pub(super) calls: Calls,
    #[serde(skip)]
    pub(super) signs: Signs,
}

/// What hints at causes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// It did not answer, or has not made progress for long.
    pub(super) absent: bool,
    /// Pieces of transfers whose memory was registered, and was not.
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Puts, gets and atomics that went by message.
    pub(super) by_message: u64,
}

/// The findings about this user's nodes.
pub(super) fn gather() -> Vec<Node> {
    let jobs = jobs().unwrap_or_default();
    let shown = jobs.len().min(JOBS_MAX);
    let bar = bar(shown as u64, "{pos}/{len} running jobs");
    let nodes = thread::scope(|scope| {
        // Each at once: one that is stopped takes seconds.
        let looks: Vec<_> = jobs.iter().take(JOBS_MAX).map(|job| scope.spawn(|| look(job))).collect();
        let nodes = looks.into_iter().flat_map(|look| {
            bar.inc(1);
            look.join().unwrap_or_default()
        });
        nodes.collect()
    });
    bar.finish_and_clear();
    nodes
}

/// The nodes of a job; none where it has just ended.
fn look(job: &Job) -> Vec<Node> {
    let Ok(snapshot) = job.watch().map_err(drop).and_then(|mut watch| watch.look().map_err(drop)) else {
        return Vec::new();
    };
    let nodes = snapshot.ranks.iter().filter_map(|rank| Node::of(rank, job.program()));
    nodes.take(RANKS_MAX).collect()
}

impl Node {
    fn of(rank: &RankView, program: &str) -> Option<Node> {
        if !matches!(rank.state, State::Running | State::Silent) {
            return None;
        }
        let (stats, registration) = (rank.stats(), rank.registration());
        let by_message = |what| stats.get(what, Mechanism::Message).count;
        let moving = [Operation::Put, Operation::Get];
        Some(Node {
            pid: rank.pid?,
            rank: rank.rank,
            program: program.to_owned(),
            calls: Calls::of(&rank.latencies().cloned().unwrap_or_default()),
            signs: Signs {
                absent: rank.state == State::Silent || rank.away().is_some_and(|away| away > AWAY),
                hits: registration.hits,
                misses: registration.misses,
                by_message: moving.into_iter().map(by_message).fold(0, u64::saturating_add),
            },
        })
    }
}

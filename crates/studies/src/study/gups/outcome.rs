//! What a run came to.

use serde::Serialize;
use standpipe::Strategy;

use super::mpi_references::Beside;
use super::plan::{LOOKAHEAD, Plan, Turn, Way};
use measure::machine;
use measure::transport::Chosen;

/// The run in numbers; `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    /// Processes.
    pub(super) ranks: u32,
    /// How they reached each other: `shm`, or `ofi` with the provider.
    pub(super) transport: String,
    /// What they registered; `None` over shared memory.
    pub(super) strategy: Option<&'static str>,
    /// Updates that a process may have looked at and not yet made.
    pub(super) lookahead: usize,
    /// How often each way had its turn.
    pub(super) rounds: u32,
    /// Each way with each table, tables from the smallest on.
    pub(super) points: Vec<Point>,
    /// Words that were not what they must be, of all turns.
    pub(super) errors: u64,
    /// What other programs made of the largest table, on this machine and in turns with it.
    pub(super) beside: Vec<Beside>,
    /// How the program was built: see [`machine::BUILD`].
    pub(super) build: &'static str,
    /// Processes that wanted a processor on average over the last minute, at the end.
    pub(super) load_average: Option<f64>,
}

/// One way with one table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    /// `put`, `atomic`, `message` or `batches`.
    pub(super) way: &'static str,
    pub(super) table_bytes: u64,
    pub(super) updates: u64,
    /// Updates of all processes in a nanosecond: of the round in the middle, the slowest and the fastest.
    pub(super) gups: f64,
    pub(super) gups_spread: [f64; 2],
    /// Words that were not what they must be, of all rounds.
    pub(super) errors: u64,
}

/// The rate of so many updates in so many nanoseconds, in GUPS.
pub(super) fn gups(updates: u64, took_ns: u64) -> f64 {
    updates as f64 / took_ns.max(1) as f64
}

impl Outcome {
    /// Puts together what the ranks said: of each all its turns, in order.
    pub(super) fn of(plan: &Plan, chosen: &Chosen, ranks: &[Vec<Turn>], beside: Vec<Beside>) -> Outcome {
        let places = plan.tables.iter().flat_map(|words| Way::ALL.map(|way| (*words, way)));
        let points: Vec<Point> = places.map(|(words, way)| point(plan, ranks, words, way)).collect();
        Outcome {
            ranks: ranks.len() as u32,
            transport: chosen.transport.to_string(),
            strategy: chosen.strategy.map(Strategy::name),
            lookahead: LOOKAHEAD,
            rounds: plan.rounds,
            errors: points.iter().map(|point| point.errors).sum(),
            points,
            beside,
            build: machine::BUILD,
            load_average: machine::load_average(),
        }
    }

    /// What a way came to with the largest table.
    pub(super) fn largest(&self, way: Way) -> Option<&Point> {
        self.points.iter().rev().find(|point| point.way == way.name())
    }
}

fn point(plan: &Plan, ranks: &[Vec<Turn>], words: u64, way: Way) -> Point {
    let of = |turn: &&Turn| (turn.words, turn.way) == (words, way);
    let updates = plan.updates_of(words, way);
    // A round takes as long as the rank that takes longest.
    let round = |round: usize| {
        let turns = ranks.iter().filter_map(|turns| turns.iter().filter(of).nth(round));
        turns.map(|turn| turn.took_ns).max().unwrap_or(u64::MAX)
    };
    let mut took: Vec<u64> = (0..plan.rounds as usize).map(round).collect();
    took.sort_unstable();
    let at = |index: usize| gups(updates, took.get(index).copied().unwrap_or(u64::MAX));
    Point {
        way: way.name(),
        table_bytes: words * 8,
        updates,
        gups: at(took.len().saturating_sub(1) / 2),
        gups_spread: [at(took.len().saturating_sub(1)), at(0)],
        errors: ranks.iter().flatten().filter(of).map(|turn| turn.wrong).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rank_decides_and_the_round_in_the_middle_counts() {
        let plan = Plan { tables: vec![1 << 10], updates: 96_000, rounds: 3, spoil: false, is_shared: true };
        let rank = |times: [u64; 3], wrong: u64| -> Vec<Turn> {
            let turn = |took_ns| Way::ALL.map(|way| Turn { words: 1 << 10, way, took_ns, wrong });
            times.into_iter().flat_map(turn).collect()
        };
        let ranks = [rank([1000, 2000, 1000], 0), rank([3000, 1000, 6000], 2)];
        let outcome = Outcome::of(&plan, &Chosen::default(), &ranks, Vec::new());
        let point = outcome.largest(Way::Message).expect("each way was tried");
        assert_eq!((point.gups, point.gups_spread), (2.0, [1.0, 3.0]));
        assert_eq!((point.errors, outcome.errors, outcome.points.len()), (6, 24, 4));
    }
}

//! What the sorts came to.

use serde::Serialize;
use standpipe::Strategy;

use super::plan::{Plan, Round, WIDTH};
use measure::machine;
use measure::transport::Chosen;

/// The run in numbers; `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    /// How processes reached each other: `shm`, or `ofi` with the provider.
    pub(super) transport: String,
    /// What they registered; `None` over shared memory.
    pub(super) strategy: Option<&'static str>,
    /// Keys that each process drew; and different keys that fall to one.
    pub(super) keys_each: u64,
    pub(super) bucket_width: u32,
    /// Sorts by each job.
    pub(super) rounds: u32,
    /// Jobs, from the smallest on.
    pub(super) jobs: Vec<Job>,
    /// Whether all sorts were right.
    pub(super) verified: bool,
    /// How the program was built: see [`machine::BUILD`].
    pub(super) build: &'static str,
    /// Processes that wanted a processor on average over the last minute, at the end.
    pub(super) load_average: Option<f64>,
}

/// Sorts by so many processes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Job {
    pub(super) ranks: usize,
    /// Keys of all.
    pub(super) keys: u64,
    /// From the barrier before to that after: the round in the middle, the fastest and the slowest.
    pub(super) seconds: f64,
    pub(super) seconds_spread: [f64; 2],
    /// Keys of all processes sorted in a second, in the round in the middle.
    pub(super) keys_per_second: f64,
    /// What the slowest process took for each part, in the round in the middle. They need not be the same
    /// one's.
    pub(super) bucket_seconds: f64,
    pub(super) exchange_seconds: f64,
    pub(super) sort_seconds: f64,
    /// What was wrong with the first sort that was not right.
    pub(super) fault: Option<String>,
}

impl Job {
    /// Of what the ranks told, each of all its rounds.
    pub(super) fn of(plan: &Plan, told: &[Vec<Round>]) -> Job {
        let keys = plan.keys * told.len() as u64;
        let round =
            |at: usize| told.iter().filter_map(|rounds| rounds.get(at)).copied().collect::<Vec<Round>>();
        let mut rounds: Vec<Vec<Round>> = (0..plan.rounds as usize).map(round).collect();
        let fault = rounds.iter().find_map(|rounds| fault(rounds, told.len(), keys));
        let longest =
            |ranks: &[Round], of: fn(&Round) -> u64| ranks.iter().map(of).max().unwrap_or(0) as f64 / 1e9;
        let took = |ranks: &Vec<Round>| longest(ranks, |round| round.took_ns);
        rounds.sort_by(|one, other| took(one).total_cmp(&took(other)));
        let middle = &rounds[(rounds.len() - 1) / 2];
        Job {
            ranks: told.len(),
            keys,
            seconds: took(middle),
            seconds_spread: [took(&rounds[0]), took(&rounds[rounds.len() - 1])],
            keys_per_second: keys as f64 / took(middle).max(1e-9),
            bucket_seconds: longest(middle, |round| round.bucket_ns),
            exchange_seconds: longest(middle, |round| round.exchange_ns),
            sort_seconds: longest(middle, |round| round.sort_ns),
            fault,
        }
    }
}

/// What is wrong with a sort.
fn fault(ranks: &[Round], size: usize, keys: u64) -> Option<String> {
    let sum = |of: fn(&Round) -> u64| ranks.iter().map(of).fold(0, u64::wrapping_add);
    let (there, misplaced) = (sum(|round| round.keys), sum(|round| round.misplaced));
    match () {
        () if ranks.len() < size => Some(format!("{} of {size} processes told of it", ranks.len())),
        () if there != keys => Some(format!("{there} of {keys} keys are there")),
        () if misplaced > 0 => Some(format!("{misplaced} keys are misplaced")),
        () if sum(|round| round.hash_before) != sum(|round| round.hash_after) => {
            Some("the keys are not those that were drawn".to_owned())
        }
        () => None,
    }
}

impl Outcome {
    /// Of all jobs.
    pub(super) fn of(plan: &Plan, chosen: &Chosen, jobs: Vec<Job>) -> Outcome {
        Outcome {
            transport: chosen.transport.to_string(),
            strategy: chosen.strategy.map(Strategy::name),
            keys_each: plan.keys,
            bucket_width: WIDTH,
            rounds: plan.rounds,
            verified: jobs.iter().all(|job| job.fault.is_none()),
            jobs,
            build: machine::BUILD,
            load_average: machine::load_average(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Vec<Vec<Round>> {
        let round =
            |took_ns, keys| Round { took_ns, keys, hash_before: 4, hash_after: keys, ..Round::default() };
        vec![vec![round(5, 3), round(1, 3), round(9, 3)], vec![round(2, 5), round(3, 5), round(4, 5)]]
    }

    #[test]
    fn the_slowest_rank_of_the_round_in_the_middle_counts() {
        let plan = Plan { keys: 4, rounds: 3, seed: 1, spoil: false };
        let job = Job::of(&plan, &told());
        assert_eq!((job.seconds, job.seconds_spread, job.fault), (5e-9, [3e-9, 9e-9], None));
        assert_eq!((job.keys, job.keys_per_second.round()), (8, 1.6e9));
    }

    #[test]
    fn lost_misplaced_and_changed_keys_are_told() {
        let plan = Plan { keys: 4, rounds: 3, seed: 1, spoil: false };
        let fault = |change: fn(&mut Round)| {
            let mut told = told();
            change(&mut told[1][2]);
            Job::of(&plan, &told).fault.expect("something is wrong")
        };
        assert_eq!(fault(|round| round.keys = 4), "7 of 8 keys are there");
        assert_eq!(fault(|round| round.misplaced = 2), "2 keys are misplaced");
        assert_eq!(fault(|round| round.hash_after = 6), "the keys are not those that were drawn");
        let silent = Job::of(&plan, &[told()[0].clone(), Vec::new()]);
        assert_eq!(silent.fault.as_deref(), Some("1 of 2 processes told of it"));
    }
}

//! `standpipe-study isx`: starts jobs of more and more processes, and tells what came of them.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;

use super::display;
use super::outcome::{Job, Outcome};
use super::plan::{Plan, Round, WIDTH};
use crate::study::ranks::{self, RankPlan};
use crate::study::subcommand::Subcommand;
use measure::progress::Bar;
use measure::report::output::{Output, OutputArgs};
use measure::transport::{Chosen, TransportArgs, look_for};
use measure::units::between;
use measure::{machine, signals};

/// `standpipe-study isx`.
pub(crate) static STUDY: Subcommand<IsxArgs> = Subcommand {
    name: Plan::NAME,
    about: "Integers sorted over the whole job through puts that signal (ISx), by more and more processes, verified",
    checks_settings: true,
    run,
    rank: Some(ranks::run_plan::<Plan>),
};

/// Arguments of `standpipe-study isx`.
#[derive(Debug, Args)]
pub(crate) struct IsxArgs {
    /// Processes of the largest job; smaller ones have one, two, four and so on
    #[arg(short = 'n', long = "ranks", default_value_t = 4, value_parser = between(1, RANKS_MAX))]
    ranks: u32,
    /// Keys that each process draws, of 4 bytes
    #[arg(long, default_value_t = 1 << 22, value_name = "KEYS", value_parser = between(1_u64, 1 << 31))]
    keys: u64,
    /// Sorts by each job, each of other keys; the one in the middle counts, of an even number the
    /// faster of the two there
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = between(1_u32, 1000))]
    rounds: u32,
    /// Decides the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Make one key wrong: the sort is then, too
    #[arg(long, hide = true)]
    spoil: bool,
}

/// The keys of as many have no more than 32 bits.
const RANKS_MAX: u32 = 1024;
const _: () = assert!(RANKS_MAX.checked_mul(WIDTH).is_some() && RANKS_MAX <= standpipe::launch::RANKS_MAX);

/// Runs the study. The command fails if a sort was wrong.
///
/// # Errors
/// If there is too little memory, a process fails, a sort is wrong, or the results cannot be written.
fn run(args: &IsxArgs) -> Result<ExitCode> {
    let chosen = args.transport.choose()?;
    let plan = Plan { keys: args.keys, rounds: args.rounds, seed: args.seed, spoil: args.spoil };
    // What was drawn, the same by owner, room for what comes, and what is sorted.
    let each = 4 * (3 * plan.keys + plan.room()) + 4 * u64::from(WIDTH);
    machine::check_room(each * u64::from(args.ranks), "this")?;
    let output = Output::make(&args.output)?;
    look_for(&chosen.transport)?;
    machine::mind_load();
    machine::UNOPTIMISED.into_iter().for_each(signals::say);
    let sizes = sizes(args.ranks);
    let bar = Arc::new(Bar::new(sizes.len() * args.rounds as usize, "sorts"));
    let mut jobs = Vec::new();
    for ranks in &sizes {
        let told: Vec<Vec<Round>> = ranks::run(&chosen, &plan, *ranks, &bar)?;
        jobs.push(Job::of(&plan, &told));
    }
    drop(bar);
    let outcome = Outcome::of(&plan, &chosen, jobs);
    display::show(&args.command(&chosen), args.seed, &chosen, &outcome).deliver(&output, &outcome)?;
    match outcome.jobs.iter().find_map(|job| Some((job.ranks, job.fault.as_ref()?))) {
        Some((ranks, fault)) => bail!("a sort by {ranks} processes is wrong: {fault}"),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Powers of two, and then the size that was asked for.
fn sizes(largest: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> =
        (0..u32::BITS).map(|power| 1 << power).take_while(|size| *size < largest).collect();
    sizes.push(largest);
    sizes
}

impl IsxArgs {
    /// The command line that repeats the run.
    fn command(&self, chosen: &Chosen) -> String {
        let IsxArgs { ranks, keys, rounds, seed, .. } = self;
        let own =
            format!("standpipe-study isx --ranks {ranks} --keys {keys} --rounds {rounds} --seed {seed}");
        [vec![own], chosen.words()].concat().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_grow_to_the_size_that_was_asked_for() {
        assert_eq!((sizes(1), sizes(2), sizes(6)), (vec![1], vec![1, 2], vec![1, 2, 4, 6]));
    }
}

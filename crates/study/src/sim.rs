//! `standpipe-study sim`: storms over simulated clusters, one after the other, until one finds something.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::sim::storm::{Failure, NODES_MAX, Outcome, Storm};
use ::sim::{Costs, Faults, FaultsError};
use anyhow::{Context, Result};
use clap::Args;
use measure::units::{at_least, between};
use measure::usage_error::UsageError;
use measure::{
    progress, signals,
    stdout::print,
    table,
    units::{bytes, grouped},
};
use serde_json::json;
use studies::sim_costs;

/// Storms over a simulated cluster: a seed decides every operation, delay and failure.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// Ranks, 2 or more
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = between(2, NODES_MAX))]
    nodes: u32,
    /// The first seed; 0x… is hexadecimal
    #[arg(long, value_name = "S", default_value = "0", value_parser = parse_seed)]
    seed: u64,
    /// How many seeds, one after the other
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = at_least(1_u64))]
    seeds: u64,
    /// Steps of each storm, each of which a program could notice; it then goes on until all has ended
    #[arg(long, value_name = "K", default_value_t = 100_000, value_parser = at_least(1_u64))]
    steps: u64,
    /// Faults to inject, each kind with its own frequency or the usual one, as in `unmap=0.5,delay`: delay,
    /// reorder, register-fail, register-slow and late with a chance of 0 to 1; shrink, unmap, stop, mute and
    /// restart 0 to 1000 times in a millisecond of virtual time, over all ranks
    #[arg(long, value_name = "LIST", default_value = "", value_parser = parse_faults)]
    faults: Faults,
    /// What everything costs: myrinet-gm-2003, myrinet-pm-1998, infiniband-modern, or a file; without, each
    /// seed picks
    #[arg(long, value_name = "NAME|FILE")]
    costs: Option<String>,
    /// Run nothing: measure what this machine costs, by its shared memory and the locking of pages, into a
    /// file for --costs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "seed", "seeds", "steps", "faults", "costs"])]
    measure: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let seed = text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    seed.map_err(|_| {
        "it is neither a whole number below 2^64 nor 0x and such a number in hexadecimal".to_owned()
    })
}

fn parse_faults(text: &str) -> Result<Faults, String> {
    let mut names: Vec<&str> =
        text.split(',').map(|part| part.split('=').next().unwrap_or(part).trim()).collect();
    names.sort_unstable();
    if !text.is_empty() && names[0].is_empty() {
        return Err("a name is missing beside a comma".to_owned());
    }
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("{} stands there twice", pair[0]));
    }
    text.parse().map_err(|error: FaultsError| match error {
        FaultsError::Frequency(_) => format!(
            "{error}: delay, reorder, register-fail, register-slow and late take a chance of 0 to 1; shrink, unmap, \
             stop, mute and restart a number of times in a millisecond of virtual time, 0 to 1000"
        ),
        FaultsError::Unknown(_) => error.to_string(),
    })
}

/// What came of all storms together.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    steps: u64,
    operations: u64,
    failed: u64,
    /// Of the storm that came closest to its budget.
    pinned_peak_bytes: u64,
    pinned_budget_bytes: u64,
    took: Duration,
    failure: Option<(u64, Failure)>,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.steps += outcome.steps;
        self.operations += outcome.operations;
        self.failed += outcome.failed;
        let (peak, budget) = (outcome.pinned_peak_bytes, outcome.pinned_budget_bytes);
        let closer = u128::from(peak) * u128::from(self.pinned_budget_bytes)
            >= u128::from(self.pinned_peak_bytes) * u128::from(budget);
        if closer && budget > 0 {
            (self.pinned_peak_bytes, self.pinned_budget_bytes) = (peak, budget);
        }
    }

    fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Runs the storms, and prints what came of them. The exit status is 1 if one found something.
///
/// # Errors
/// When the costs cannot be had, or measured, or standard output fails.
pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    if let Some(file) = &args.measure {
        return sim_costs::run(file, args.json);
    }
    let costs = args.costs.as_deref().map(costs_of).transpose().map_err(UsageError::new)?;
    let storm = Storm { nodes: args.nodes, seed: args.seed, steps: args.steps, faults: args.faults, costs };
    if args.seed.checked_add(args.seeds).is_none() {
        return Err(
            UsageError::new(format_args!("there are no {} seeds from {} on", args.seeds, args.seed)).into()
        );
    }
    let sum = run_all(&storm, args.seeds);
    if args.json {
        print(json_of(args, &storm, &sum))?;
    } else {
        print(table_of(args, &storm, &sum).text(table::Layout::of_stdout()))?;
    }
    if let Some((_, failure)) = &sum.failure {
        let costs = args.costs.as_ref().map_or_else(String::new, |costs| format!(" --costs {costs}"));
        signals::complain(format_args!("{failure}{costs}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn costs_of(name: &str) -> Result<Costs> {
    match Costs::named(name) {
        Some(costs) => Ok(costs),
        None => Costs::load(Path::new(name))
            .with_context(|| format!("{name} is none of {}, and no file of costs", Costs::NAMES.join(", "))),
    }
}

fn run_all(storm: &Storm, seeds: u64) -> Sum {
    let bar = progress::bar(seeds.saturating_mul(storm.steps), "{msg}");
    let (mut sum, began) = (Sum::default(), Instant::now());
    for (done, seed) in (0..).zip(storm.seed..storm.seed + seeds) {
        bar.set_message(format!("{done} of {seeds} seeds"));
        let told = |steps| bar.set_position(done * storm.steps + steps);
        match (Storm { seed, ..storm.clone() }).run(told) {
            Ok(outcome) => sum.add(&outcome),
            Err(failure) => {
                sum.seeds += 1;
                sum.steps += failure.step;
                sum.failure = Some((seed, failure));
                break;
            }
        }
    }
    sum.took = began.elapsed();
    sum
}

fn json_of(args: &SimArgs, storm: &Storm, sum: &Sum) -> serde_json::Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "nodes": args.nodes,
        "seed": args.seed,
        "seeds": sum.seeds,
        "steps": sum.steps,
        "faults": args.faults.to_string(),
        "costs": args.costs,
        "machine": storm.costs.as_ref().map(|costs| &costs.name),
        "operations": sum.operations,
        "operations_failed": sum.failed,
        "operations_per_second": sum.operations_per_second(),
        "seconds": sum.took.as_secs_f64(),
        "violations": u64::from(sum.failure.is_some()),
        "failing_seed": sum.failure.as_ref().map(|(seed, _)| seed),
        "failure": sum.failure.as_ref().map(|(_, failure)| &failure.what),
        "pinned_peak_bytes": sum.pinned_peak_bytes,
        "pinned_budget_bytes": sum.pinned_budget_bytes,
    })
}

fn table_of(args: &SimArgs, storm: &Storm, sum: &Sum) -> table::Table {
    let mut table = table::plain(&["what", "value"]);
    let rows = [
        ("cluster", format!("{} ranks", args.nodes)),
        ("costs", costs_in_words(args.costs.as_deref(), storm.costs.as_ref())),
        ("storms", format!("{}, with seeds from {} on", grouped(sum.seeds), args.seed)),
        ("faults", faults_in_words(&args.faults)),
        ("simulated", format!("{} steps", grouped(sum.steps))),
        (
            "ended",
            format!(
                "{} operations, {} of them with an error, as they had to (addresses meant to fail, peers that had gone)",
                grouped(sum.operations),
                grouped(sum.failed)
            ),
        ),
        (
            "speed",
            format!(
                "{} operations a second, for {:.3} s",
                grouped(sum.operations_per_second() as u64),
                sum.took.as_secs_f64()
            ),
        ),
        ("pinned at most", pinned_in_words(sum)),
        ("violations", u64::from(sum.failure.is_some()).to_string()),
    ];
    for (what, value) in rows {
        table.add_row([what.to_owned(), value]);
    }
    table
}

fn costs_in_words(name: Option<&str>, costs: Option<&Costs>) -> String {
    match (name, costs) {
        (Some(name), Some(costs)) => format!("{name} ({})", costs.name),
        _ => format!("picked by each seed, of {}; --costs decides", Costs::NAMES.join(", ")),
    }
}

fn faults_in_words(faults: &Faults) -> String {
    let Faults { delay, reorder, late, register_fail, register_slow, shrink, unmap, stop, mute, restart } =
        *faults;
    let chances = [
        ("delay", delay),
        ("reorder", reorder),
        ("late", late),
        ("register-fail", register_fail),
        ("register-slow", register_slow),
    ];
    let rates = [("shrink", shrink), ("unmap", unmap), ("stop", stop), ("mute", mute), ("restart", restart)];
    let happens = |(_, frequency): &(&str, f64)| *frequency > 0.0;
    let chances = chances.into_iter().filter(happens);
    let chances = chances.map(|(name, chance)| format!("{name} with a chance of {chance}"));
    let rates = rates.into_iter().filter(happens);
    let rates = rates.map(|(name, rate)| format!("{name} {rate} × a virtual ms"));
    let all: Vec<String> = chances.chain(rates).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

/// Of the storm that came closest: each seed picks its own limit.
fn pinned_in_words(sum: &Sum) -> String {
    format!(
        "{} of the {} (M + MAXVICTIM) that a rank might pin there, in the storm that came closest",
        bytes(sum.pinned_peak_bytes),
        bytes(sum.pinned_budget_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!((parse_seed("17"), parse_seed("0x5eed")), (Ok(17), Ok(0x5eed)));
        assert!(parse_seed("5eed").is_err());
    }

    #[test]
    fn frequencies_are_checked_and_told_with_their_units() {
        let faults = parse_faults("delay=0.5,unmap=7").expect("a chance, and a number a millisecond");
        assert_eq!(faults_in_words(&faults), "delay with a chance of 0.5, unmap 7 × a virtual ms");
        assert_eq!(faults_in_words(&Faults::default()), "none");
        let error = parse_faults("delay=7").expect_err("no chance");
        assert!(error.contains("\"delay=7\"") && error.contains("a chance of 0 to 1"), "{error}");
        assert!(parse_faults("unmap=1001").is_err_and(|error| error.contains("0 to 1000")));
        let command = SimArgs::augment_args(clap::Command::new("sim"));
        let option = command.get_arguments().find(|arg| arg.get_id() == "faults").expect("it is there");
        let help = option.get_help().expect("it has some").to_string();
        for kind in Faults::all().to_string().split(',').map(|part| part.split('=').next().unwrap_or(part)) {
            let error = parse_faults(&format!("{kind}=1001")).expect_err("too often");
            assert!(error.contains("0 to 1000") && error.matches(kind).count() >= 2, "{error}");
            assert!(help.contains(kind), "{kind} is not in the help of --faults: {help}");
        }
        assert!(parse_faults("delay,delay").is_err_and(|error| error.contains("twice")));
        assert!([",", "delay,"].map(parse_faults).iter().all(Result::is_err) && parse_faults("").is_ok());
        assert!(parse_faults("rain").is_err_and(|error| error.contains("register-slow")));
    }

    #[test]
    fn what_came_closest_to_its_budget_is_told() {
        let mut sum = Sum::default();
        for (pinned_peak_bytes, pinned_budget_bytes) in [(0, 0), (10, 100), (50, 60), (500, 1000)] {
            sum.add(&Outcome { pinned_peak_bytes, pinned_budget_bytes, operations: 1, ..Outcome::default() });
        }
        assert_eq!((sum.pinned_peak_bytes, sum.pinned_budget_bytes, sum.operations), (50, 60, 4));
    }

    #[test]
    fn storms_pass_and_are_summed_up() {
        let storm = Storm { nodes: 3, seed: 5, steps: 300, faults: Faults::default(), costs: None };
        let sum = run_all(&storm, 4);
        assert!(
            sum.failure.is_none() && sum.seeds == 4 && sum.steps >= 1200 && sum.operations > 0,
            "{sum:?}"
        );
    }
}

//! `standpipe-study pindown --transport`: PM's bandwidth by hit ratio between two real processes, beside the
//! simulator's with costs that are measured in the same run.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use sim::Costs;
use sim::experiments::PinDown;
use standpipe::{Strategy, Transport, network};

use super::args::PinDownArgs;
use crate::cost_file;
use crate::qemu;
use crate::study::live::case::{Answer, Case, Puts};
use crate::study::live::costs::Taker;
use crate::study::live::job::{Job, Plan};
use measure::machine;
use measure::progress::Bar;
use measure::report::show::{MEASURED, Show, row};
use measure::report::{
    output::Output,
    page::{Figure, Grid},
    plots::{Chart, Series, short},
};
use measure::transport::look_for;
use measure::units::{bytes, grouped};
use measure::usage_error::UsageError;

/// Runs the study.
///
/// # Errors
/// If it is not over a network, a job fails, or the results cannot be written.
pub(super) fn run(args: &PinDownArgs, transport: &Transport) -> Result<ExitCode> {
    if *transport == Transport::Shm {
        let why = "--transport shm: shared memory registers nothing, so that there is nothing to pin down";
        return Err(UsageError::new(why).into());
    }
    let experiment = Experiment::of(args, transport);
    let Experiment { len, plan: Plan { budget, .. }, .. } = experiment;
    if budget < len {
        return Err(UsageError::new(format!(
            "--pin {budget}: a put of {len} bytes wants as many registered"
        ))
        .into());
    }
    let output = Output::make(&args.output)?;
    look_for(transport)?;
    machine::mind_load();
    let mut costs = Taker::start(&experiment.plan, if args.small { 20 } else { 200 })?;
    let measured = experiment.measure(&mut costs)?;
    let (file, costs) = costs.measured().file(&experiment.plan.transport)?;
    let outcome = experiment.outcome(&measured, &costs)?;
    show(args, &experiment, &outcome, costs, file).deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// What is measured.
#[derive(Debug, Clone)]
struct Experiment {
    plan: Plan,
    /// Bytes of a put.
    len: u64,
    /// Puts that are to hit, in percent.
    hits: Vec<u64>,
    rounds: usize,
    /// Puts that are timed at each ratio in a round.
    puts: u64,
}

/// What came to pass in one round.
#[derive(Debug, Default)]
struct Round {
    /// By the order of [`Experiment::hits`].
    puts: Vec<Puts>,
    /// What a write of as many bytes by bare libfabric took, in ns.
    bare_ns: f64,
}

/// The result; keys that the simulated study has are the same here.
#[derive(Debug, Serialize)]
struct Outcome {
    machine: String,
    transport: String,
    put_bytes: u64,
    /// Bytes that may be registered: M and MAXVICTIM together.
    budget_bytes: u64,
    rounds: usize,
    puts: u64,
    /// Writes of as many bytes by bare libfabric, one after the other, from and to memory that is registered
    /// once.
    bare_mb_per_s: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    wanted_percent: f64,
    hit_percent: f64,
    mb_per_s: f64,
    /// Of the slowest round and of the fastest.
    mb_per_s_spread: [f64; 2],
    predicted_mb_per_s: f64,
    predicted_hit_percent: f64,
    /// By how much the measured bandwidth is above what was predicted, in percent of that.
    deviation_percent: f64,
}

impl Experiment {
    fn of(args: &PinDownArgs, transport: &Transport) -> Experiment {
        let budget = args.pin.unwrap_or(if args.small { 1 << 20 } else { 16 << 20 });
        let len = if args.small { 64 << 10 } else { PinDown::paper().len };
        let rounds = if args.small { 2 } else { 5 };
        let plan = Plan { transport: transport.to_string(), budget, bytes: 0, written: 0 };
        let mut experiment = Experiment {
            plan,
            len,
            hits: (0..=100).step_by(if args.small { 50 } else { 10 }).collect(),
            rounds,
            puts: (args.puts / rounds as u64).max(1),
        };
        experiment.plan.bytes = (experiment.places() + 1) * len;
        experiment
    }

    /// Places that misses go to in turn: as the simulated study has it, twice of all that may be registered.
    fn places(&self) -> u64 {
        2 * self.plan.budget / self.len
    }

    /// What each ratio came to in each round. They take turns, so that what disturbs the machine disturbs all
    /// alike, and so do the costs and the bare writes.
    fn measure(&self, costs: &mut Taker) -> Result<Vec<Round>> {
        let bar = Bar::new(self.hits.len() * self.rounds, "points measured");
        let mut job = Job::start(&self.plan, Strategy::PinDown)?;
        let mut round = || {
            costs.round()?;
            let mut round = Round { bare_ns: costs.write(self.len)?, ..Round::default() };
            for hits in &self.hits {
                let case =
                    Case::Mixture { len: self.len, hits: *hits, places: self.places(), puts: self.puts };
                match job.ask(&case)? {
                    Answer::Puts(puts) => round.puts.push(puts),
                    other => bail!("puts were answered by {other:?}"),
                }
                bar.step();
            }
            Ok(round)
        };
        (0..self.rounds).map(|_| round()).collect()
    }

    /// What was measured beside what the simulator says.
    fn outcome(&self, rounds: &[Round], costs: &Costs) -> Result<Outcome> {
        let predict = PinDown {
            costs: costs.clone(),
            settings: network::settings(self.plan.budget),
            len: self.len,
            puts: self.puts * self.rounds as u64,
        };
        let row = |(index, hits): (usize, &u64)| {
            let own: Vec<Puts> = rounds.iter().map(|round| round.puts[index]).collect();
            let [slowest, median, fastest] = spread(own.iter().map(|puts| self.mb_per_s(puts.mean_ns)));
            let sum = |what: fn(&Puts) -> u64| own.iter().map(what).sum::<u64>() as f64;
            let found = sum(|puts| puts.owner.found);
            let point = predict.point(*hits)?;
            Ok(Row {
                wanted_percent: *hits as f64,
                hit_percent: 100.0 * found / (found + sum(|puts| puts.owner.registrations)).max(1.0),
                mb_per_s: median,
                mb_per_s_spread: [slowest, fastest],
                predicted_mb_per_s: point.mb_per_s,
                predicted_hit_percent: point.hit_percent,
                deviation_percent: 100.0 * (median / point.mb_per_s - 1.0),
            })
        };
        let [_, bare_mb_per_s, _] = spread(rounds.iter().map(|round| self.mb_per_s(round.bare_ns)));
        Ok(Outcome {
            machine: costs.name.clone(),
            transport: self.plan.transport.clone(),
            put_bytes: self.len,
            budget_bytes: self.plan.budget,
            rounds: self.rounds,
            puts: self.puts,
            bare_mb_per_s,
            rows: self.hits.iter().enumerate().map(row).collect::<Result<_>>()?,
        })
    }

    fn mb_per_s(&self, ns: f64) -> f64 {
        self.len as f64 * 1e3 / ns
    }
}

/// The least, the median and the most.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [0, values.len() / 2, values.len() - 1].map(|index| values[index])
}

fn show(args: &PinDownArgs, experiment: &Experiment, outcome: &Outcome, costs: Costs, file: String) -> Show {
    let micros = |ns: u64| format!("{:.1} µs", ns as f64 / 1e3);
    Show {
        heading: "PM’s pin-down cache, for real: bandwidth by hit ratio",
        lead: format!(
            "Two processes on this machine, over libfabric ({}). One puts to the other’s ordinary memory, one put after the \
             other, each complete there before the next: some hit, to memory that is registered already, the others miss, \
             to memory that the cache has given up since it was last used. Each put asks the owner, as PM’s do. Beside it, \
             the same puts in the simulator, with costs measured in this run.",
            outcome.transport
        ),
        summary: summary(outcome),
        figures: vec![figure(outcome)],
        grids: vec![grid(outcome)],
        findings: Vec::new(),
        numbers: Vec::new(),
        explanations: Vec::new(),
        seed: None,
        setup: vec![
            row("reached by", format!("libfabric ({})", outcome.transport)),
            row("strategy", "pin-down"),
            row("a put", bytes(outcome.put_bytes)),
            row("what may be registered", bytes(outcome.budget_bytes)),
            row("rounds, in each of which ratios take turns", outcome.rounds),
            row("puts timed at a ratio in a round", grouped(outcome.puts)),
            row(
                "registering a put’s memory, and its end",
                format!(
                    "{} and {}",
                    micros(costs.register_ns(outcome.put_bytes)),
                    micros(costs.deregister_ns(outcome.put_bytes))
                ),
            ),
        ],
        command: format!(
            "standpipe-study pindown --transport '{}' --pin {} --puts {}{}",
            experiment.plan.transport,
            experiment.plan.budget,
            args.puts,
            if args.small { " --small" } else { "" }
        ) + qemu::word(),
        costs: Some(cost_file::of(&costs)),
        beside: vec![(MEASURED, file)],
    }
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let end = |row: &Row| {
        let [slowest, fastest] = row.mb_per_s_spread;
        format!(
            "At {:.0} % hits: {:.0} MB/s (rounds: {slowest:.0} to {fastest:.0}), {:+.0} % beside what was predicted, and \
             {:.2} of bare writes’ {:.0}.",
            row.hit_percent,
            row.mb_per_s,
            row.deviation_percent,
            row.mb_per_s / outcome.bare_mb_per_s,
            outcome.bare_mb_per_s
        )
    };
    [outcome.rows.first(), outcome.rows.last()].into_iter().flatten().map(end).collect()
}

fn figure(outcome: &Outcome) -> Figure {
    let line = |name: &str, height: fn(&Row) -> f64| Series {
        name: name.to_owned(),
        points: outcome.rows.iter().map(|row| (row.hit_percent, height(row))).collect(),
    };
    let bare = [0.0, 100.0].map(|hits| (hits, outcome.bare_mb_per_s)).to_vec();
    Figure {
        title: "Bandwidth of puts by hit ratio".into(),
        note: "Measured between two processes: medians over rounds. Predicted: in the simulator, with the costs that were \
               measured in this run. Bare writes: by libfabric itself, to memory that is registered once."
            .into(),
        chart: Chart {
            x_label: "puts whose memory was registered (%)",
            y_label: "MB/s",
            x_log: false,
            y_log: false,
            y_text: short,
            y_max: None,
            marks: Vec::new(),
            series: vec![
                line("measured", |row| row.mb_per_s),
                line("predicted", |row| row.predicted_mb_per_s),
                Series { name: "bare writes".to_owned(), points: bare },
            ],
        },
    }
}

fn grid(outcome: &Outcome) -> Grid {
    let cells = |row: &Row| {
        let [slowest, fastest] = row.mb_per_s_spread;
        vec![
            format!("{:.1}", row.hit_percent),
            format!("{:.1}", row.predicted_hit_percent),
            format!("{:.0}", row.mb_per_s),
            format!("{slowest:.0} to {fastest:.0}"),
            format!("{:.0}", row.predicted_mb_per_s),
            format!("{:+.0} %", row.deviation_percent),
        ]
    };
    let header = ["hits (%)", "predicted", "MB/s", "rounds", "predicted", "measured beside it"];
    Grid {
        title: "Bandwidth by hit ratio".to_owned(),
        note: "“Rounds”: the slowest and the fastest. Hits: of the registrations that the owner was asked for, those that \
               were there."
            .to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: outcome.rows.iter().map(cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_put_beside_what_was_predicted_of_them() {
        let experiment = Experiment {
            plan: Plan { transport: "ofi:tcp".into(), budget: 16 << 20, bytes: 0, written: 0 },
            len: 256 << 10,
            hits: vec![0, 100],
            rounds: 3,
            puts: 50,
        };
        let owner = |found, registrations| crate::study::live::case::Owner {
            found,
            registrations,
            ..Default::default()
        };
        let round = |miss: f64, hit: f64| Round {
            puts: vec![
                Puts { mean_ns: miss, puts: 50, misses: 50, owner: owner(0, 50) },
                Puts { mean_ns: hit, puts: 50, misses: 50, owner: owner(50, 0) },
            ],
            bare_ns: 1e6,
        };
        let rounds = [round(9e6, 2e6), round(3e6, 1e6), round(6e6, 4e6)];
        let costs = PinDown::paper().costs;
        let outcome = experiment.outcome(&rounds, &costs).expect("nothing fails in the simulator");
        let [miss, hit] = &outcome.rows[..] else { panic!("a row a ratio") };
        assert_eq!((miss.hit_percent, hit.hit_percent), (0.0, 100.0));
        let mb_per_s = |ms: f64| (256 << 10) as f64 / 1e3 / ms;
        assert_eq!((miss.mb_per_s, hit.mb_per_s), (mb_per_s(6.0), mb_per_s(2.0)));
        assert_eq!(miss.mb_per_s_spread, [mb_per_s(9.0), mb_per_s(3.0)]);
        assert_eq!((miss.predicted_hit_percent, hit.predicted_hit_percent), (0.0, 100.0));
        assert!(hit.predicted_mb_per_s > miss.predicted_mb_per_s && outcome.bare_mb_per_s == mb_per_s(1.0));
    }
}

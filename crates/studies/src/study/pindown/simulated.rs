//! PM's bandwidth by how many of the transfers hit its pin-down cache, in virtual time.

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use sim::experiments::{PinDown, PinDownPoint};

use super::args::PinDownArgs;
use super::paper::PAPER;
use crate::all_cores::on_all_cores;
use crate::cost_file;
use measure::progress::Bar;
use measure::report::{
    output::Output,
    page::{Figure, Grid},
    plots::{Chart, Series, short},
    show::{Show, beside, deviation, deviation_percent, row},
};
use measure::units::bytes;

#[derive(Debug, Serialize)]
struct Outcome {
    machine: String,
    put_bytes: u64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    wanted_percent: f64,
    hit_percent: f64,
    mb_per_s: f64,
    paper_mb_per_s: Option<f64>,
    deviation_percent: Option<f64>,
}

impl Row {
    fn of(point: &PinDownPoint) -> Row {
        let paper = PAPER.iter().find(|(hits, _)| *hits == point.wanted_percent).map(|(_, value)| *value);
        Row {
            wanted_percent: point.wanted_percent,
            hit_percent: point.hit_percent,
            mb_per_s: point.mb_per_s,
            paper_mb_per_s: paper,
            deviation_percent: paper.map(|paper| deviation_percent(point.mb_per_s, paper)),
        }
    }

    fn cells(&self) -> Vec<String> {
        let number = |value: f64| format!("{value:.1}");
        let none = || "–".to_owned();
        vec![
            number(self.hit_percent),
            number(self.mb_per_s),
            self.paper_mb_per_s.map_or_else(none, number),
            self.paper_mb_per_s.map_or_else(none, |paper| deviation(self.mb_per_s, paper)),
        ]
    }
}

/// Runs the study.
///
/// # Errors
/// If a simulated put fails, or the results cannot be written.
pub(super) fn run(args: &PinDownArgs) -> Result<ExitCode> {
    let output = Output::make(&args.output)?;
    let experiment = PinDown { puts: args.puts, ..PinDown::paper() };
    let hits: Vec<u64> = (0..=100).step_by(if args.small { 50 } else { 5 }).collect();
    let bar = Bar::new(hits.len(), "hit ratios");
    let points: Result<Vec<PinDownPoint>, _> = on_all_cores(&hits, |hits| {
        let point = experiment.point(*hits);
        bar.step();
        point
    })
    .into_iter()
    .collect();
    drop(bar);
    let outcome = Outcome {
        machine: experiment.costs.name.clone(),
        put_bytes: experiment.len,
        rows: points?.iter().map(Row::of).collect(),
    };
    let show = show(args, &experiment, &outcome);
    show.deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

fn show(args: &PinDownArgs, experiment: &PinDown, outcome: &Outcome) -> Show {
    Show {
        heading: "PM’s pin-down cache: bandwidth by hit ratio",
        lead: "PM keeps memory pinned after a transfer, in case that it is wanted again. Two simulated nodes with the \
               costs of its paper (Myrinet, 1998) do one put after the other: some hit, from and to memory that is \
               pinned already, the others miss, from and to memory that the cache has given up."
            .to_owned(),
        summary: summary(outcome),
        figures: vec![figure(outcome)],
        grids: vec![Grid {
            title: "Bandwidth by hit ratio".to_owned(),
            note: String::new(),
            header: ["hits (%)", "MB/s", "the paper’s MB/s", "ours beside it"].map(str::to_owned).to_vec(),
            rows: outcome.rows.iter().map(Row::cells).collect(),
        }],
        findings: Vec::new(),
        numbers: Vec::new(),
        explanations: Vec::new(),
        costs: Some(cost_file::of(&experiment.costs)),
        seed: None,
        setup: vec![
            row("strategy", "pin-down"),
            row("a put", bytes(outcome.put_bytes)),
            row("puts at each ratio", args.puts),
            row("pinned for the peer, at most (M)", bytes(experiment.settings.peers_bytes)),
            row("pinned for itself or nobody (MAXVICTIM)", bytes(experiment.settings.victims_bytes)),
        ],
        command: format!(
            "standpipe-study pindown --puts {}{}",
            args.puts,
            if args.small { " --small" } else { "" }
        ),
        beside: Vec::new(),
    }
}

fn figure(outcome: &Outcome) -> Figure {
    let measured = outcome.rows.iter().map(|row| (row.hit_percent, row.mb_per_s)).collect();
    Figure {
        title: "Bandwidth of puts by hit ratio".into(),
        note:
            "The paper published both ends only. Its line between them is where mixtures of their times would be."
                .into(),
        chart: Chart {
            x_label: "puts whose memory was pinned (%)",
            y_label: "MB/s",
            x_log: false,
            y_log: false,
            y_text: short,
            y_max: None,
            marks: Vec::new(),
            series: vec![
                Series { name: "standpipe, simulated".to_owned(), points: measured },
                Series { name: "the paper’s two figures".to_owned(), points: published() },
            ],
        },
    }
}

/// What the paper's two figures give for mixtures, if times add up.
fn published() -> Vec<(f64, f64)> {
    let [(_, miss), (_, hit)] = PAPER;
    let mixture = |hits: f64| 1.0 / (hits / 100.0 / hit + (1.0 - hits / 100.0) / miss);
    (0..=20).map(|step| f64::from(5 * step)).map(|hits| (hits, mixture(hits))).collect()
}

/// How the ends compare, and what that is worth.
fn summary(outcome: &Outcome) -> Vec<String> {
    let published = outcome.rows.iter().filter_map(|row| Some((row, row.paper_mb_per_s?)));
    let end = |(row, paper): (&Row, f64)| {
        let warning =
            if deviation_percent(row.mb_per_s, paper).abs() > 20.0 { ", more than 20 % off" } else { "" };
        let beside = beside(row.mb_per_s, paper);
        format!(
            "At {:.0} % hits: {:.1} MB/s, {beside} the paper’s {paper}{warning}.",
            row.wanted_percent, row.mb_per_s
        )
    };
    let calibrated =
        "The cost of pinning a page is calibrated from the paper’s two figures: that both are met says only \
                      that the engine adds little of its own. What lies between them is the engine’s."
            .to_owned();
    published.map(end).chain([calibrated]).collect()
}

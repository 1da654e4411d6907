//! The Firehose paper's figures in virtual time, by every strategy.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;
use sim::experiments::{Curve, Figures, Recorded, Shape, Strategy, ahead};

use super::{
    advantage::{self, Percents},
    applications::{self, Application},
    args::FirehoseArgs,
};
use crate::cost_file;
use crate::{
    all_cores::on_all_cores,
    study::recording::{Program, Size},
};
use measure::{
    progress::Bar,
    report::{
        output::Output,
        page::{Figure, Grid},
        plots::{Chart, Mark, Series, short},
        show::{Show, row},
    },
    scratch,
};

#[derive(Debug, Serialize)]
struct Outcome {
    machine: String,
    applications: Vec<Application>,
    figures: Vec<FigureResult>,
}

#[derive(Debug, Serialize)]
pub(super) struct FigureResult {
    pub(super) name: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    /// M, where there is a working set.
    pub(super) knee: Option<f64>,
    pub(super) series: Vec<SeriesResult>,
    /// Along the bottom: where firehose is better than rendezvous-no-unpin, and where it is not.
    pub(super) firehose_ahead_at: Vec<f64>,
    pub(super) firehose_behind_at: Vec<f64>,
    /// By how much it is better at each: percent more bandwidth, or less time.
    pub(super) firehose_ahead_percent: Percents,
}

#[derive(Debug, Serialize)]
pub(super) struct SeriesResult {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Runs the study.
///
/// # Errors
/// If a simulated put fails, or the results cannot be written.
pub(super) fn run(args: &FirehoseArgs) -> Result<ExitCode> {
    let output = Output::make(&args.output)?;
    let programs = Figures { puts: args.puts, seed: args.seed, ..Figures::paper() };
    let experiment = if args.small { small(&programs) } else { programs.clone() };
    let recorded = record(&programs, args.small)?;
    let outcome = Outcome {
        machine: experiment.costs.name.clone(),
        applications: applications::table(&programs, &recorded)?,
        figures: figures(&experiment)?,
    };
    let mut show = show(args, &experiment, &outcome);
    show.setup.extend(applications::setup(&recorded, size(args.small)));
    show.deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// The figures of a machine that can pin a fifteenth of the paper's, by few points that have M and all
/// between them.
fn small(paper: &Figures) -> Figures {
    let mut small = Figures {
        sizes: vec![8, 4096, 64 << 10, 1 << 20],
        working_sets: [4, 16, 28, 32, 36, 60].map(|mib: u64| mib << 20).to_vec(),
        puts: paper.puts.min(100),
        ..paper.clone()
    };
    small.settings.peers_bytes /= SMALLER;
    small.settings.victims_bytes /= SMALLER;
    small.costs.pinnable_bytes /= SMALLER;
    small
}

const SMALLER: u64 = 15;

/// Runs both programs here, one after the other: they want the cores for themselves.
fn record(experiment: &Figures, small: bool) -> Result<Vec<(Program, Recorded)>> {
    let hosts = applications::hosts(experiment);
    let directory = scratch::folder().context("recordings need a folder")?;
    let bar = Bar::new(Program::ALL.len(), "programs recorded");
    let record = |program: Program| {
        let recorded = program.record(size(small), &hosts, directory.path())?;
        bar.step();
        Ok((program, recorded))
    };
    Program::ALL.into_iter().map(record).collect()
}

fn size(small: bool) -> Size {
    if small { Size::Small } else { Size::Paper }
}

fn figures(experiment: &Figures) -> Result<Vec<FigureResult>> {
    let jobs: Vec<(Shape, Strategy)> =
        Shape::ALL.into_iter().flat_map(|shape| Strategy::ALL.map(|strategy| (shape, strategy))).collect();
    let points = jobs.iter().map(|(shape, _)| experiment.bottom(*shape).len()).sum();
    let bar = Bar::new(points, "points of the figures");
    let curves: Vec<Curve> =
        on_all_cores(&jobs, |(shape, strategy)| experiment.curve(*shape, *strategy, || bar.step()))
            .into_iter()
            .collect::<Result<_, _>>()?;
    let curves = curves.chunks(Strategy::ALL.len());
    Ok(Shape::ALL.into_iter().zip(curves).map(|(shape, curves)| result(experiment, shape, curves)).collect())
}

fn result(experiment: &Figures, shape: Shape, curves: &[Curve]) -> FigureResult {
    let of = |strategy| {
        let curve = curves.iter().find(|curve| curve.strategy == strategy);
        curve.expect("every strategy has its curve")
    };
    let (firehose, keep) = (of(Strategy::Firehose), of(Strategy::RendezvousKeep));
    let (firehose_ahead_at, firehose_behind_at) = ahead(shape, firehose, keep);
    let series = |curve: &Curve| SeriesResult { name: curve.strategy.name(), points: curve.points.clone() };
    let words = words(shape);
    FigureResult {
        name: words.name,
        x: words.x,
        y: words.y,
        knee: (shape != Shape::BandwidthBySize).then(|| experiment.knee() as f64 / MIB),
        series: curves.iter().map(series).collect(),
        firehose_ahead_at,
        firehose_behind_at,
        firehose_ahead_percent: advantage::percents(shape, firehose, keep),
    }
}

const MIB: f64 = 1024.0 * 1024.0;

/// What a figure is called, and how it is read.
struct Words {
    name: &'static str,
    title: &'static str,
    note: &'static str,
    x: &'static str,
    y: &'static str,
}

fn words(shape: Shape) -> Words {
    match shape {
        Shape::BandwidthBySize => Words {
            name: "bandwidth-by-size",
            title: "Bandwidth by size, always to one place",
            note: "One put after the other, so that the memory is registered after the first. The rendezvous and \
                   pin-down ask the target before each put all the same; firehose asked once.",
            x: "bytes of a put (logarithmic)",
            y: "MB/s",
        },
        Shape::BandwidthByWorkingSet => Words {
            name: "bandwidth-by-working-set",
            title: "Bandwidth of 64-KiB puts at random",
            note: "Up to M, what peers may hold, firehose asks for nothing twice; there the paper’s curve bends. Beyond \
                   M + MAXVICTIM, all that the machine can pin, most puts wait until pages are unpinned, for 6 ms each.",
            x: "memory that is put to (MiB)",
            y: "MB/s",
        },
        Shape::RoundTripByWorkingSet => Words {
            name: "round-trip-by-working-set",
            title: "Round trip of 8-byte puts at random",
            note: "From the call until the put is known to be complete. Less is better.",
            x: "memory that is put to (MiB)",
            y: "µs (logarithmic)",
        },
    }
}

/// What a figure's table shows of what is along its bottom: a few of many points, all of few.
fn columns(shape: Shape, bottom: &[f64]) -> Vec<f64> {
    let chosen: &[f64] = match shape {
        Shape::BandwidthBySize => &[8.0, 256.0, 4096.0, 65_536.0, 1_048_576.0],
        _ => &[64.0, 448.0, 512.0, 576.0, 608.0, 896.0],
    };
    let shown = |x: &f64| bottom.len() <= 7 || chosen.contains(x);
    bottom.iter().copied().filter(shown).collect()
}

fn show(args: &FirehoseArgs, experiment: &Figures, outcome: &Outcome) -> Show {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let figures = || Shape::ALL.into_iter().zip(&outcome.figures);
    Show {
        heading: "Firehose: the paper’s figures in virtual time",
        lead: "Two simulated nodes with the costs of the Firehose paper’s machine (Myrinet with GM, 2003). Its card \
               reaches registered (pinned) memory only; each strategy is one way of seeing to that, and a setting of \
               Standpipe’s one engine. Each put is complete before the next begins."
            .to_owned(),
        summary: summary(outcome),
        figures: figures().map(|(shape, result)| figure(experiment, shape, result)).collect(),
        grids: std::iter::once(applications::grid(&outcome.applications))
            .chain(figures().map(|(shape, result)| grid(experiment, shape, result)))
            .collect(),
        findings: figures()
            .map(|(shape, result)| finding(shape, result))
            .chain(applications::findings(&outcome.applications))
            .collect(),
        numbers: Vec::new(),
        explanations: std::iter::once(strategies()).chain(applications::explanations()).collect(),
        costs: Some(cost_file::of(&experiment.costs)),
        seed: Some(args.seed),
        setup: vec![
            row("a bucket", "one page of 4 KiB; 16 at most in one registration"),
            row("what peers may hold (M), in the figures", mib(experiment.settings.peers_bytes)),
            row("victims, and local pins (MAXVICTIM)", mib(experiment.settings.victims_bytes)),
            row("victims’ order", "what has been idle longest goes first"),
            row("puts timed for a point", experiment.puts),
        ],
        command: format!(
            "standpipe-study firehose --puts {} --seed {}{}",
            experiment.puts,
            args.seed,
            if args.small { " --small" } else { "" }
        ),
        beside: Vec::new(),
    }
}

/// What the strategies do, for who has not read the paper.
fn strategies() -> (&'static str, Vec<String>) {
    let lines = [
        "hardware: the card reaches all memory, and nothing is registered. No such card was sold; it is the limit.",
        "pin-everything: what was registered once stays so, as far as the machine can pin.",
        "bounce: nothing is registered but buffers; all bytes are copied through them.",
        "rendezvous-unpin: each put asks its target to register the memory, which is unregistered after it.",
        "rendezvous-no-unpin: each put asks, and what was registered once stays so, as far as the machine can pin.",
        "pin-down (PM’s cache): each put asks, and what was registered stays so as far as MAXVICTIM goes.",
        "firehose: who has asked holds on to the registration, and asks for it no more until it has given it up. A put \
         to what is held is a hit; any other is a miss, and asks first: a move. Peers may hold M in all.",
    ];
    ("What do the strategies do?", lines.map(str::to_owned).to_vec())
}

/// The programs, the figures, and how far this is from the paper.
fn summary(outcome: &Outcome) -> Vec<String> {
    let percents: Percents =
        outcome.figures.iter().flat_map(|figure| figure.firehose_ahead_percent.clone()).collect();
    vec![
        applications::hits(&outcome.applications),
        format!(
            "Firehose against rendezvous-no-unpin, which asks before each put: {}.",
            advantage::words(&percents)
        ),
        applications::deviations(&outcome.applications),
    ]
}

fn figure(experiment: &Figures, shape: Shape, result: &FigureResult) -> Figure {
    let words = words(shape);
    let series =
        |series: &SeriesResult| Series { name: series.name.to_owned(), points: series.points.clone() };
    let marks = match shape {
        Shape::BandwidthBySize => Vec::new(),
        _ => [(experiment.knee(), "M"), (experiment.budget(), "M + MAXVICTIM")]
            .map(|(bytes, name)| Mark { at: bytes as f64 / MIB, name })
            .to_vec(),
    };
    Figure {
        title: words.title.into(),
        note: words.note.into(),
        chart: Chart {
            x_label: words.x,
            y_label: words.y,
            x_log: shape == Shape::BandwidthBySize,
            y_log: shape == Shape::RoundTripByWorkingSet,
            y_text: short,
            y_max: None,
            marks,
            series: result.series.iter().map(series).collect(),
        },
    }
}

fn grid(experiment: &Figures, shape: Shape, result: &FigureResult) -> Grid {
    let (words, columns) = (words(shape), columns(shape, &experiment.bottom(shape)));
    let shown = |series: &SeriesResult| {
        let value = |x: &f64| {
            let point = series.points.iter().find(|point| point.0 == *x);
            point.map_or_else(|| "–".to_owned(), |point| number(point.1))
        };
        std::iter::once(series.name.to_owned()).chain(columns.iter().map(value)).collect()
    };
    let column = |x: &f64| match shape {
        Shape::BandwidthBySize => measure::units::bytes(*x as u64),
        _ => format!("{x} MiB"),
    };
    Grid {
        title: format!("{} ({})", words.title, words.y.trim_end_matches(" (logarithmic)")),
        note: String::new(),
        header: std::iter::once("strategy".to_owned()).chain(columns.iter().map(column)).collect(),
        rows: result.series.iter().map(shown).collect(),
    }
}

/// With three digits that count at least, or none would be left of what unpins.
fn number(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Whether the figure keeps what the paper shows: firehose ahead of what never unpins.
fn finding(shape: Shape, result: &FigureResult) -> String {
    format!(
        "{}: firehose is {} ({}, beside rendezvous-no-unpin).",
        words(shape).title,
        advantage::words(&result.firehose_ahead_percent),
        if shape.is_bandwidth() { "more bandwidth" } else { "less time" }
    )
}

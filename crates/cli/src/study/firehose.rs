//! `standpipe study firehose`: the Firehose paper's figures, by every strategy.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use sim::experiments::{Curve, Figures, Recorded, Shape, Strategy, ahead};

use super::{
    applications::{self, Application},
    recording::{Program, Size},
    show::{Show, row},
    work::{Bar, on_all_cores},
};
use crate::report::{
    output::{Output, OutputArgs},
    page::{Figure, Grid},
    plots::{Chart, Mark, Series, short},
};

/// Arguments of `standpipe study firehose`.
#[derive(Debug, Args)]
pub struct FirehoseArgs {
    /// Puts that are timed for each point of a figure
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    puts: u64,
    /// Fewer puts, twenty times smaller programs, and small working sets: to see that it runs
    #[arg(long)]
    small: bool,
    /// Decides to which places puts at random go
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Outcome {
    machine: String,
    applications: Vec<Application>,
    figures: Vec<FigureResult>,
}

#[derive(Debug, Serialize)]
struct FigureResult {
    name: &'static str,
    x: &'static str,
    y: &'static str,
    /// M, where there is a working set.
    knee: Option<f64>,
    series: Vec<SeriesResult>,
    /// Along the bottom: where firehose is better than rendezvous-no-unpin, and where it is not.
    firehose_ahead_at: Vec<f64>,
    firehose_behind_at: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct SeriesResult {
    name: &'static str,
    points: Vec<(f64, f64)>,
}

/// Runs the study.
///
/// # Errors
/// If a simulated put fails, or the results cannot be written.
pub fn run(args: &FirehoseArgs) -> Result<ExitCode> {
    let output = Output::make(&args.output)?;
    let experiment = experiment(args);
    let recorded = record(&experiment, args.small)?;
    let outcome = Outcome {
        machine: experiment.costs.name.clone(),
        applications: applications::table(&experiment, &recorded)?,
        figures: figures(&experiment)?,
    };
    let mut show = show(args, &experiment, &outcome);
    show.setup.extend(applications::setup(&recorded, size(args.small)));
    output.deliver(&show.html(), &show.text(), &outcome)?;
    Ok(ExitCode::SUCCESS)
}

fn experiment(args: &FirehoseArgs) -> Figures {
    let paper = Figures { puts: args.puts, seed: args.seed, ..Figures::paper() };
    match args.small {
        false => paper,
        true => Figures {
            sizes: vec![8, 4096, 64 << 10, 1 << 20],
            working_sets: [4, 16].map(|mib: u64| mib << 20).to_vec(),
            puts: args.puts.min(100),
            ..paper
        },
    }
}

/// Runs both programs here, one after the other: they want the cores for themselves.
fn record(experiment: &Figures, small: bool) -> Result<Vec<(Program, Recorded)>> {
    let hosts = applications::hosts(experiment);
    let directory = tempfile::tempdir().context("making a directory for the recordings")?;
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
    let (ahead, behind) = ahead(shape, of(Strategy::Firehose), of(Strategy::RendezvousKeep));
    let series = |curve: &Curve| SeriesResult { name: curve.strategy.name(), points: curve.points.clone() };
    let words = words(shape);
    FigureResult {
        name: words.name,
        x: words.x,
        y: words.y,
        knee: (shape != Shape::BandwidthBySize).then(|| experiment.knee() as f64 / MIB),
        series: curves.iter().map(series).collect(),
        firehose_ahead_at: ahead,
        firehose_behind_at: behind,
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
    /// What its table shows, of what is along the bottom.
    columns: &'static [f64],
}

fn words(shape: Shape) -> Words {
    match shape {
        Shape::BandwidthBySize => Words {
            name: "bandwidth-by-size",
            title: "Bandwidth by size, always to one place",
            note: "One put after the other. What asks for each put pays for the handshake at every size; firehose asks \
                   once.",
            x: "bytes of a put (logarithmic)",
            y: "MB/s",
            columns: &[8.0, 256.0, 4096.0, 65_536.0, 1_048_576.0],
        },
        Shape::BandwidthByWorkingSet => Words {
            name: "bandwidth-by-working-set",
            title: "Bandwidth of 64-KiB puts at random",
            note: "The broken lines are at M = 450 MiB, what peers may hold, where the paper’s curve bends, and at M + \
                   MAXVICTIM = 600 MiB, what the machine can pin: beyond it pages are unpinned, for 6 ms each. \
                   Rendezvous-unpin unpins all 16 pages of each put.",
            x: "memory that is put to (MiB)",
            y: "MB/s",
            columns: &[64.0, 448.0, 512.0, 576.0, 608.0, 896.0],
        },
        Shape::RoundTripByWorkingSet => Words {
            name: "round-trip-by-working-set",
            title: "Round trip of 8-byte puts at random",
            note: "From the call until the put is known to be complete. The broken lines are at M and at M + \
                   MAXVICTIM.",
            x: "memory that is put to (MiB)",
            y: "µs (logarithmic)",
            columns: &[64.0, 448.0, 512.0, 576.0, 608.0, 896.0],
        },
    }
}

fn show(args: &FirehoseArgs, experiment: &Figures, outcome: &Outcome) -> Show {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let figures = || Shape::ALL.into_iter().zip(&outcome.figures);
    Show {
        heading: "Firehose: the paper’s figures in virtual time",
        lead: "Two simulated nodes with the costs of the Firehose paper’s machine (Myrinet with GM, 2003). Each \
               strategy is a setting of Standpipe’s one engine; each put is complete before the next begins."
            .to_owned(),
        figures: figures().map(|(shape, result)| figure(experiment, shape, result)).collect(),
        grids: std::iter::once(applications::grid(&outcome.applications))
            .chain(figures().map(|(shape, result)| grid(shape, result)))
            .collect(),
        findings: figures()
            .map(|(shape, result)| finding(shape, result))
            .chain(applications::findings(&outcome.applications))
            .collect(),
        setup: vec![
            row("machine", &outcome.machine),
            row("a bucket", "one page of 4 KiB; 16 at most in one registration"),
            row("what peers may hold (M)", mib(experiment.settings.peers_bytes)),
            row("victims, and local pins (MAXVICTIM)", mib(experiment.settings.victims_bytes)),
            row("victims’ order", "what has been idle longest goes first"),
            row("puts timed for a point", args.puts),
        ],
        command: format!(
            "standpipe study firehose --puts {} --seed {}{}",
            args.puts,
            args.seed,
            if args.small { " --small" } else { "" }
        ),
    }
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

fn grid(shape: Shape, result: &FigureResult) -> Grid {
    let words = words(shape);
    let shown = |series: &SeriesResult| {
        let value = |x: &f64| {
            let point = series.points.iter().find(|point| point.0 == *x);
            point.map_or_else(|| "–".to_owned(), |point| format!("{:.1}", point.1))
        };
        std::iter::once(series.name.to_owned()).chain(words.columns.iter().map(value)).collect()
    };
    let column = |x: &f64| match shape {
        Shape::BandwidthBySize => crate::kv::outcome::bytes(*x as u64),
        _ => format!("{x} MiB"),
    };
    Grid {
        title: format!("{} ({})", words.title, words.y.trim_end_matches(" (logarithmic)")),
        note: String::new(),
        header: std::iter::once("strategy".to_owned()).chain(words.columns.iter().map(column)).collect(),
        rows: result.series.iter().map(shown).collect(),
    }
}

/// Whether the figure keeps what the paper shows: firehose ahead of what never unpins.
fn finding(shape: Shape, result: &FigureResult) -> String {
    let (ahead, behind) = (&result.firehose_ahead_at, &result.firehose_behind_at);
    let all = ahead.len() + behind.len();
    let what = words(shape).title;
    if behind.is_empty() {
        return format!("{what}: firehose is ahead of rendezvous-no-unpin at all {all} points.");
    }
    let at: Vec<String> = behind.iter().map(|x| x.to_string()).collect();
    format!(
        "{what}: firehose is NOT ahead of rendezvous-no-unpin at {} of {all} points: {}.",
        behind.len(),
        at.join(", ")
    )
}

//! What a live study of puts at random shows.

use sim::experiments::Shape;

use super::advantage;
use super::args::FirehoseArgs;
use super::experiment::{Experiment, Outcome, SHAPES, STRATEGIES};
use super::outcome::{Point, deviations, words};
use super::simulated::FigureResult;
use crate::cost_file;
use crate::qemu;
use measure::report::page::{Figure, Grid};
use measure::report::plots::{Chart, Mark, Series, short};
use measure::report::show::{MEASURED, Show, row};
use measure::units::{bytes, grouped};

/// All that there is to show; `file` is the text of the costs.
pub(super) fn show(args: &FirehoseArgs, experiment: &Experiment, outcome: &Outcome, file: String) -> Show {
    let shapes = SHAPES.map(|(shape, _)| shape);
    let pair = |(index, shape): (usize, &Shape)| {
        [
            figure(*shape, outcome, &outcome.figures[index], "measured"),
            figure(*shape, outcome, &outcome.predicted[index], "predicted"),
        ]
    };
    let costs = &outcome.measured_costs;
    Show {
        heading: "Firehose: each strategy for real",
        lead: format!(
            "Two processes on this machine, over libfabric ({}): each puts to random places of the other’s ordinary \
             memory, of which so much may be registered at a time. Each strategy is a setting of Standpipe’s one engine, \
             and each put is complete in the other’s memory before the next begins. Beside it, the same puts in the \
             simulator, with costs measured in this run.",
            outcome.transport
        ),
        summary: summary(outcome),
        figures: shapes.iter().enumerate().flat_map(pair).collect(),
        grids: shapes
            .iter()
            .map(|shape| times(*shape, outcome))
            .chain(shapes.iter().map(|shape| counts(*shape, outcome)))
            .collect(),
        findings: shapes
            .iter()
            .flat_map(|shape| deviations(words(*shape).title, &of(*shape, outcome)))
            .collect(),
        numbers: Vec::new(),
        explanations: Vec::new(),
        seed: Some(args.seed),
        setup: vec![
            row("reached by", format!("libfabric ({})", outcome.transport)),
            row("what may be registered", bytes(outcome.budget_bytes)),
            row("of that, what peers may hold (M)", bytes(outcome.budget_bytes - outcome.budget_bytes / 4)),
            row("a bucket", "one page; 256 at most in one registration"),
            row("rounds, in each of which strategies take turns", outcome.rounds),
            row("puts timed for a point in a round", grouped(outcome.puts)),
            row(
                "a message there and back",
                micros(2 * (costs.latency_ns + costs.send_overhead_ns + costs.receive_overhead_ns)),
            ),
            row(
                "registering a page, and its end",
                format!("{} and {}", micros(costs.register_ns(4096)), micros(costs.deregister_ns(4096))),
            ),
            row(
                "registering 64 KiB, and its end",
                format!(
                    "{} and {}",
                    micros(costs.register_ns(64 << 10)),
                    micros(costs.deregister_ns(64 << 10))
                ),
            ),
            row("each byte of a long write", format!("{:.3} ns", costs.gap_ns_per_byte)),
        ],
        command: command(args, experiment),
        costs: Some(cost_file::of(costs)),
        beside: vec![(MEASURED, file)],
    }
}

fn command(args: &FirehoseArgs, experiment: &Experiment) -> String {
    format!(
        "standpipe-study firehose --transport '{}' --pin {} --puts {} --seed {}{}",
        experiment.plan.transport,
        experiment.plan.budget,
        args.puts,
        args.seed,
        if args.small { " --small" } else { "" }
    ) + qemu::word()
}

fn micros(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}

fn of(shape: Shape, outcome: &Outcome) -> Vec<&Point> {
    let mut points: Vec<&Point> =
        outcome.points.iter().filter(|point| point.figure == words(shape).name).collect();
    points.sort_by_key(|point| STRATEGIES.iter().position(|strategy| strategy.name() == point.strategy));
    points
}

fn figure(shape: Shape, outcome: &Outcome, result: &FigureResult, what: &str) -> Figure {
    let words = words(shape);
    let budget = outcome.budget_bytes as f64 / (1 << 20) as f64;
    let both = [result, other(result, outcome)];
    let highest = both.into_iter().flat_map(|figure| &figure.series).flat_map(|series| &series.points);
    let highest = highest.map(|point| point.1).fold(0.0, f64::max);
    Figure {
        title: format!("{}: {what}", words.title).into(),
        note: match what {
            "measured" => "Between two processes; medians over rounds.",
            _ => "In the simulator, with the costs that were measured in this run.",
        }
        .into(),
        chart: Chart {
            x_label: words.x,
            y_label: words.y,
            x_log: true,
            y_log: shape == Shape::RoundTripByWorkingSet,
            y_text: short,
            y_max: Some(1.08 * highest),
            marks: vec![Mark { at: budget * 0.75, name: "M" }, Mark { at: budget, name: "budget" }],
            series: result
                .series
                .iter()
                .map(|series| Series { name: series.name.to_owned(), points: series.points.clone() })
                .collect(),
        },
    }
}

/// The figure that stands beside one.
fn other<'a>(result: &FigureResult, outcome: &'a Outcome) -> &'a FigureResult {
    let same = |figure: &&FigureResult| figure.name == result.name;
    let pair = [outcome.figures.iter().find(same), outcome.predicted.iter().find(same)];
    let differs = |figure: &&FigureResult| !std::ptr::eq(*figure, result);
    pair.into_iter().flatten().find(differs).expect("each figure is there twice")
}

/// Prediction beside measurement.
fn times(shape: Shape, outcome: &Outcome) -> Grid {
    let cells = |point: &&Point| {
        let (measured, predicted) = point.heights(shape);
        let spread = point.put_ns_spread.map(|ns| {
            let (height, _) = Point { put_ns: ns, ..(*point).clone() }.heights(shape);
            number(height)
        });
        let [one, other] = spread;
        let spread =
            if shape.is_bandwidth() { format!("{other} to {one}") } else { format!("{one} to {other}") };
        vec![
            point.strategy.to_owned(),
            bytes(point.working_set_bytes),
            number(measured),
            spread,
            number(predicted),
            format!("{:+.0} %", 100.0 * (measured / predicted - 1.0)),
        ]
    };
    let unit = words(shape).y.trim_end_matches(" (logarithmic)");
    let header = ["strategy", "memory", "measured", "rounds", "predicted", "measured beside it"];
    Grid {
        title: format!("{} ({unit})", words(shape).title),
        note: "“Rounds”: the slowest and the fastest.".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: of(shape, outcome).iter().map(cells).collect(),
    }
}

/// What was registered for it.
fn counts(shape: Shape, outcome: &Outcome) -> Grid {
    let cells = |point: &&Point| {
        let percent = |percent: Option<f64>| {
            percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1} %"))
        };
        vec![
            point.strategy.to_owned(),
            bytes(point.working_set_bytes),
            percent(point.hit_percent),
            percent(point.predicted_hit_percent),
            grouped(point.registrations),
            grouped(point.evictions),
            bytes(point.registered_bytes),
            bytes(point.pinned_bytes),
        ]
    };
    let header = [
        "strategy",
        "memory",
        "hits",
        "hits predicted",
        "registrations",
        "evictions",
        "registered",
        "pinned (VmPin)",
    ];
    Grid {
        title: format!("{}: what was registered", words(shape).title),
        note: "Hits: puts whose memory the putting process held. Registrations and evictions: of the owner, during all \
               timed puts. Registered and pinned: the most that the owner had after a round, some of it from before: \
               what registers without bound keeps what it ever registered. The kernel counts as pinned (VmPin) what is so \
               for a card, which TCP has none of."
            .to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: of(shape, outcome).iter().map(cells).collect(),
    }
}

fn number(value: f64) -> String {
    if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let mut summary: Vec<String> = SHAPES
        .iter()
        .zip(&outcome.figures)
        .map(|((shape, _), figure)| {
            let ahead = advantage::words(&figure.firehose_ahead_percent);
            format!("{}: firehose, beside rendezvous-no-unpin, is {ahead}.", words(*shape).title)
        })
        .collect();
    summary.extend(SHAPES.iter().filter_map(|(shape, _)| beside_the_best(*shape, outcome)));
    summary
}

/// By how much firehose is behind the best of the others where it is worst.
fn beside_the_best(shape: Shape, outcome: &Outcome) -> Option<String> {
    let points = of(shape, outcome);
    let ratio = |firehose: &&Point| {
        let others = points.iter().filter(|other| other.strategy != firehose.strategy);
        let others = others.filter(|other| other.working_set_bytes == firehose.working_set_bytes);
        let best = others.min_by(|one, other| one.put_ns.total_cmp(&other.put_ns))?;
        Some((firehose.put_ns / best.put_ns, best.strategy, firehose.working_set_bytes))
    };
    let firehose = points.iter().filter(|point| point.strategy == "firehose");
    let (worst, best, at) = firehose.filter_map(ratio).max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!(
        "{}: a put takes firehose at worst {worst:.2} times what the best other strategy takes ({best}, at {}).",
        words(shape).title,
        bytes(at)
    ))
}

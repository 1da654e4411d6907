//! `standpipe-study policies`: which victim should go first, on programs, on a key-value cache, and on scans.

use std::{collections::HashMap, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use sim::{
    Costs,
    experiments::{Accesses, Again, Kept, Order, Recorded, Strategy, paper_settings, with_order},
};

use super::{
    kv::{
        generate::Generator,
        trace::{self, Request},
    },
    recording::{Hosts, Program, Size},
};
use crate::all_cores::on_all_cores;
use crate::cost_file;
use crate::study::subcommand::Subcommand;
use measure::units::grouped;
use measure::{
    progress::Bar,
    report::{
        output::{Output, OutputArgs},
        page::{Figure, Grid},
        plots::{Chart, Series, short},
        show::{Show, row},
    },
    scratch,
    usage_error::UsageError,
};

/// `standpipe-study policies`.
pub(crate) static STUDY: Subcommand<PoliciesArgs> = Subcommand {
    name: "policies",
    about: "Which registration to give up first: three orders on programs, a key-value cache and scans, in virtual time",
    checks_settings: true,
    run,
    rank: None,
};

/// Arguments of `standpipe-study policies`.
#[derive(Debug, Args)]
pub(crate) struct PoliciesArgs {
    /// Requests whose cache blocks are put, in Mooncake's JSON-lines format; without it, a trace with the
    /// same statistics is generated
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Requests of the trace
    #[arg(long, default_value_t = 1000, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Seed of what is generated
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// The orders, by name.
const ORDERS: [(Order, &str); 3] = [(Order::Fifo, "fifo"), (Order::Lru, "lru"), (Order::Sieve, "sieve")];
/// Every put goes over the network.
const EACH_ALONE: Hosts = Hosts { ranks_each: 1, copy_ns_per_byte: 0.0 };
/// Memory that may be pinned, in percent of what is put to.
const PINNED_PERCENT: [u64; 4] = [10, 25, 50, 75];

#[derive(Debug, Serialize)]
struct Outcome {
    rows: Vec<Row>,
    /// The order with the fewest registrations, over all workloads.
    best: &'static str,
}

/// One workload, in one order, with so much memory.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    pinned_percent: u64,
    order: &'static str,
    hit_percent: f64,
    registrations: u64,
}

/// What is done to memory.
enum Workload {
    Program(Program, Recorded),
    Blocks(&'static str, Accesses),
}

impl Workload {
    fn name(&self) -> &'static str {
        match self {
            Workload::Program(program, _) => program.name(),
            Workload::Blocks(name, _) => name,
        }
    }

    fn keep(&self, order: Order, pinned_percent: u64) -> Result<Kept> {
        match self {
            Workload::Blocks(_, accesses) => {
                Ok(accesses.keep(order, (accesses.footprint() * pinned_percent / 100).max(4))?)
            }
            Workload::Program(_, recorded) => {
                let bytes: u64 = recorded.ranks[0].memory.iter().map(|(_, len)| len).sum();
                let settings = with_order(paper_settings(), order, bytes * pinned_percent / 100);
                let replayed = recorded.replay(&Again {
                    costs: Costs::infiniband_modern(),
                    strategy: Strategy::Firehose,
                    settings,
                    slower: 1.0,
                    pinned_before: 0,
                })?;
                let hit_percent = replayed.ran.hit_percent();
                Ok(Kept { hit_percent, registrations: replayed.registrations })
            }
        }
    }
}

/// Runs the study.
///
/// # Errors
/// If the trace cannot be read, a program cannot be recorded, or the results cannot be written.
fn run(args: &PoliciesArgs) -> Result<ExitCode> {
    // A trace that cannot be read is told before anything is made or run.
    let cache = cache_blocks(args)?;
    let output = Output::make(&args.output)?;
    let workloads = workloads(args, cache)?;
    let jobs: Vec<(&Workload, u64, (Order, &'static str))> = workloads
        .iter()
        .flat_map(|workload| PINNED_PERCENT.map(|percent| (workload, percent)))
        .flat_map(|(workload, percent)| ORDERS.map(|order| (workload, percent, order)))
        .collect();
    let bar = Bar::new(jobs.len(), "runs");
    let rows: Vec<Row> = on_all_cores(&jobs, |(workload, pinned_percent, (order, name))| {
        let kept = workload.keep(*order, *pinned_percent)?;
        bar.step();
        Ok(Row {
            workload: workload.name(),
            pinned_percent: *pinned_percent,
            order: name,
            hit_percent: kept.hit_percent,
            registrations: kept.registrations,
        })
    })
    .into_iter()
    .collect::<Result<_>>()?;
    drop(bar);
    let best = best(&rows);
    let outcome = Outcome { rows, best };
    let show = show(args, &workloads, &outcome);
    show.deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

fn workloads(args: &PoliciesArgs, cache: Accesses) -> Result<Vec<Workload>> {
    let directory = scratch::folder().context("recordings need a folder")?;
    let mut workloads = Vec::new();
    for program in Program::ALL {
        workloads
            .push(Workload::Program(program, program.record(Size::AllToAll, &EACH_ALONE, directory.path())?));
    }
    workloads.push(Workload::Blocks("kv cache", cache));
    workloads.push(Workload::Blocks("repeated scan", Accesses::scans(2000, 10)));
    workloads.push(Workload::Blocks("hot set and scan", Accesses::hot_and_scan(400, 20_000, args.seed)));
    Ok(workloads)
}

/// The blocks of all requests in order, numbered as they come.
fn cache_blocks(args: &PoliciesArgs) -> Result<Accesses> {
    let count = usize::try_from(args.requests)?;
    let requests: Vec<Request> = match &args.trace {
        None => Generator::new(args.seed).take(count).collect(),
        Some(file) => {
            let requests = trace::read(file).map_err(anyhow::Error::from).map_err(UsageError::new)?;
            requests.into_iter().take(count).collect()
        }
    };
    let mut numbers = HashMap::new();
    let number = |id: &u64| {
        let next = numbers.len() as u64;
        *numbers.entry(*id).or_insert(next)
    };
    Ok(Accesses { blocks: requests.iter().flat_map(|request| &request.hash_ids).map(number).collect() })
}

/// The registrations of one workload with so much memory, by order.
fn groups(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunks(ORDERS.len())
}

/// How many times as many registrations each order made as the best one for that workload: the geometric
/// mean.
fn excess(rows: &[Row]) -> [f64; ORDERS.len()] {
    let mut sums = [0.0; ORDERS.len()];
    let mut count = 0;
    for group in groups(rows) {
        let least = group.iter().map(|row| row.registrations).min().unwrap_or(1).max(1);
        for (sum, row) in sums.iter_mut().zip(group) {
            *sum += (row.registrations.max(1) as f64 / least as f64).ln();
        }
        count += 1;
    }
    sums.map(|sum: f64| (sum / f64::from(count.max(1))).exp())
}

fn name_of(order: Order) -> &'static str {
    ORDERS.iter().find(|(known, _)| *known == order).expect("every order is compared").1
}

fn best(rows: &[Row]) -> &'static str {
    let excess = excess(rows);
    let least = (0..ORDERS.len()).min_by(|a, b| excess[*a].total_cmp(&excess[*b]));
    ORDERS[least.expect("there are three orders")].1
}

fn show(args: &PoliciesArgs, workloads: &[Workload], outcome: &Outcome) -> Show {
    let both = |workload: &Workload| MEASURES.map(|measure| figure(&measure, workload.name(), outcome));
    let figures = workloads.iter().flat_map(both).collect();
    Show {
        heading: "Which victim goes first",
        lead: "Less memory may be pinned than is put to, so that registrations must be given up: first what was \
               registered longest ago (fifo), what has been idle longest (lru, as in the Firehose paper), or what has \
               not been used again since a slowly moving hand last passed it (sieve). The order is that of the \
               registrations that a node gives up, and of those of its peers’ memory that it no longer holds on to."
            .to_owned(),
        summary: summary(outcome),
        figures,
        grids: vec![grid(outcome)],
        findings: findings(workloads, outcome),
        numbers: Vec::new(),
        explanations: Vec::new(),
        costs: Some(cost_file::of(&Costs::infiniband_modern())),
        seed: Some(args.seed),
        setup: vec![
            row("cannon", format!("standpipe {}, each rank on a host", Program::Cannon.words(Size::AllToAll).join(" "))),
            row(
                "bitonic",
                format!("standpipe {}, each rank on a host", Program::Bitonic.words(Size::AllToAll).join(" ")),
            ),
            row(
                "kv cache",
                match &args.trace {
                    Some(file) => format!("{} requests at most of {}", args.requests, file.display()),
                    None => format!("{} requests, generated", args.requests),
                },
            ),
            row("repeated scan", "2,000 pages one after the other, 10 times"),
            row("hot set and scan", "half of the puts to 400 pages at random, half to 10,000 others, once each"),
            row("what may be pinned", "three quarters for peers (M), one for victims (MAXVICTIM)"),
        ],
        command: command(args),
        beside: Vec::new(),
    }
}

fn command(args: &PoliciesArgs) -> String {
    let trace = args.trace.as_ref().map_or_else(String::new, |file| format!(" --trace {}", file.display()));
    format!("standpipe-study policies{trace} --requests {} --seed {}", args.requests, args.seed)
}

/// What is drawn of a row.
struct Measure {
    title: &'static str,
    note: &'static str,
    y_label: &'static str,
    y_max: Option<f64>,
    value: fn(&Row) -> f64,
}

const MEASURES: [Measure; 2] = [
    Measure {
        title: "Registrations",
        note: "Fewer are better.",
        y_label: "registrations",
        y_max: None,
        value: |row| row.registrations as f64,
    },
    Measure {
        title: "Hits",
        note: "More are better.",
        y_label: "puts that hit (%)",
        y_max: Some(100.0),
        value: |row| row.hit_percent,
    },
];

fn figure(measure: &Measure, workload: &str, outcome: &Outcome) -> Figure {
    let line = |(_, order): (Order, &str)| Series {
        name: order.to_owned(),
        points: outcome
            .rows
            .iter()
            .filter(|row| row.workload == workload && row.order == order)
            .map(|row| (row.pinned_percent as f64, (measure.value)(row)))
            .collect(),
    };
    let series = ORDERS.map(line).to_vec();
    let upon = if coincide(&series) {
        "All three are level, within 1 %: one line is seen."
    } else {
        "Where lines lie upon each other, the last is seen."
    };
    Figure {
        title: format!("{}: {workload}", measure.title).into(),
        note: format!("{} {upon}", measure.note).into(),
        chart: Chart {
            x_label: "memory that may be pinned (% of what is put to)",
            y_label: measure.y_label,
            x_log: false,
            y_log: false,
            y_text: short,
            y_max: measure.y_max,
            marks: Vec::new(),
            series,
        },
    }
}

/// Whether no line is further than a hundredth from another.
fn coincide(series: &[Series]) -> bool {
    let values = |index: usize| series.iter().map(move |series| series.points[index].1);
    (0..PINNED_PERCENT.len()).all(|index| {
        let (least, most) = (values(index).fold(f64::MAX, f64::min), values(index).fold(0.0, f64::max));
        most <= 1.01 * least
    })
}

fn grid(outcome: &Outcome) -> Grid {
    let cells = |group: &[Row]| {
        let mut cells = vec![group[0].workload.to_owned(), format!("{} %", group[0].pinned_percent)];
        cells.extend(group.iter().map(|row| format!("{:.2}", row.hit_percent)));
        cells.extend(group.iter().map(|row| grouped(row.registrations)));
        cells
    };
    let header = ["workload", "pinned"].map(str::to_owned).into_iter();
    let header = header.chain(ORDERS.map(|(_, order)| format!("hits, {order} (%)")));
    let header = header.chain(ORDERS.map(|(_, order)| format!("registrations, {order}")));
    Grid {
        title: "Hits and registrations".to_owned(),
        note: "A hit is a put to memory whose registration its sender held already, so that it asked nobody. Registrations \
               are counted where the memory is, each time that any is registered anew; with cannon and bitonic, at all \
               ranks together, those of memory that puts come from among them."
            .to_owned(),
        header: header.collect(),
        rows: groups(&outcome.rows).map(cells).collect(),
    }
}

/// Which order registers least, and whether it is what Standpipe does by default.
fn summary(outcome: &Outcome) -> Vec<String> {
    let default = name_of(Order::default());
    let verdict = match outcome.best {
        best if best == default => format!("{best} registers least, and is the default"),
        best => format!("{best} registers least; {default} is the default"),
    };
    let excess = ORDERS.iter().zip(excess(&outcome.rows));
    let excess: Vec<String> = excess.map(|((_, order), excess)| format!("{order} {excess:.3}")).collect();
    vec![
        format!("Over all workloads and sizes of memory, {verdict}."),
        format!(
            "Beside whichever order registers least in each case, they make this many times as many registrations: {} \
             (geometric means).",
            excess.join(", ")
        ),
    ]
}

/// A sentence for each workload.
fn findings(workloads: &[Workload], outcome: &Outcome) -> Vec<String> {
    let finding = |workload: &Workload| {
        let rows = || outcome.rows.iter().filter(|row| row.workload == workload.name());
        let total = |order: &str| -> u64 {
            rows().filter(|row| row.order == order).map(|row| row.registrations).sum()
        };
        let totals = ORDERS.map(|(_, order)| total(order));
        if totals.iter().all(|total| *total == totals[0]) {
            return format!("{}: all orders register alike.", workload.name());
        }
        let each: Vec<String> = ORDERS
            .iter()
            .zip(totals)
            .map(|((_, order), total)| format!("{} with {order}", grouped(total)))
            .collect();
        format!("{}: {} registrations, at the four sizes together.", workload.name(), each.join(", "))
    };
    workloads.iter().map(finding).collect()
}

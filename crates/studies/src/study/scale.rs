//! `standpipe-study scale`: memory of a node and hit rate from 2 to 16,384 nodes, leases against the even
//! split.

use std::{
    env, fs,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use sim::experiments::Scale;

use crate::all_cores::on_all_cores;
use crate::cost_file;
use crate::study::ranks::{self, RankPlan};
use crate::study::subcommand::Subcommand;
use measure::{
    progress::Bar,
    report::{
        output::{Output, OutputArgs},
        page::{Figure, Grid},
        plots::{Chart, Series, short},
        show::{Show, row},
    },
    signals::{self, Attended},
    stdout::print,
    units::between,
    units::{bytes, grouped},
};

/// `standpipe-study scale`.
pub(crate) static STUDY: Subcommand<ScaleArgs> = Subcommand {
    name: RowPlan::NAME,
    about: "Leases against the even split of the papers, from 2 nodes to 16,384, in virtual time",
    checks_settings: false,
    run,
    rank: Some(ranks::run_plan::<RowPlan>),
};

/// Arguments of `standpipe-study scale`.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// The largest job
    #[arg(long, default_value_t = 16_384, value_parser = between(2_u32, 65_536))]
    nodes_max: u32,
    #[command(flatten)]
    output: OutputArgs,
}

/// One row, which a process of its own simulates, so that its memory can be seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RowPlan {
    nodes: u32,
    active_peers: u32,
    leases: bool,
    working_set_percent: u64,
}

impl RowPlan {
    fn experiment(&self) -> Scale {
        let scale = Scale::new(self.nodes, self.active_peers, self.leases);
        Scale { working_set_percent: self.working_set_percent, ..scale }
    }
}

#[derive(Debug, Serialize)]
struct Outcome {
    machine: String,
    peers_bytes: u64,
    rows: Vec<Row>,
}

/// One job under one quota.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    nodes: u32,
    active_peers: u32,
    /// `even` or `leases`.
    quota: String,
    /// Memory that is put to, in percent of M.
    working_set_percent: u64,
    puts: u64,
    hit_percent: f64,
    misses: u64,
    /// What the simulating process grew by, for each node: its engine, and its simulated machine.
    bytes_per_node: u64,
}

/// Runs the study.
///
/// # Errors
/// If a row cannot be simulated, or the results cannot be written.
fn run(args: &ScaleArgs) -> Result<ExitCode> {
    let output = Output::make(&args.output)?;
    let jobs = jobs(args.nodes_max);
    let bar = Bar::new(jobs.len(), "jobs");
    let rows: Vec<Row> = on_all_cores(&jobs, |job| {
        let row = in_a_process(job);
        bar.step();
        row
    })
    .into_iter()
    .collect::<Result<_>>()?;
    drop(bar);
    let experiment = Scale::new(2, 1, true);
    let outcome =
        Outcome { machine: experiment.costs.name.clone(), peers_bytes: experiment.peers_bytes(), rows };
    let show = show(args, &experiment, &outcome);
    show.deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// Every row that is simulated; those that differ in the quota only stand side by side.
fn jobs(nodes_max: u32) -> Vec<RowPlan> {
    let mut jobs = Vec::new();
    for working_set_percent in [FITS, TOO_MUCH] {
        for nodes in NODES.into_iter().filter(|nodes| *nodes <= nodes_max) {
            let mut active: Vec<u32> = ACTIVE.into_iter().map(|active| active.min(nodes - 1)).collect();
            active.dedup();
            for active_peers in active {
                let row = |leases| RowPlan { nodes, active_peers, leases, working_set_percent };
                jobs.extend([row(false), row(true)]);
            }
        }
    }
    jobs
}

const NODES: [u32; 6] = [2, 16, 128, 1024, 4096, 16_384];

fn sizes(nodes_max: u32) -> impl Iterator<Item = String> {
    NODES.into_iter().filter(move |nodes| *nodes <= nodes_max).map(|nodes| grouped(nodes.into()))
}
const ACTIVE: [u32; 4] = [1, 8, 64, 1024];
/// Working sets, in percent of M.
const FITS: u64 = 90;
const TOO_MUCH: u64 = 200;

fn in_a_process(job: &RowPlan) -> Result<Row> {
    let mut command = Command::new(env::current_exe().context("this program's own file")?);
    command.args(ranks::words(job)?).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = signals::undisturbed(|| command.spawn()).context("starting a process to simulate in")?;
    let output = child.wait_with_output().context("hearing a process that simulates")?;
    if !output.status.success() {
        bail!("simulating {} nodes failed: {}", job.nodes, output.status);
    }
    serde_json::from_slice(&output.stdout).context("what the simulating process said")
}

impl RankPlan for RowPlan {
    const NAME: &'static str = "scale";

    fn run(&self) -> Result<ExitCode> {
        let attended = Attended::begin("there is no result").context("minding signals")?;
        let ended = run_row(&self.experiment());
        attended.finish();
        ended
    }
}

/// Simulates one row in this process, and says what came of it.
///
/// # Errors
/// If a put fails, or the system does not tell of this process's memory.
fn run_row(experiment: &Scale) -> Result<ExitCode> {
    let before = peak_bytes()?;
    let ran = experiment.run()?;
    let grown = peak_bytes()? - before;
    let row = Row {
        nodes: experiment.nodes,
        active_peers: experiment.active_peers,
        quota: if experiment.leases { "leases" } else { "even" }.to_owned(),
        working_set_percent: experiment.working_set_percent,
        puts: ran.transfers().count,
        hit_percent: ran.hit_percent(),
        misses: ran.misses.count,
        bytes_per_node: grown / u64::from(experiment.nodes),
    };
    print(serde_json::to_string(&row)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The most memory that this process ever had resident, in bytes.
fn peak_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("reading this process's status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("the system does not tell a process's peak memory")? << 10)
}

/// An even row and the leases' row of the same job.
fn pairs(outcome: &Outcome) -> impl Iterator<Item = (&Row, &Row)> {
    outcome.rows.chunks(2).map(|pair| (&pair[0], &pair[1]))
}

fn show(args: &ScaleArgs, experiment: &Scale, outcome: &Outcome) -> Show {
    Show {
        heading: "Leases against the even split",
        lead: format!(
            "In jobs of ever more simulated nodes, some (the active ones) put 8 bytes at a time to random pages of one \
             node’s memory, ten times to each page on average; the others do nothing. The one node lets its peers hold \
             M = {} of registrations: split evenly among all other nodes of the job, as the papers do, or leased to \
             whoever asks. A put to a page whose registration its sender holds is a hit; any other is a miss.",
            bytes(outcome.peers_bytes)
        ),
        summary: summary(outcome),
        figures: vec![misses(outcome), memory(outcome)],
        grids: vec![grid(outcome)],
        findings: Vec::new(),
        numbers: Vec::new(),
        explanations: Vec::new(),
        costs: Some(cost_file::of(&experiment.costs)),
        seed: None,
        setup: vec![
            row("sizes of jobs that were run", sizes(args.nodes_max).collect::<Vec<_>>().join(", ")),
            row("random pages", "decided by each active node’s number"),
            row("what peers may hold (M)", bytes(outcome.peers_bytes)),
            row("victims, and local pins (MAXVICTIM)", bytes(outcome.peers_bytes / 4)),
            row("guaranteed to each active peer, with leases", "one page"),
            row("memory of a node", "growth of the simulating process’s peak, divided by the nodes"),
        ],
        command: format!("standpipe-study scale --nodes-max {}", args.nodes_max),
        beside: Vec::new(),
    }
}

fn misses(outcome: &Outcome) -> Figure {
    let line = |quota: &str, active: u32| Series {
        name: format!("{quota}, {active} active"),
        points: outcome
            .rows
            .iter()
            .filter(|row| row.quota == quota && row.active_peers == active && row.working_set_percent == FITS)
            .map(|row| (f64::from(row.nodes), 100.0 - row.hit_percent))
            .collect(),
    };
    Figure {
        title: "Misses by nodes of the job".into(),
        note:
            "The working set is nine tenths of M. Each page must be asked for once: 10 % is the least. Where leases were \
             run with several numbers of active nodes, their lines lie upon each other there."
                .into(),
        chart: Chart {
            x_label: "nodes (logarithmic)",
            y_label: "puts that miss (%)",
            x_log: true,
            y_log: false,
            y_text: short,
            y_max: Some(100.0),
            marks: Vec::new(),
            series: [1, 8, 64]
                .into_iter()
                .flat_map(|active| ["even", "leases"].map(|q| line(q, active)))
                .collect(),
        },
    }
}

fn memory(outcome: &Outcome) -> Figure {
    let line = |active: u32| Series {
        name: format!("leases, {active} active"),
        points: outcome
            .rows
            .iter()
            .filter(|row| row.quota == "leases" && row.active_peers == active)
            .filter(|row| row.working_set_percent == FITS)
            .map(|row| (f64::from(row.nodes), row.bytes_per_node as f64 / 1024.0))
            .collect(),
    };
    Figure {
        title: "Memory of a node by nodes of the job".into(),
        note: "On average over all nodes, with the simulator’s own share. In small jobs it is what the few nodes with \
               registrations need for them; in large jobs what a node needs that does nothing."
            .into(),
        chart: Chart {
            x_label: "nodes (logarithmic)",
            y_label: "KiB (logarithmic)",
            x_log: true,
            y_log: true,
            y_text: short,
            y_max: None,
            marks: Vec::new(),
            series: vec![line(1), line(8), line(64)],
        },
    }
}

fn grid(outcome: &Outcome) -> Grid {
    let cells = |(even, leases): (&Row, &Row)| {
        vec![
            grouped(u64::from(even.nodes)),
            grouped(u64::from(even.active_peers)),
            format!("{} %", even.working_set_percent),
            format!("{:.2}", even.hit_percent),
            format!("{:.2}", leases.hit_percent),
            grouped(even.misses),
            grouped(leases.misses),
            format!("{:.2} ×", fewer(even, leases)),
            bytes(even.bytes_per_node),
            bytes(leases.bytes_per_node),
        ]
    };
    let header = [
        "nodes",
        "active",
        "working set / M",
        "hits even (%)",
        "hits leases (%)",
        "misses even",
        "misses leases",
        "even ÷ leases",
        "a node, even",
        "a node, leases",
    ];
    Grid {
        title: "Even split and leases".to_owned(),
        note: "“Even ÷ leases”: misses of the even split for each miss of leases. “A node”: its memory, on average."
            .to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: pairs(outcome).map(cells).collect(),
    }
}

/// How many times fewer misses leases have.
fn fewer(even: &Row, leases: &Row) -> f64 {
    even.misses as f64 / leases.misses.max(1) as f64
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let mut summary = Vec::new();
    let named = |row: &Row| row.nodes == 1024 && row.active_peers == 8 && row.working_set_percent == FITS;
    if let Some((even, leases)) = pairs(outcome).find(|(even, _)| named(even)) {
        let times = fewer(even, leases);
        let verdict = if times >= 5.0 { "at least 5, as wanted" } else { "BROKEN: less than the 5 wanted" };
        summary.push(format!(
            "In a job of 1,024 nodes, 8 of them active, whose working set fits M, the even split has {times:.1} times as \
             many misses as leases ({verdict})."
        ));
    } else {
        summary
            .push("The job of 1,024 nodes with 8 active was not run: --nodes-max is too small.".to_owned());
    }
    let worst = pairs(outcome).map(|(even, leases)| 100.0 * (1.0 / fewer(even, leases) - 1.0));
    let worst = worst.fold(f64::NEG_INFINITY, f64::max);
    let verdict = if worst <= 5.0 { "5 % at most are wanted" } else { "BROKEN: more than the 5 % wanted" };
    summary.push(if worst < 0.05 {
        "In no job do leases have more misses than the even split.".to_owned()
    } else {
        format!("Where leases do worst, they have {worst:.1} % more misses than the even split ({verdict}).")
    });
    summary
}

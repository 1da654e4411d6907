//! `standpipe-study pindown --layer pm`: the curve through the PM layer's own interface, as the paper
//! measured its own. Each message is sent by request, reply with a handle, remote write and end, and each
//! side locks its memory for it.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use standpipe::{Strategy, Transport};

use super::args::PinDownArgs;
use super::paper::PAPER;
use super::pm_rank::{PmPlan, PmRound};
use crate::qemu;
use crate::study::ranks;
use measure::machine;
use measure::progress::Bar;
use measure::report::output::Output;
use measure::report::page::{Figure, Grid};
use measure::report::plots::{Chart, Series, short};
use measure::report::show::{Show, row};
use measure::transport::{Chosen, look_for};
use measure::units::{bytes, grouped};
use measure::usage_error::UsageError;

/// The result.
#[derive(Debug, Serialize)]
struct Outcome {
    layer: &'static str,
    transport: String,
    message_bytes: u64,
    budget_bytes: u64,
    rounds: u32,
    messages: u64,
    /// Whether times are of a machine that was emulated.
    emulated: bool,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    wanted_percent: f64,
    /// Of the locks that both processes asked for; and of those of the sender, and of the receiver.
    hit_percent: f64,
    sender_hit_percent: f64,
    receiver_hit_percent: f64,
    evictions: u64,
    mb_per_s: f64,
    /// Of the slowest round and of the fastest.
    mb_per_s_spread: [f64; 2],
    paper_mb_per_s: Option<f64>,
}

/// Runs the study.
///
/// # Errors
/// If it is not over a network, a process fails, or the results cannot be written.
pub(super) fn run(args: &PinDownArgs, transport: &Transport) -> Result<ExitCode> {
    if *transport == Transport::Shm {
        let why = "--layer pm --transport shm: shared memory registers nothing, so that there is nothing to pin down";
        return Err(UsageError::new(why).into());
    }
    let plan = plan(args)?;
    let output = Output::make(&args.output)?;
    look_for(transport)?;
    machine::mind_load();
    let chosen = Chosen { transport: transport.clone(), strategy: Some(Strategy::Firehose) };
    let bar = Arc::new(Bar::new(plan.hits.len() * plan.rounds as usize, "points measured"));
    let told: Vec<Vec<PmRound>> = ranks::run(&chosen, &plan, 2, &bar)?;
    let outcome = outcome(&plan, transport, &told)?;
    show(args, &plan, &outcome).deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &PinDownArgs) -> Result<PmPlan, UsageError> {
    let budget = args.pin.unwrap_or(if args.small { 4 << 20 } else { 16 << 20 });
    let len = if args.small { 64 << 10 } else { 256 << 10 };
    // Sends and receives have an eighth each, of which a message takes one.
    if budget < 8 * len {
        let least = 8 * len;
        return Err(UsageError::new(format!(
            "--pin {budget}: messages of {len} bytes want {least}, of which an eighth is for sends"
        )));
    }
    let rounds = if args.small { 2 } else { 5 };
    let step = if args.small { 50 } else { 10 };
    let messages = (args.puts / u64::from(rounds)).max(1);
    Ok(PmPlan { len, budget, hits: (0..=100).step_by(step).collect(), rounds, messages })
}

fn outcome(plan: &PmPlan, transport: &Transport, told: &[Vec<PmRound>]) -> Result<Outcome> {
    let [sender, receiver] = told else { anyhow::bail!("{} processes told of it", told.len()) };
    let row = |wanted: &u64| {
        let of_ratio = |rounds: &'_ Vec<PmRound>| -> Vec<PmRound> {
            rounds.iter().copied().filter(|round| round.wanted == *wanted).collect()
        };
        let mut times: Vec<f64> = of_ratio(sender).iter().map(|round| round.mean_ns).collect();
        times.sort_by(f64::total_cmp);
        ensure!(times.len() == plan.rounds as usize, "{} rounds were told", times.len());
        let mb_per_s = |ns: f64| plan.len as f64 * 1e3 / ns;
        let all: Vec<PmRound> = told.iter().flat_map(of_ratio).collect();
        let sum = |of: fn(&PmRound) -> u64| all.iter().map(of).sum::<u64>();
        let of_one = |rounds: &Vec<PmRound>| percent(&of_ratio(rounds));
        let first = times.first().context("a round")?;
        let last = times.last().context("a round")?;
        Ok(Row {
            wanted_percent: *wanted as f64,
            hit_percent: percent(&all),
            sender_hit_percent: of_one(sender),
            receiver_hit_percent: of_one(receiver),
            evictions: sum(|round| round.evictions),
            mb_per_s: mb_per_s(times[(times.len() - 1) / 2]),
            mb_per_s_spread: [mb_per_s(*last), mb_per_s(*first)],
            paper_mb_per_s: PAPER.iter().find(|(hits, _)| *hits == *wanted as f64).map(|(_, value)| *value),
        })
    };
    Ok(Outcome {
        layer: "pm",
        transport: transport.to_string(),
        message_bytes: plan.len,
        budget_bytes: plan.budget,
        rounds: plan.rounds,
        messages: plan.messages,
        emulated: qemu::is_inside(),
        rows: plan.hits.iter().map(row).collect::<Result<_>>()?,
    })
}

/// Of all locks, those that hit.
fn percent(rounds: &[PmRound]) -> f64 {
    let hits: u64 = rounds.iter().map(|round| round.hits).sum();
    let misses: u64 = rounds.iter().map(|round| round.misses).sum();
    100.0 * hits as f64 / ((hits + misses) as f64).max(1.0)
}

fn show(args: &PinDownArgs, plan: &PmPlan, outcome: &Outcome) -> Show {
    let emulated = if outcome.emulated { " All times are of an emulated machine." } else { "" };
    Show {
        heading: "PM’s pin-down cache through the PM layer: bandwidth by hit ratio",
        lead: format!(
            "Two processes, over libfabric ({}). One sends messages of {} to the other by the paper’s protocol: a request, a \
             reply with the handle of memory that was locked for it, a remote write, and the end. Both lock their memory for each \
             message and unlock it after; some locks hit memory that the cache has kept, the others miss. The receiver looks at each \
             message.{emulated}",
            outcome.transport,
            bytes(outcome.message_bytes)
        ),
        summary: summary(outcome),
        figures: vec![figure(outcome)],
        grids: vec![grid(outcome)],
        findings: vec![
            "The paper’s figures are of Myrinet and processors of 200 MHz. Its ratio of misses to hits stands beside ours; the rates \
             cannot."
                .to_owned(),
        ],
        numbers: Vec::new(),
        explanations: Vec::new(),
        costs: None,
        seed: None,
        setup: vec![
            row("reached by", format!("libfabric ({})", outcome.transport)),
            row("a message", bytes(outcome.message_bytes)),
            row("what may be registered", bytes(outcome.budget_bytes)),
            row("of it for sends, and for receives", bytes(outcome.budget_bytes / 8)),
            row("rounds, in each of which ratios take turns", outcome.rounds),
            row("messages timed at a ratio in a round", grouped(outcome.messages)),
        ],
        command: format!(
            "standpipe-study pindown --layer pm --transport '{}' --pin {} --puts {}{}",
            outcome.transport,
            plan.budget,
            args.puts,
            if args.small { " --small" } else { "" }
        ) + qemu::word(),
        beside: Vec::new(),
    }
}

/// Bandwidth where all miss by that where all hit: of ours, and of the paper's.
fn ratios(outcome: &Outcome) -> Option<(f64, f64)> {
    let (miss, hit) = (outcome.rows.first()?, outcome.rows.last()?);
    Some((miss.mb_per_s / hit.mb_per_s, PAPER[0].1 / PAPER[1].1))
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let end = |row: &Row| {
        let [slowest, fastest] = row.mb_per_s_spread;
        let paper = row.paper_mb_per_s.map_or_else(String::new, |paper| format!("; the paper: {paper} MB/s"));
        format!(
            "At {:.0} % hits: {:.0} MB/s (rounds: {slowest:.0} to {fastest:.0}){paper}.",
            row.hit_percent, row.mb_per_s
        )
    };
    let mut lines: Vec<String> =
        [outcome.rows.first(), outcome.rows.last()].into_iter().flatten().map(end).collect();
    if let Some((ours, paper)) = ratios(outcome) {
        lines.push(format!("Misses have {ours:.2} of the bandwidth of hits; the paper: {paper:.2}."));
    }
    lines
}

fn figure(outcome: &Outcome) -> Figure {
    let points = outcome.rows.iter().map(|row| (row.hit_percent, row.mb_per_s)).collect();
    Figure {
        title: "Bandwidth of messages by hit ratio".into(),
        note: "Medians over rounds. Hits: of the locks that both processes asked for.".into(),
        chart: Chart {
            x_label: "locks that hit (%)",
            y_label: "MB/s",
            x_log: false,
            y_log: false,
            y_text: short,
            y_max: None,
            marks: Vec::new(),
            series: vec![Series { name: "through the PM layer".to_owned(), points }],
        },
    }
}

fn grid(outcome: &Outcome) -> Grid {
    let cells = |row: &Row| {
        let [slowest, fastest] = row.mb_per_s_spread;
        vec![
            format!("{:.0}", row.wanted_percent),
            format!("{:.1}", row.sender_hit_percent),
            format!("{:.1}", row.receiver_hit_percent),
            grouped(row.evictions),
            format!("{:.0}", row.mb_per_s),
            format!("{slowest:.0} to {fastest:.0}"),
            row.paper_mb_per_s.map_or_else(|| "–".to_owned(), |paper| format!("{paper:.1}")),
        ]
    };
    let header =
        ["wanted (%)", "sender’s hits", "receiver’s hits", "evictions", "MB/s", "rounds", "the paper, MB/s"];
    Grid {
        title: "Bandwidth by hit ratio".to_owned(),
        note: "“Rounds”: the slowest and the fastest.".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: outcome.rows.iter().map(cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_of_both_sides_and_times_of_the_sender() {
        let plan = PmPlan { len: 1000, budget: 8000, hits: vec![0, 100], rounds: 3, messages: 5 };
        let round = |wanted, mean_ns, hits, misses| PmRound { wanted, mean_ns, hits, misses, evictions: 1 };
        let sender = vec![
            round(0, 30.0, 0, 5),
            round(0, 10.0, 0, 5),
            round(0, 20.0, 0, 5),
            round(100, 5.0, 5, 0),
            round(100, 4.0, 5, 0),
            round(100, 8.0, 5, 0),
        ];
        let receiver: Vec<PmRound> = sender.iter().map(|told| PmRound { mean_ns: 1.0, ..*told }).collect();
        let tcp = Transport::Ofi { provider: Some("tcp".into()) };
        let outcome = outcome(&plan, &tcp, &[sender, receiver]).expect("whole");
        let [miss, hit] = &outcome.rows[..] else { panic!("a row a ratio") };
        assert_eq!((miss.hit_percent, hit.hit_percent, miss.evictions), (0.0, 100.0, 6));
        assert_eq!((miss.mb_per_s, hit.mb_per_s), (50_000.0, 200_000.0));
        assert_eq!((miss.paper_mb_per_s, hit.paper_mb_per_s), (Some(78.7), Some(108.8)));
        assert_eq!(miss.mb_per_s_spread, [1e6 / 30.0, 100_000.0]);
    }
}

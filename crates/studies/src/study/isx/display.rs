//! What the study shows.

use super::outcome::{Job, Outcome};
use measure::report::page::{Figure, Grid};
use measure::report::plots::{Chart, Series, short};
use measure::report::show::{Show, row};
use measure::transport::Chosen;
use measure::units::{bytes, grouped, micros};

/// All that there is to show of a run, which this command line repeats.
pub(super) fn show(command: &str, seed: u64, chosen: &Chosen, outcome: &Outcome) -> Show {
    Show {
        heading: "ISx: integers sorted over the whole job",
        lead: format!(
            "Each process draws {} keys of 32 bits at random, puts them in order by whom they fall to, and sends them there: places \
             in the other’s heap are reserved by an atomic addition, and filled by one put that signals. Whoever has heard \
             all signals sorts what has come by counting. However many processes there are, each draws as many keys, and as many \
             different ones fall to each ({}): so where each had a core of its own, the time would stay the same.",
            grouped(outcome.keys_each),
            grouped(outcome.bucket_width.into())
        ),
        summary: summary(outcome),
        figures: vec![parts(outcome), rate(outcome)],
        grids: vec![grid(outcome)],
        findings: Vec::new(),
        numbers: Vec::new(),
        explanations: Vec::new(),
        costs: None,
        seed: Some(seed),
        setup: vec![
            row("build", outcome.build),
            row("reached by", chosen),
            row(
                "keys drawn by each process",
                format!("{}, {}", grouped(outcome.keys_each), bytes(4 * outcome.keys_each)),
            ),
            row("sorts by each job", outcome.rounds),
            row("what stands for a job", "the sort in the middle, by time"),
            row(
                "processes that wanted a core, last minute",
                outcome.load_average.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}")),
            ),
        ],
        command: command.to_owned(),
        beside: Vec::new(),
    }
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let wrong = outcome.jobs.iter().filter_map(|job| {
        Some(format!("WRONG: a sort by {}: {}.", processes(job.ranks), job.fault.as_ref()?))
    });
    let mut summary: Vec<String> = wrong.collect();
    if summary.is_empty() {
        summary.push(
            "Every sort was right: each key where it belongs, in order, and none lost or changed.".to_owned(),
        );
    }
    if let Some(job) = outcome.jobs.last() {
        summary.push(format!(
            "{} sorted {} keys in {}: {} million a second.",
            processes(job.ranks),
            grouped(job.keys),
            micros(job.seconds * 1e6),
            short(job.keys_per_second / 1e6)
        ));
    }
    summary
}

fn processes(ranks: usize) -> String {
    if ranks == 1 { "1 process".to_owned() } else { format!("{ranks} processes") }
}

fn chart(y_label: &'static str, series: Vec<Series>) -> Chart {
    Chart {
        x_label: "processes (logarithmic)",
        y_label,
        x_log: true,
        y_log: false,
        y_text: short,
        y_max: None,
        marks: Vec::new(),
        series,
    }
}

fn line(outcome: &Outcome, name: &str, of: fn(&Job) -> f64) -> Series {
    let points = outcome.jobs.iter().map(|job| (job.ranks as f64, of(job))).collect();
    Series { name: name.to_owned(), points }
}

fn parts(outcome: &Outcome) -> Figure {
    Figure {
        title: "Time of a sort by processes".into(),
        note: "Of each part that of the process that took longest for it. Where there are more processes than cores, they wait for one."
            .into(),
        chart: chart(
            "ms",
            vec![
                line(outcome, "whole sort", |job| 1e3 * job.seconds),
                line(outcome, "order by owner", |job| 1e3 * job.bucket_seconds),
                line(outcome, "exchange", |job| 1e3 * job.exchange_seconds),
                line(outcome, "local sort", |job| 1e3 * job.sort_seconds),
            ],
        ),
    }
}

fn rate(outcome: &Outcome) -> Figure {
    Figure {
        title: "Keys sorted by processes".into(),
        note: "Of all processes together.".into(),
        chart: chart("million keys a second", vec![line(outcome, "keys", |job| job.keys_per_second / 1e6)]),
    }
}

fn grid(outcome: &Outcome) -> Grid {
    let time = |seconds: f64| micros(seconds * 1e6);
    let cells = |job: &Job| {
        vec![
            job.ranks.to_string(),
            grouped(job.keys),
            time(job.seconds),
            format!("{} to {}", time(job.seconds_spread[0]), time(job.seconds_spread[1])),
            time(job.bucket_seconds),
            time(job.exchange_seconds),
            time(job.sort_seconds),
            format!("{:.1}", job.keys_per_second / 1e6),
            job.fault.as_ref().map_or("yes", |_| "NO").to_owned(),
        ]
    };
    let header = [
        "processes",
        "keys",
        "a sort",
        "fastest to slowest",
        "by owner",
        "exchange",
        "local sort",
        "million keys/s",
        "right",
    ];
    Grid {
        title: "Sorts".to_owned(),
        note: "“By owner”, “exchange”, “local sort”: the parts of a sort, of each that of the process that took longest.".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: outcome.jobs.iter().map(cells).collect(),
    }
}

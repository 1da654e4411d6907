//! Which charts the report shows, and how a record becomes their points.

use std::ops::Range;

use super::{
    outcome::{Record, Way, sorted},
    worker_lines::Tick,
};
use measure::report::{
    page::Figure,
    plots::{Chart, Mark, Series, short},
};

/// The report's charts of a record whose pulled bytes came that way.
#[must_use]
pub(crate) fn figures(record: &Record, way: Way) -> Vec<Figure> {
    let mut figures =
        vec![latency_by_state(record, way), latency_by_owner(record), throughput(record), hit_rate(record)];
    if record.killed_ms.is_some() {
        figures.insert(0, latency_by_phase(record));
    }
    if !record.sweep.is_empty() {
        figures.push(latency_by_pieces(record));
    }
    figures
}

fn latency_by_state(record: &Record, way: Way) -> Figure {
    let of = |name: &str, computing| {
        let pulls = record.pulls().filter(|pull| pull.computing == computing);
        distribution(name.to_owned(), pulls.map(|pull| pull.took_ns))
    };
    let busy =
        distribution("the puller's processor time".to_owned(), record.pulls().map(|pull| pull.processor_ns));
    Figure {
        title: "Pulls while the owner computes".into(),
        note: (match way {
            Way::None => "How long pulls took, and how much processor time of the puller's.",
            Way::Attach => {
                "A get is one-sided: the owner has no part in it, computing or not. What a pull took beyond its \
                 processor time, the puller waited: for a core, or for the kernel's lock on the owner's address space."
            }
            Way::Message => {
                "The bytes came by message: the owner had to copy and send them, computing or not, and processor time \
                 that it spent is not in the puller's. The rest of a pull is waiting for the owner, or for a core."
            }
            Way::NetworkMessage => {
                "The bytes came by message over the network: the owner had to copy and send them, computing or not. The \
                 rest of a pull is waiting for the owner and the network, or for a core."
            }
            Way::NetworkKey => {
                "A get is one-sided once the owner has registered the memory, which a miss asks it for. What a pull took \
                 beyond its processor time, the puller waited: for the network, for such an answer, or for a core."
            }
            Way::Mixed => {
                "Some bytes were copied by the kernel, and their owner had no part in it; others came by message, for \
                 which the puller waited until the owner had sent them."
            }
        })
        .into(),
        chart: latency_chart(vec![of("owner computing", true), of("owner not computing", false), busy]),
    }
}

fn latency_by_owner(record: &Record) -> Figure {
    let of = |owner: usize| {
        let pulls = record.pulls().filter(|pull| pull.owner == owner);
        distribution(format!("from worker {owner}"), pulls.map(|pull| pull.took_ns))
    };
    Figure {
        title: "Pull latency by source".into(),
        note: "Share of the pulls from each worker that took at most so long.".into(),
        chart: latency_chart((0..record.ticks.len()).map(of).collect()),
    }
}

fn latency_by_phase(record: &Record) -> Figure {
    let of = |(name, span_ms): (&str, Range<u64>)| {
        let ticks = record.all_ticks().filter(|tick| span_ms.contains(&tick.at_ms));
        distribution(name.to_owned(), ticks.flat_map(|tick| &tick.pulls).map(|pull| pull.took_ns))
    };
    Figure {
        title: "Pull latency before, between and after".into(),
        note: "With all workers, after one was killed, and after another joined.".into(),
        chart: latency_chart(record.spans().into_iter().map(of).collect()),
    }
}

/// When a worker was killed and another joined, for a bottom of seconds.
fn marks(record: &Record) -> Vec<Mark> {
    let mark = |at_ms: Option<u64>, name| at_ms.map(|at_ms| Mark { at: at_ms as f64 / 1e3, name });
    [mark(record.killed_ms, "killed"), mark(record.joined_ms, "joined")].into_iter().flatten().collect()
}

fn latency_chart(mut series: Vec<Series>) -> Chart {
    series.retain(|series| !series.points.is_empty());
    Chart {
        x_label: "time of one pull (µs, logarithmic)",
        y_label: "share of pulls",
        x_log: true,
        y_log: false,
        y_text: percent,
        y_max: Some(1.0),
        marks: Vec::new(),
        series,
    }
}

/// The cumulative distribution of durations.
fn distribution(name: String, took_ns: impl Iterator<Item = u64>) -> Series {
    let took_ns = sorted(took_ns.map(|took_ns| took_ns.max(1)));
    let last = took_ns.len().saturating_sub(1);
    // A line needs no more points than the drawing has columns.
    let steps = last.min(POINTS);
    let at = |step: usize| {
        let rank = (step * last).checked_div(steps).unwrap_or(0);
        (took_ns[rank] as f64 / 1e3, (rank + 1) as f64 / took_ns.len() as f64)
    };
    let points = if took_ns.is_empty() { Vec::new() } else { (0..=steps).map(at).collect() };
    Series { name, points }
}

fn latency_by_pieces(record: &Record) -> Figure {
    let of = |name: &str, share| Series {
        name: name.to_owned(),
        points: record.sweep.iter().map(|sweep| (sweep.pieces as f64, sweep.percentile_us(share))).collect(),
    };
    Figure {
        title: "Pull latency by number of pieces".into(),
        note: "The same bytes in one scatter get of ever more pieces, each an allocation of its own; measured before \
               the replay, the owner computing. Mostly faster than in the replay: here the same few blocks are pulled \
               again and again into the same buffers, and only two workers run. The replay pulls memory that was \
               written a while ago into newly allocated memory, while all workers run.".into(),
        chart: Chart {
            x_label: "pieces of the block (logarithmic)",
            y_label: "time of one pull (µs)",
            x_log: true,
            y_log: false,
            y_text: short,
            y_max: None,
            marks: Vec::new(),
            series: vec![of("median", 0.5), of("fastest tenth", 0.1)],
        },
    }
}

fn throughput(record: &Record) -> Figure {
    let per_second = |bytes: u64, bin_s: f64| bytes as f64 / bin_s / 1e6;
    let pulled =
        |ticks: &[&Tick], bin_s| per_second(ticks.iter().map(|tick| pulled_bytes(tick)).sum(), bin_s);
    let requests =
        |ticks: &[&Tick], bin_s: f64| ticks.iter().map(|tick| tick.requests).sum::<u64>() as f64 / bin_s;
    Figure {
        title: "Throughput over time".into(),
        note: "All workers together, and requests served in the same second.".into(),
        chart: Chart {
            x_label: "time (s)",
            y_label: "per second",
            x_log: false,
            y_log: false,
            y_text: short,
            y_max: None,
            marks: marks(record),
            series: vec![
                over_time(record, "MB pulled", pulled),
                over_time(record, "requests served", requests),
            ],
        },
    }
}

fn hit_rate(record: &Record) -> Figure {
    let share = |of: fn(&Tick) -> u64| {
        move |ticks: &[&Tick], _: f64| {
            let blocks: u64 = ticks.iter().map(|tick| blocks(tick)).sum();
            if blocks == 0 {
                0.0
            } else {
                ticks.iter().map(|tick| of(tick)).sum::<u64>() as f64 / blocks as f64
            }
        }
    };
    let series = vec![
        over_time(record, "any worker held it", share(|tick| tick.local_hits + tick.pulls.len() as u64)),
        over_time(record, "pulled from a peer", share(|tick| tick.pulls.len() as u64)),
        over_time(record, "found in own store", share(|tick| tick.local_hits)),
    ];
    Figure {
        title: "Hit rate over time".into(),
        note: "Share of the blocks used that some worker held already.".into(),
        chart: Chart {
            x_label: "time (s)",
            y_label: "share of blocks",
            x_log: false,
            y_log: false,
            y_text: percent,
            y_max: Some(1.0),
            marks: marks(record),
            series,
        },
    }
}

/// One point for each of about [`BINS`] equal stretches of time, of what `value` makes of the ticks in it.
fn over_time(record: &Record, name: &str, value: impl Fn(&[&Tick], f64) -> f64) -> Series {
    let end_ms = record.all_ticks().map(|tick| tick.at_ms).max().unwrap_or(0);
    let bin_ms = (end_ms / BINS).next_multiple_of(BIN_MS).max(BIN_MS);
    let mut bins: Vec<Vec<&Tick>> = vec![Vec::new(); (end_ms / bin_ms) as usize + 1];
    for tick in record.all_ticks() {
        bins[(tick.at_ms / bin_ms) as usize].push(tick);
    }
    // The last stretch is cut off by the end of the run: its rate would be too low.
    if bins.len() > 1 {
        bins.pop();
    }
    let bin_s = bin_ms as f64 / 1e3;
    let at = |(index, ticks): (usize, &Vec<&Tick>)| ((index as f64 + 0.5) * bin_s, value(ticks, bin_s));
    Series { name: name.to_owned(), points: bins.iter().enumerate().map(at).collect() }
}

const POINTS: usize = 400;
const BINS: u64 = 40;
const BIN_MS: u64 = 500;

fn pulled_bytes(tick: &Tick) -> u64 {
    tick.pulls.iter().map(|pull| pull.bytes).sum()
}

fn blocks(tick: &Tick) -> u64 {
    tick.local_hits + tick.made + tick.pulls.len() as u64
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::worker_lines::{Pull, Sweep};

    fn pull(owner: usize, took_ns: u64) -> Pull {
        Pull { owner, took_ns, processor_ns: 1000, bytes: 1 << 20, computing: took_ns > 2500 }
    }

    fn record() -> Record {
        let mut record = Record::new(2);
        record.ticks[0] = (0..60)
            .map(|step| Tick {
                at_ms: step * 250,
                requests: 4,
                local_hits: 1,
                made: 2,
                pulls: vec![pull(1, 1000 + step * 100)],
                ..Tick::default()
            })
            .collect();
        record
    }

    #[test]
    fn a_distribution_climbs_from_the_first_value_to_all() {
        let record = record();
        let by_owner = latency_by_owner(&record).chart.series;
        assert_eq!(by_owner.len(), 1, "nothing was pulled from worker 0");
        let points = &by_owner[0].points;
        assert_eq!((points[0], points[points.len() - 1]), ((1.0, 1.0 / 60.0), (6.9, 1.0)));
        assert!(points.is_sorted());
        let by_state = latency_by_state(&record, Way::Attach).chart.series;
        assert!(by_state[0].points[0].0 > by_state[1].points[0].0, "slow pulls were marked as computing");
    }

    #[test]
    fn rates_are_per_second_and_shares_of_all_blocks() {
        let record = record();
        for (pulled, requests) in
            throughput(&record).chart.series[0].points.iter().zip(&throughput(&record).chart.series[1].points)
        {
            assert_eq!((pulled.1, requests.1), (4.194_304, 16.0));
        }
        for point in &hit_rate(&record).chart.series[0].points {
            assert_eq!(point.1, 0.5);
        }
    }

    #[test]
    fn a_sweep_becomes_one_point_a_number_of_pieces() {
        let mut record = record();
        record.sweep =
            [1, 64].map(|pieces| Sweep { pieces, took_ns: vec![5000, 9000, pieces as u64 * 1000] }).to_vec();
        let figure = figures(&record, Way::Attach).pop().expect("five figures");
        assert_eq!(figure.chart.series[0].points, [(1.0, 5.0), (64.0, 9.0)]);
    }

    #[test]
    fn an_empty_record_draws_empty_charts() {
        for figure in figures(&Record::new(4), Way::None) {
            assert!(figure.chart.svg().expect("nothing to draw").contains("<svg"));
        }
    }
}

//! What a whole run came to: the workers' lines put together, and the numbers that are printed.

use std::collections::BTreeMap;
use std::ops::Range;

use comfy_table::CellAlignment;
use serde::Serialize;
use standpipe::Strategy;

use super::verdict::Verdict;
use super::worker_lines::{Done, Pull, Sweep, Tick, Yardsticks};
use super::worth::{Beside, Pass, WithoutPulling};
use measure::machine::{self, Load};
use measure::table::{Table, plain};
use measure::transport::Chosen;
use measure::units::{bytes, grouped, micros};

/// Everything the workers told, in the order it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    /// What the sweep over numbers of pieces measured; empty for a single worker.
    pub sweep: Vec<Sweep>,
    /// Times of a pull and of its alternatives, measured before the replay. `None` for a single worker, and
    /// with phases.
    pub yardsticks: Option<Yardsticks>,
    /// Processor time that making a block takes, in microseconds.
    pub make_us: f64,
    /// The first requests with and without pulling, where both were served.
    pub without_pulling: Option<WithoutPulling>,
    /// Each worker's ticks.
    pub ticks: Vec<Vec<Tick>>,
    /// Each worker's last line; `None` for one that died.
    pub done: Vec<Option<Done>>,
    /// Requests that were to be served.
    pub wanted: u64,
    /// How they reached each other.
    pub chosen: Chosen,
    /// Which workers exited before they were done; a worker without last line that did not was killed.
    pub gave_up: Vec<bool>,
    /// From the moment all workers were ready to the last of them being done, in seconds.
    pub seconds: f64,
    /// When a worker was killed on purpose, and when another had joined, in milliseconds since all others
    /// were ready.
    pub killed_ms: Option<u64>,
    /// See `killed_ms`.
    pub joined_ms: Option<u64>,
}

impl Record {
    /// A record of `workers` that have said nothing yet.
    #[must_use]
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            sweep: Vec::new(),
            yardsticks: None,
            make_us: 0.0,
            without_pulling: None,
            ticks: vec![Vec::new(); workers],
            done: vec![None; workers],
            wanted: 0,
            chosen: Chosen::default(),
            gave_up: vec![false; workers],
            seconds: 0.0,
            killed_ms: None,
            joined_ms: None,
        }
    }

    /// All ticks of all workers.
    pub(crate) fn all_ticks(&self) -> impl Iterator<Item = &Tick> {
        self.ticks.iter().flatten()
    }

    /// All pulls of all workers.
    pub(crate) fn pulls(&self) -> impl Iterator<Item = &Pull> {
        self.all_ticks().flat_map(|tick| &tick.pulls)
    }

    /// What became of a worker that was not done: it died, or it gave up and said why.
    #[must_use]
    pub(crate) fn fate(&self, rank: usize) -> Option<&'static str> {
        match (&self.done[rank], self.gave_up[rank]) {
            (Some(_), _) => None,
            (None, true) => Some("gave up"),
            (None, false) => Some("died"),
        }
    }

    /// How many workers were not done, and why; `None` if all were.
    #[must_use]
    pub(crate) fn losses(&self) -> Option<String> {
        let workers = self.done.len();
        let fates: Vec<&str> = (0..workers).filter_map(|rank| self.fate(rank)).collect();
        let died = fates.iter().filter(|fate| **fate == "died").count();
        match (died, fates.len() - died) {
            (0, 0) => None,
            (0, gave_up) => Some(format!("{gave_up} of {workers} workers gave up")),
            (died, 0) => Some(format!("{died} of {workers} workers died")),
            (died, gave_up) => Some(format!("{died} of {workers} workers died and {gave_up} gave up")),
        }
    }

    /// The names of the replay's phases and their milliseconds; none where no worker was killed on purpose.
    #[must_use]
    pub(crate) fn spans(&self) -> Vec<(&'static str, Range<u64>)> {
        let Some(killed_ms) = self.killed_ms else { return Vec::new() };
        let end_ms = self.all_ticks().map(|tick| tick.at_ms + 1).max().unwrap_or(0).max(killed_ms);
        let joined_ms = self.joined_ms.map(|joined_ms| joined_ms.clamp(killed_ms, end_ms));
        let mut spans = vec![("all", 0..killed_ms), ("one killed", killed_ms..joined_ms.unwrap_or(end_ms))];
        spans.extend(joined_ms.map(|joined_ms| ("one joined", joined_ms..end_ms)));
        spans
    }

    fn sum(&self, of: impl Fn(&Tick) -> u64) -> u64 {
        self.all_ticks().map(of).sum()
    }

    /// What this run came to as a pass to compare; `None` where a worker was lost.
    #[must_use]
    pub(crate) fn pass(&self, pulling: bool) -> Option<Pass> {
        let processor_ns: u64 = self.pulls().map(|pull| pull.processor_ns).sum();
        self.losses().is_none().then(|| Pass {
            pulling,
            seconds: self.seconds,
            made: self.sum(|tick| tick.made),
            pulls: self.pulls().count() as u64,
            pull_processor_seconds: processor_ns as f64 / 1e9,
        })
    }
}

/// How pulled bytes came out of private memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing was pulled, or only by workers that died.
    None,
    /// The kernel copied them, and their owner had no part in it.
    Attach,
    /// Their owner sent them.
    Message,
    /// Some in one way, some in the other.
    Mixed,
    /// Over a network: their owner was asked and sent them, or copied them into the answer.
    NetworkMessage,
    /// Over a network, by the key of memory that its owner registered.
    NetworkKey,
}

/// A part of a replay in which as many workers served.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Phase {
    /// `all`, `one killed` or `one joined`.
    pub name: &'static str,
    /// Its duration in seconds.
    pub seconds: f64,
    /// Requests served in it.
    pub requests: u64,
    /// Requests served in a second.
    pub requests_per_second: f64,
    /// Blocks pulled.
    pub pulls: u64,
    /// Median and 99th percentile of the time of pulling one block, in microseconds.
    pub pull_p50_us: f64,
    /// See `pull_p50_us`.
    pub pull_p99_us: f64,
    /// Share of the blocks that some worker held.
    pub hit_rate: f64,
}

impl Phase {
    /// Of the ticks that were told in these milliseconds.
    fn of(name: &'static str, record: &Record, span_ms: Range<u64>) -> Phase {
        let ticks = || record.all_ticks().filter(|tick| span_ms.contains(&tick.at_ms));
        let sum = |of: fn(&Tick) -> u64| ticks().map(of).sum::<u64>();
        let took_ns = sorted(ticks().flat_map(|tick| &tick.pulls).map(|pull| pull.took_ns));
        let (pulls, requests) = (took_ns.len() as u64, sum(|tick| tick.requests));
        let held = sum(|tick| tick.local_hits) + pulls;
        let seconds = (span_ms.end - span_ms.start) as f64 / 1e3;
        Phase {
            name,
            seconds,
            requests,
            requests_per_second: ratio(requests as f64, seconds),
            pulls,
            pull_p50_us: percentile(&took_ns, 0.5) / 1e3,
            pull_p99_us: percentile(&took_ns, 0.99) / 1e3,
            hit_rate: ratio(held as f64, (held + sum(|tick| tick.made)) as f64),
        }
    }
}

/// The most that a worker has told of.
fn peak_pinned(ticks: &[Tick]) -> u64 {
    ticks.iter().map(|tick| tick.pinned_peak_bytes).max().unwrap_or(0)
}

/// The run in numbers; `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// How this program was built: `debug` or `release`.
    pub build: &'static str,
    /// How many processes wanted a processor, on average over the last minute of it.
    pub load_average: Option<f64>,
    /// The same when it began.
    pub load_average_before: Option<f64>,
    /// Whether other programs kept the machine busy when it began: then its times are noise.
    pub busy: bool,
    /// Whether pulling is worth it; `None` for a single worker, and with phases.
    pub verdict: Option<Verdict>,
    /// A block by each way to have it, and what its owner loses; `None` for a single worker, and with phases.
    pub yardsticks: Option<Beside>,
    /// The first requests with and without pulling, where both were served.
    pub without_pulling: Option<WithoutPulling>,
    /// How workers reached each other: `shm`, or `ofi` with the provider.
    pub transport: String,
    /// What they registered; `None` over shared memory, where nothing is.
    pub strategy: Option<&'static str>,
    /// Workers that ran.
    pub workers: usize,
    /// Workers that died, or gave up, before they were done.
    pub workers_lost: usize,
    /// Workers that joined while others were at it already.
    pub workers_joined: usize,
    /// Of each worker the most bytes that it had registered at a time, added up; 0 over shared memory.
    pub peak_pinned_bytes: u64,
    /// The replay before a worker was killed, until another had joined, and after that; empty where none was
    /// killed.
    pub phases: Vec<Phase>,
    /// Requests served.
    pub requests: u64,
    /// Requests that were to be served.
    pub requests_wanted: u64,
    /// Blocks that these requests named: hits, pulls and made together.
    pub blocks: u64,
    /// Blocks found in the store of the worker that wanted them.
    pub local_hits: u64,
    /// Blocks pulled from another worker.
    pub pulls: u64,
    /// Blocks made.
    pub made: u64,
    /// Blocks recycled to make room for others.
    pub evictions: u64,
    /// Blocks used but not stored, because every victim was being read.
    pub not_stored: u64,
    /// Blocks gone between look-up and pin; they were looked for elsewhere or made.
    pub stale: u64,
    /// Bytes pulled, every one compared with what the block must hold.
    pub verified_bytes: u64,
    /// Bytes among them that were wrong. Anything but 0 is a defect.
    pub mismatched_bytes: u64,
    /// Median time of pulling one block, in microseconds.
    pub pull_p50_us: f64,
    /// 99th percentile of the time of pulling one block, in microseconds.
    pub pull_p99_us: f64,
    /// Median of the puller's processor time for one pull, in microseconds: what the pull costs, without
    /// waiting.
    pub pull_processor_p50_us: f64,
    /// 99th percentile of the same.
    pub pull_processor_p99_us: f64,
    /// Bandwidth of the median pull, in GB/s.
    pub pull_p50_gbps: f64,
    /// Share of the pulls that began while the owner was computing.
    pub pulls_while_computing: f64,
    /// Bytes pulled over the time spent in pulls, in GB/s (10^9 bytes): what one worker sees.
    pub gbps: f64,
    /// Share of the blocks that some worker held.
    pub hit_rate: f64,
    /// Median time of pulling a block that is cut into so many pieces, in microseconds, from a worker that
    /// computes; measured before the replay, and in no other number here.
    pub pull_us_by_pieces: BTreeMap<usize, f64>,
    /// Bytes moved between workers, by mechanism.
    pub mechanisms: BTreeMap<String, u64>,
    /// Operations between workers, by the reason for the path they took.
    pub reasons: BTreeMap<String, u64>,
    /// Duration of the replay in seconds.
    pub seconds: f64,
}

impl Outcome {
    /// Adds up a record.
    #[must_use]
    pub(crate) fn of(record: &Record) -> Self {
        let took_ns = sorted(record.pulls().map(|pull| pull.took_ns));
        let processor_ns = sorted(record.pulls().map(|pull| pull.processor_ns));
        let pulls = took_ns.len() as u64;
        let computing = record.pulls().filter(|pull| pull.computing).count() as f64;
        let bytes: u64 = record.pulls().map(|pull| pull.bytes).sum();
        let (local_hits, made) = (record.sum(|tick| tick.local_hits), record.sum(|tick| tick.made));
        let blocks = local_hits + pulls + made;
        let done = || record.done.iter().flatten();
        Self {
            build: machine::BUILD,
            load_average: machine::load_average(),
            load_average_before: Load::before().map(|load| load.average),
            busy: machine::is_busy(),
            verdict: record
                .yardsticks
                .map(|_| Verdict::of(record.without_pulling.as_ref(), record.make_us, Load::before())),
            yardsticks: record.yardsticks.map(|measured| Beside::of(&measured, record.make_us)),
            without_pulling: record.without_pulling.clone(),
            transport: record.chosen.transport.to_string(),
            strategy: record.chosen.strategy.map(Strategy::name),
            workers: record.done.len(),
            workers_lost: record.done.len() - done().count(),
            workers_joined: usize::from(record.joined_ms.is_some()),
            peak_pinned_bytes: record.ticks.iter().map(|ticks| peak_pinned(ticks)).sum(),
            phases: record
                .spans()
                .into_iter()
                .map(|(name, span_ms)| Phase::of(name, record, span_ms))
                .collect(),
            requests: record.sum(|tick| tick.requests),
            requests_wanted: record.wanted,
            blocks,
            local_hits,
            pulls,
            made,
            evictions: record.sum(|tick| tick.evictions),
            not_stored: record.sum(|tick| tick.not_stored),
            stale: record.sum(|tick| tick.stale),
            verified_bytes: record.sum(|tick| tick.verified_bytes),
            mismatched_bytes: record.sum(|tick| tick.mismatched_bytes),
            pull_p50_us: percentile(&took_ns, 0.5) / 1e3,
            pull_p99_us: percentile(&took_ns, 0.99) / 1e3,
            pull_processor_p50_us: percentile(&processor_ns, 0.5) / 1e3,
            pull_processor_p99_us: percentile(&processor_ns, 0.99) / 1e3,
            pull_p50_gbps: ratio(bytes as f64 / pulls as f64, percentile(&took_ns, 0.5)),
            pulls_while_computing: ratio(computing, pulls as f64),
            gbps: ratio(bytes as f64, took_ns.iter().sum::<u64>() as f64),
            hit_rate: ratio((local_hits + pulls) as f64, blocks as f64),
            pull_us_by_pieces: record
                .sweep
                .iter()
                .map(|sweep| (sweep.pieces, sweep.percentile_us(0.5)))
                .collect(),
            mechanisms: add_up(done().map(|done| &done.mechanisms)),
            reasons: add_up(done().map(|done| &done.reasons)),
            seconds: record.seconds,
        }
    }

    /// How the pulled bytes came.
    #[must_use]
    pub(crate) fn way(&self) -> Way {
        // Directories' words go both ways there, too.
        match self.strategy {
            Some(strategy) if strategy == Strategy::Bounce.name() => return Way::NetworkMessage,
            Some(_) => return Way::NetworkKey,
            None => {}
        }
        let moved = |name: &str| self.mechanisms.get(name).is_some_and(|bytes| *bytes > 0);
        match (moved("cma"), moved("message")) {
            (false, false) => Way::None,
            (true, false) => Way::Attach,
            (false, true) => Way::Message,
            (true, true) => Way::Mixed,
        }
    }

    /// A number about pulls in words, which says so where there were none.
    #[must_use]
    pub(crate) fn of_pulls(&self, text: String) -> String {
        if self.pulls == 0 { "no pulls".to_owned() } else { text }
    }

    /// What the counts by mechanism and by reason leave out: a worker tells them at its end.
    #[must_use]
    pub(crate) fn left_out(&self) -> &'static str {
        if self.workers_lost > 0 { "without what lost workers moved" } else { "" }
    }

    /// How many requests were served, and of how many where some were not.
    fn served(&self) -> String {
        match self.unserved() {
            0 => grouped(self.requests),
            _ => format!("{} of {}", grouped(self.requests), grouped(self.requests_wanted)),
        }
    }

    /// Requests that nobody served.
    #[must_use]
    pub(crate) fn unserved(&self) -> u64 {
        self.requests_wanted.saturating_sub(self.requests)
    }

    /// The rows of the result table, as a person reads them: what, and how much.
    #[must_use]
    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        let pulls = |text| self.of_pulls(text);
        let mut rows = vec![
            ("requests served".to_owned(), self.served()),
            ("blocks used".to_owned(), grouped(self.blocks)),
            ("  found in own store".to_owned(), grouped(self.local_hits)),
            ("  pulled from a peer".to_owned(), grouped(self.pulls)),
            ("  made".to_owned(), grouped(self.made)),
            ("hit rate".to_owned(), format!("{:.1} %", self.hit_rate * 100.0)),
            ("pull of one block in the replay, median".to_owned(), pulls(micros(self.pull_p50_us))),
            ("  99th percentile".to_owned(), pulls(micros(self.pull_p99_us))),
            ("  of it processor time, median".to_owned(), pulls(micros(self.pull_processor_p50_us))),
            ("  of it processor time, 99th percentile".to_owned(), pulls(micros(self.pull_processor_p99_us))),
            (
                "pulls while the owner computed".to_owned(),
                pulls(format!("{:.0} %", self.pulls_while_computing * 100.0)),
            ),
            ("bandwidth of the median pull".to_owned(), pulls(format!("{:.2} GB/s", self.pull_p50_gbps))),
            ("bandwidth within all pulls".to_owned(), pulls(format!("{:.2} GB/s", self.gbps))),
            ("bytes verified".to_owned(), bytes(self.verified_bytes)),
            ("bytes wrong".to_owned(), grouped(self.mismatched_bytes)),
            ("blocks recycled".to_owned(), grouped(self.evictions)),
            ("blocks gone before the pin".to_owned(), grouped(self.stale)),
            ("duration".to_owned(), format!("{:.1} s", self.seconds)),
        ];
        rows.extend(self.worth());
        if self.workers_lost > 0 {
            rows.push(("workers lost".to_owned(), format!("{} of {}", self.workers_lost, self.workers)));
        }
        if self.workers_joined > 0 {
            rows.push(("workers that joined".to_owned(), self.workers_joined.to_string()));
        }
        if self.strategy.is_some() {
            rows.push(("registered at most, of all workers".to_owned(), bytes(self.peak_pinned_bytes)));
        }
        rows.extend(self.mechanisms.iter().map(|(name, moved)| (format!("moved by {name}"), bytes(*moved))));
        if self.workers_lost > 0 {
            rows.push((format!("  {}", self.left_out()), String::new()));
        }
        rows
    }

    /// The rows that compare a pull with its alternatives.
    fn worth(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        if let Some(beside) = &self.yardsticks {
            let row = |what: &str, us| (what.to_owned(), micros(us));
            rows.extend([
                row("one block again and again, by a pull", beside.pull_us),
                row("  by one memcpy", beside.memcpy_us),
                row("  by a TCP socket", beside.socket_us),
                row("  by making it", beside.make_us),
                (
                    "owner keeps, pulled without a pause".to_owned(),
                    format!("{:.0} %", 100.0 * beside.owner_keeps),
                ),
            ]);
        }
        if let Some(without) = &self.without_pulling {
            let row = |what, seconds| (what, format!("{seconds:.2} s"));
            let first = grouped(without.requests);
            rows.push(row(format!("first {first} requests, pulling"), without.seconds_pulling));
            rows.push(row("  without pulling".to_owned(), without.seconds));
        }
        rows
    }

    /// The result table for a terminal.
    #[must_use]
    pub(crate) fn table(&self) -> Table {
        let mut table = plain(&["KV study", "result"]);
        for (what, value) in self.rows() {
            table.add_row([what, value]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Sweep {
    /// The duration in microseconds that the share `share` (0 to 1) of the pulls did not pass.
    #[must_use]
    pub(crate) fn percentile_us(&self, share: f64) -> f64 {
        percentile(&sorted(self.took_ns.iter().copied()), share) / 1e3
    }
}

/// The value that the share `share` (0 to 1) of the sorted values does not pass; 0 when there are none.
#[must_use]
pub(crate) fn percentile(sorted: &[u64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).map_or(0.0, |&value| value as f64)
}

/// The values in ascending order.
#[must_use]
pub(crate) fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values
}

fn add_up<'a>(maps: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (name, value) in maps.flatten() {
        *sum.entry(name.clone()).or_default() += value;
    }
    sum
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::table::Layout;

    fn record() -> Record {
        let pull = |took_ns, computing| Pull { owner: 0, took_ns, processor_ns: 70, bytes: 1000, computing };
        let mut record = Record::new(3);
        record.wanted = 10;
        record.ticks[0] = vec![
            Tick { requests: 2, local_hits: 3, made: 4, verified_bytes: 2000, ..Tick::default() },
            Tick { requests: 1, made: 1, pulls: vec![pull(100, true), pull(300, false)], ..Tick::default() },
        ];
        record.ticks[1] = vec![Tick { requests: 5, pulls: vec![pull(200, true)], ..Tick::default() }];
        let mechanisms = |bytes| BTreeMap::from([("cma".to_owned(), bytes)]);
        record.done[0] = Some(Done { mechanisms: mechanisms(2000), ..Done::default() });
        record.done[1] = Some(Done { mechanisms: mechanisms(1000), ..Done::default() });
        record
    }

    #[test]
    fn an_outcome_adds_up_all_workers_and_counts_the_lost() {
        let outcome = Outcome::of(&record());
        assert_eq!((outcome.requests, outcome.blocks, outcome.pulls, outcome.made), (8, 11, 3, 5));
        assert_eq!((outcome.workers, outcome.workers_lost), (3, 1));
        assert_eq!((outcome.pull_p50_us, outcome.pull_p99_us, outcome.gbps), (0.2, 0.3, 5.0));
        assert!((outcome.hit_rate - 6.0 / 11.0).abs() < 1e-9);
        assert!((outcome.pulls_while_computing - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(outcome.mechanisms["cma"], 3000);
        let table = outcome.table().text(Layout::FILE);
        assert!(
            table.contains("workers lost")
                && table.contains("8 of 10")
                && table.contains("without what lost workers moved")
        );
        assert_eq!(outcome.way(), Way::Attach);
    }

    #[test]
    fn without_pulls_no_time_is_shown() {
        let table = Outcome::of(&Record::new(1)).table().text(Layout::FILE);
        assert_eq!((table.matches("no pulls").count(), table.matches("µs").count()), (7, 0), "{table}");
    }

    #[test]
    fn a_pass_counts_only_where_all_workers_came_to_its_end() {
        let mut record = Record { seconds: 1.5, ..record() };
        assert_eq!(record.pass(true), None, "worker 2 died");
        record.done[2] = Some(Done::default());
        let pass = record.pass(true).expect("all are there");
        assert_eq!((pass.seconds, pass.made, pass.pulls, pass.pull_processor_seconds), (1.5, 5, 3, 210e-9));
    }

    #[test]
    fn json_has_the_promised_names() {
        let json = serde_json::to_value(Outcome::of(&record())).expect("plain data");
        for name in [
            "requests",
            "pulls",
            "verified_bytes",
            "mismatched_bytes",
            "pull_p50_us",
            "pull_p99_us",
            "gbps",
            "hit_rate",
            "mechanisms",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn an_empty_run_has_no_nan() {
        let outcome = Outcome::of(&Record::new(2));
        assert_eq!((outcome.pull_p50_us, outcome.gbps, outcome.hit_rate), (0.0, 0.0, 0.0));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values = [10, 20, 30, 40];
        assert_eq!((percentile(&values, 0.5), percentile(&values, 0.99)), (20.0, 40.0));
        assert_eq!((percentile(&values, 0.0), percentile(&[], 0.5)), (10.0, 0.0));
    }
}

//! The report: one HTML file that needs nothing else, to be kept, mailed and opened years later.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    alternatives, charts,
    outcome::{Outcome, Record, Way},
    phased,
    statistics::{FAVOURITES, Statistics},
    worker_lines::Tick,
};
use measure::machine::Load;
use measure::report::{
    page::{Grid, document, escape, load, table},
    plots,
};
use measure::units::{bytes, counted, grouped, micros};

/// All that the report tells of.
#[derive(Debug, Clone)]
pub(crate) struct Report<'a> {
    /// What the run came to.
    pub outcome: &'a Outcome,
    /// What the workers told.
    pub record: &'a Record,
    /// The trace in numbers.
    pub trace: &'a Statistics,
    /// Of its uses of blocks named before, the share of the blocks named most: see
    /// [`favourite_share`](super::statistics::favourite_share).
    pub favourite_share: f64,
    /// Where the trace came from.
    pub trace_name: String,
    /// Whether workers kept what they pulled.
    pub keep_copies: bool,
    /// How the run was set up: what, and how much.
    pub setup: Vec<(String, String)>,
    /// The machine it ran on: what, and how much.
    pub machine: Vec<(String, String)>,
    /// The command line that repeats the run.
    pub command: String,
}

impl Report<'_> {
    /// The whole page.
    #[must_use]
    pub(crate) fn html(&self) -> String {
        let figures: String = charts::figures(self.record, self.outcome.way())
            .iter()
            .map(|figure| figure.html("no pulls"))
            .collect();
        let main = format!(
            "<h1>Pulling KV-cache blocks from busy workers</h1>\n{load}{lead}\
             {losses}{verdict}<div class=\"tiles\">\n{tiles}</div>\n{worth}{phases}\
             <h2>How long pulls take, and when</h2>\n<div class=\"grid\">\n{figures}<div class=\"stack\">{mechanisms}{reasons}</div>\n</div>\n\
             <h2>In numbers</h2>\n<div class=\"grid\">\n{result}<div class=\"stack\">{workers}{setup}</div></div>\n\
             <h2>What was run</h2>\n<div class=\"grid\">\n{trace}{machine}</div>\n\
             <h2>To repeat it</h2>\n<div class=\"card\"><pre>{command}</pre></div>\n\
             <footer>Written by standpipe {version}. Every byte pulled was compared with what its block must hold; \
             a pull is timed from before its scatter get to after it, without the look-up and the check. Amounts of memory \
             are binary (a MiB is 2<sup>20</sup> bytes), rates decimal (a GB/s is 10<sup>9</sup> bytes a second).</footer>\n",
            load = load(Load::before()),
            lead = self.lead(),
            verdict = self.verdict(),
            worth = self.worth(),
            losses = self.losses(),
            tiles = self.tiles(),
            phases = self.phases(),
            mechanisms =
                bars("Bytes, by mechanism", self.outcome.left_out(), &self.outcome.mechanisms, bytes),
            reasons = bars(
                "Operations, by the reason for their path",
                self.outcome.left_out(),
                &self.outcome.reasons,
                grouped
            ),
            result = table("Result", &self.outcome.rows()),
            workers = self.workers(),
            trace = table("Trace", &self.trace_rows()),
            setup = table("Set-up", &self.setup),
            machine = table("Machine", &self.machine),
            command = escape(&self.command),
            version = env!("CARGO_PKG_VERSION"),
        );
        document("KV-cache study", &main)
    }

    fn lead(&self) -> String {
        let outcome = self.outcome;
        format!(
            "<p class=\"lead\">{workers} on one host replayed {requests} to a language model. Each holds cache blocks \
             in ordinary allocator memory, in a store that keeps recycling them. {how}</p>\n",
            workers = counted(outcome.workers as u64, "process"),
            requests = counted(outcome.requests, "request"),
            how = self.how_pulled(),
        )
    }

    /// Whether pulling is worth it, in the first place of the page after what was run.
    fn verdict(&self) -> String {
        let Some(verdict) = &self.outcome.verdict else { return String::new() };
        format!(
            "<p class=\"verdict\"><b>Is pulling worth it? {}</b> {}</p>\n",
            escape(&verdict.answer),
            escape(&verdict.reason)
        )
    }

    /// A block by each way to have it, and what its owner loses.
    fn worth(&self) -> String {
        match alternatives::grids(self.outcome).iter().map(Grid::html).collect::<String>().as_str() {
            "" => String::new(),
            grids => {
                format!("<h2>A pull beside its alternatives</h2>\n<div class=\"grid\">\n{grids}</div>\n")
            }
        }
    }

    /// The replay before and after a worker was killed and another joined, where that was wanted.
    fn phases(&self) -> String {
        let Some(grid) = phased::grid(self.outcome) else { return String::new() };
        format!("<h2>Before, between and after</h2>\n<div class=\"stack\">\n{}</div>\n", grid.html())
    }

    /// That workers were lost, and what that cost, where it cannot be overlooked. One that was to be killed
    /// is told of with the phases.
    fn losses(&self) -> String {
        let outcome = self.outcome;
        let wanted = usize::from(self.record.killed_ms.is_some());
        let losses = self.record.losses().filter(|_| outcome.workers_lost > wanted);
        let Some(losses) = losses else { return String::new() };
        format!(
            "<p class=\"lost\">{losses}; {} of {} were not served.</p>\n",
            grouped(outcome.unserved()),
            counted(outcome.requests_wanted, "request"),
        )
    }

    /// How blocks came from other processes, as it was in this run.
    fn how_pulled(&self) -> String {
        let verified = bytes(self.outcome.verified_bytes);
        let checked = format!("{verified} were pulled this way and checked byte by byte.");
        let pinned =
            "A block that another process holds is pinned by a remote atomic and pulled by one scatter get";
        let (transport, strategy) = (&self.outcome.transport, self.outcome.strategy.unwrap_or("none"));
        match self.outcome.way() {
            _ if self.outcome.pulls == 0 => {
                "No block was pulled from another process in this run.".to_owned()
            }
            Way::None => format!(
                "{pinned}. How the bytes came, the workers that pulled did not live to tell. {checked}"
            ),
            Way::Attach => format!(
                "{pinned} straight out of that process’s private memory, while that process computes: nothing was \
                 registered, and nobody was asked. {checked}"
            ),
            Way::Message => format!(
                "{pinned}. Here the processes did not read each other’s private memory, for the reason given below: the \
                 bytes came by message, so the process that holds a block was asked for it and had to send it. Nothing \
                 was registered. {checked}"
            ),
            Way::NetworkMessage => format!(
                "{pinned}, over libfabric ({transport}). The bytes came by message: the process that holds a block was \
                 asked for it and sent it. Of the blocks nothing was registered. {checked}"
            ),
            Way::NetworkKey => format!(
                "{pinned}, over libfabric ({transport}), by the keys of memory that the process that holds it has \
                 registered: when it was asked to, and for as long as the strategy {strategy} keeps it. {checked}"
            ),
            Way::Mixed => format!(
                "{pinned}. Some came straight out of that process’s private memory, without asking it; for the others \
                 the bytes came by message, and that process had to send them. Nothing was registered. {checked}"
            ),
        }
    }

    fn tiles(&self) -> String {
        let outcome = self.outcome;
        let tile = |class: &str, value: String, what: &str| {
            format!("<div class=\"tile {class}\"><b>{value}</b><span>{what}</span></div>\n")
        };
        let pulls = |text| outcome.of_pulls(text);
        let wrong = if outcome.mismatched_bytes == 0 { "good" } else { "bad" };
        let mut tiles =
            vec![tile("", pulls(micros(outcome.pull_p50_us)), "to pull a block in the replay, median")];
        if let Some(beside) = &outcome.yardsticks {
            tiles.push(tile("", micros(beside.make_us), "to make it instead"));
            tiles.push(tile("", format!("{:.0} %", 100.0 * beside.owner_keeps), KEPT));
        }
        tiles.push(tile("", format!("{:.1} %", outcome.hit_rate * 100.0), "of blocks were held by a worker"));
        if let Some(without) = &outcome.without_pulling {
            let ratio = without.made as f64 / without.made_pulling.max(1) as f64;
            tiles.push(tile("", format!("{ratio:.2} ×"), "the blocks to make, without pulling"));
        }
        let checked = format!("wrong bytes, of {} pulled", bytes(outcome.verified_bytes));
        tiles.push(tile(wrong, grouped(outcome.mismatched_bytes), &checked));
        tiles.concat()
    }

    fn workers(&self) -> String {
        let mut rows = String::new();
        for (rank, ticks) in self.record.ticks.iter().enumerate() {
            let sum = |of: fn(&Tick) -> u64| ticks.iter().map(of).sum::<u64>();
            let pulls = sum(|tick| tick.pulls.len() as u64);
            let (local_hits, made) = (sum(|tick| tick.local_hits), sum(|tick| tick.made));
            let blocks = (local_hits + pulls + made).max(1);
            let served = self.record.pulls().filter(|pull| pull.owner == rank).count() as u64;
            let stored = ticks.iter().map(|tick| tick.stored_bytes).max().unwrap_or(0);
            let name = self.record.fate(rank).map_or_else(String::new, |fate| format!(" ({fate})"));
            writeln!(
                rows,
                "<tr><td>{rank}{name}</td><td>{}</td><td>{:.1} %</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                grouped(sum(|tick| tick.requests)),
                100.0 * (local_hits + pulls) as f64 / blocks as f64,
                grouped(pulls),
                grouped(served),
                bytes(stored),
            )
            .expect("a string grows");
        }
        format!(
            "<div class=\"card\"><h3>Workers</h3><table><tr><th>worker</th><th>requests</th><th>hit rate</th>\
             <th>pulled</th><th>pulled from it</th><th>held at most</th></tr>\n{rows}</table>{}</div>\n",
            self.why_so_uneven(),
        )
    }

    /// That one worker served most pulls, where one did; and why, where the trace and this run leave no other
    /// reason.
    fn why_so_uneven(&self) -> String {
        let workers = self.record.ticks.len();
        let mut served = vec![0_u64; workers];
        for pull in self.record.pulls() {
            served[pull.owner] += 1;
        }
        let most = (0..workers).max_by_key(|worker| served[*worker]).unwrap_or(0);
        let share = served.get(most).map_or(0.0, |most| *most as f64 / self.outcome.pulls.max(1) as f64);
        if self.keep_copies || share < UNEVEN / workers.max(1) as f64 {
            return String::new();
        }
        let cause = format!(
            " That is the trace’s doing: of all uses of blocks named before, {:.0} % are of the {FAVOURITES} blocks named \
             most, which many prompts begin with. Whoever needs such a block first makes it and keeps it, since it is \
             never long unused, and with --keep-copies off nobody else does.",
            100.0 * self.favourite_share,
        );
        let known = self.favourite_share >= FAVOURED && self.outcome.workers_lost == 0;
        let cause = if known { cause.as_str() } else { "" };
        format!("<p class=\"note\">Worker {most} served {:.0} % of the pulls.{cause}</p>", 100.0 * share)
    }

    fn trace_rows(&self) -> Vec<(String, String)> {
        let trace = self.trace;
        let row = |what: &str, value: String| (what.to_owned(), value);
        vec![
            row("source", self.trace_name.clone()),
            row("requests", grouped(trace.requests as u64)),
            row(
                "span in its own time",
                format!("{:.0} s, {}", trace.span_s, counted(trace.bursts as u64, "burst")),
            ),
            row("prompt, median and 90 %", per_request(trace.input_tokens.p50, trace.input_tokens.p90)),
            row("answer, median and 90 %", per_request(trace.output_tokens.p50, trace.output_tokens.p90)),
            row("blocks named", grouped(trace.blocks as u64)),
            row("different blocks", grouped(trace.distinct_blocks as u64)),
            row("named before (endless cache)", format!("{:.1} %", trace.reuse_share * 100.0)),
            row("named before (cache of 1,000)", format!("{:.1} %", trace.reuse_share_1000 * 100.0)),
            row("kinds, by first block", shares(&trace.first_block_shares)),
        ]
    }
}

/// The words on the tile with the owner's share.
const KEPT: &str = "of its rate is left to an owner that is pulled from";

/// Times an even share from which on a worker's share of the pulls wants a reason.
const UNEVEN: f64 = 1.5;
/// Share of the blocks named most from which on they explain such a worker.
const FAVOURED: f64 = 0.5;

fn per_request(median: f64, high: f64) -> String {
    format!("{} and {} tokens", grouped(median as u64), grouped(high as u64))
}

fn shares(shares: &[f64]) -> String {
    const SHOWN: usize = 3;
    let mut text: Vec<String> =
        shares.iter().take(SHOWN).map(|share| format!("{:.0} %", share * 100.0)).collect();
    if shares.len() > SHOWN {
        text.push(format!("{} more", shares.len() - SHOWN));
    }
    text.join(", ")
}

fn bars(title: &str, note: &str, values: &BTreeMap<String, u64>, text: fn(u64) -> String) -> String {
    let largest = values.values().copied().max().unwrap_or(0).max(1);
    let rows: String = values
        .iter()
        .enumerate()
        .map(|(index, (name, value))| {
            format!(
                "<div class=\"bar\"><div><span>{}</span><span>{}</span></div>\
                 <i style=\"width:{:.2}%;background:{}\"></i></div>\n",
                escape(in_words(name)),
                text(*value),
                100.0 * *value as f64 / largest as f64,
                plots::colour(index),
            )
        })
        .collect();
    let rows = if rows.is_empty() { "<p class=\"note\">none</p>".to_owned() } else { rows };
    let note = if note.is_empty() { String::new() } else { format!("<p class=\"note\">{note}</p>") };
    format!("<div class=\"card\"><h3>{title}</h3>{note}{rows}</div>\n")
}

/// What a mechanism's or reason's name in the library's counters stands for.
fn in_words(name: &str) -> &str {
    match name {
        "cma" => "cross-memory attach, for private memory",
        "registered" => "by key, for registered memory",
        "network" => "over a network, and not held as registered",
        "mapped" => "mapped heap, for the directory",
        "message" => "messages, for private memory (and over a network atomics)",
        "heap-mapped" => "heap, and mapped here",
        "private-reachable" => "private, and the kernel lets us",
        "ptrace-denied" => "private, and ptrace rights forbid attaching",
        "call-forbidden" => "private, and a filter forbids attaching",
        "configured" => "private, and messages are configured",
        "pid-mismatch" => "private, and the process has another number here",
        "not-offered" => "by a transport that offers nothing one-sided",
        "no-room" => "over a network, and there was no room to register",
        "granted" => "granted, and only the owner knows whether it still is",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::{
        generate::Generator,
        trace::Request,
        worker_lines::{Done, Pull, Sweep, Yardsticks},
        worth::{Pass, WithoutPulling},
    };

    #[test]
    fn each_mechanism_and_reason_has_words() {
        let names = standpipe::Mechanism::ALL.map(standpipe::Mechanism::name).into_iter();
        for name in names.chain(standpipe::PathReason::ALL.map(standpipe::PathReason::name)) {
            assert_ne!(in_words(name), name);
        }
    }

    /// A made-up run that looks like a real one.
    fn record() -> Record {
        let mut record = Record::new(4);
        record.seconds = 31.4;
        record.sweep =
            [1, 16, 256].map(|pieces| Sweep { pieces, took_ns: vec![9000 + pieces as u64] }).to_vec();
        for rank in 0..4usize {
            record.ticks[rank] = (0..150u64).map(|step| tick(rank, step)).collect();
            let mechanisms = [("cma".to_owned(), 1_200_000_000), ("mapped".to_owned(), 9_400_000)];
            let reasons = [("private-reachable".to_owned(), 1140), ("heap-mapped".to_owned(), 38_000)];
            record.done[rank] = Some(Done { mechanisms: mechanisms.into(), reasons: reasons.into() });
        }
        record.done[2] = None;
        record
    }

    fn tick(rank: usize, step: u64) -> Tick {
        let pull = |index: u64| {
            let noise = crate::pattern::mix(step * 31 + index * 7 + rank as u64) % 1000;
            let computing = noise % 10 < 7;
            let took_ns = 130_000
                + noise * 90
                + if noise > 970 { noise * 2000 } else { 0 }
                + u64::from(computing) * 9000;
            Pull {
                owner: (rank + 1 + index as usize % 3) % 4,
                took_ns,
                processor_ns: 120_000 + noise * 80,
                bytes: 1 << 20,
                computing,
            }
        };
        Tick {
            at_ms: step * 200 + rank as u64,
            requests: 1 + step % 3,
            local_hits: 6 + step % 4,
            made: 60 - step / 6,
            evictions: 50,
            verified_bytes: 12 << 20,
            stored_bytes: 256 << 20,
            pulls: (0..8 + step % 5).map(pull).collect(),
            ..Tick::default()
        }
    }

    fn page() -> String {
        page_of(&record())
    }

    fn page_of(record: &Record) -> String {
        page_with(record, 0.7)
    }

    fn page_with(record: &Record, favourite_share: f64) -> String {
        let requests: Vec<Request> = Generator::new(1).take(200).collect();
        let row = |what: &str, value: &str| (what.to_owned(), value.to_owned());
        Report {
            outcome: &Outcome::of(record),
            record,
            trace: &Statistics::of(&requests),
            favourite_share,
            trace_name: "generated <seed 1>".to_owned(),
            keep_copies: false,
            setup: vec![row("workers", "4"), row("memory cap per worker", "256 MiB")],
            machine: vec![row("cores", "2"), row("kernel", "6.1.0")],
            command: "standpipe-study kv --trace 'a&b.jsonl'".to_owned(),
        }
        .html()
    }

    #[test]
    fn a_report_stands_alone_and_shows_everything() {
        let page = page();
        for outside in ["http://", "https://", "src=", "@import", "<script"] {
            let page = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(outside), "{outside} would need something besides the file");
        }
        assert_eq!(page.matches("<svg").count(), 5);
        for part in ["cross-memory attach", "2 (died)", "wrong bytes", "256 MiB", "Hit rate over time"] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn what_a_pull_is_worth_leads_and_no_percentile_of_the_machines_load() {
        let measured = Yardsticks {
            pull_ns: 324_000.0,
            memcpy_ns: 100_000.0,
            socket_ns: 800_000.0,
            made_alone: 100.0,
            made_pulled: 97.0,
        };
        let pass = |pulling: bool, seconds, made| {
            let pulls = 30 * u64::from(pulling);
            Pass { pulling, seconds, made, pulls, pull_processor_seconds: 0.01 }
        };
        let record = Record {
            yardsticks: Some(measured),
            make_us: 3000.0,
            without_pulling: WithoutPulling::of(10, vec![pass(false, 3.0, 90), pass(true, 2.0, 60)]),
            ..record()
        };
        let page = page_of(&record);
        let (before, _) = page.split_once("How long pulls take, and when").expect("the charts");
        assert!(!before.contains("percentile"), "{before}");
        for part in ["97 %", "1.50 ×", "Is pulling worth it? Worth it: ", "with pulling", "one memcpy"] {
            assert!(before.contains(part), "{part}: {before}");
        }
        assert!(page.contains("99th percentile"), "it stands in the table");
    }

    #[test]
    fn the_page_says_how_the_bytes_came() {
        let claims = ["nobody was asked", "A get is one-sided", "straight out of"];
        let mut record = record();
        let page = page_of(&record);
        assert!(claims.iter().all(|claim| page.contains(claim)));
        assert_eq!(page.matches("without what lost workers moved").count(), 3, "worker 2 died");
        for done in record.done.iter_mut().flatten() {
            done.mechanisms = [("message".to_owned(), 1000)].into();
        }
        let page = page_of(&record);
        assert!(!claims.iter().any(|claim| page.contains(claim)) && page.contains("had to send it"));
    }

    #[test]
    fn a_worker_that_serves_most_is_explained_and_others_are_not() {
        let mut record = record();
        assert!(!page_of(&record).contains("That is the trace"), "all serve alike");
        for pull in record.ticks.iter_mut().flatten().flat_map(|tick| &mut tick.pulls).skip(1000) {
            pull.owner = 3;
        }
        let explained = |page: &str| page.contains("That is the trace");
        let page = page_of(&record);
        assert!(page.contains("Worker 3 served 8") && !explained(&page), "a worker was lost: {page}");
        record.done[2] = Some(Done::default());
        assert!(explained(&page_of(&record)));
        let page = page_with(&record, 0.4);
        assert!(page.contains("Worker 3 served 8") && !explained(&page), "the trace has no such favourites");
    }

    #[test]
    fn lost_workers_are_told_at_the_head() {
        let mut record = record();
        record.wanted = Outcome::of(&record).requests + 86;
        let page = page_of(&record);
        let told = page.find("1 of 4 workers died; 86 of ").unwrap_or_else(|| panic!("{page}"));
        assert!(told < page.find("class=\"tiles\"").expect("the tiles"));
        record.done[2] = Some(Done::default());
        assert!(!page_of(&record).contains("were not served"));
    }

    #[test]
    fn a_worker_that_was_to_be_killed_is_no_mishap() {
        let mut record = record();
        (record.killed_ms, record.joined_ms) = (Some(9000), Some(20_000));
        let page = page_of(&record);
        assert!(page.contains("<h2>Before, between and after</h2>") && !page.contains("class=\"lost\""));
        assert!(page.contains("\nkilled\n") && page.contains("\njoined\n"), "in the charts over time");
        record.done[1] = None;
        assert!(page_of(&record).contains("2 of 4 workers died"));
    }

    #[test]
    fn units_are_said_once() {
        let page = page();
        assert_eq!((page.matches("2<sup>20</sup>").count(), page.contains("MiB pulled")), (1, false));
    }

    #[test]
    fn without_pulls_there_is_nothing_to_time() {
        let mut record = Record::new(1);
        record.ticks[0] = vec![Tick { requests: 1, made: 3, at_ms: 900, ..Tick::default() }];
        record.done[0] = Some(Done::default());
        let page = page_of(&record);
        assert!(page.contains("1 process on one host replayed 1 request to"), "{page}");
        assert!(page.contains("No block was pulled") && !page.contains("0.0 µs"));
        assert_eq!(page.matches("<p>no pulls</p>").count(), 2);
    }

    #[test]
    fn what_the_user_wrote_cannot_become_markup() {
        let page = page();
        assert!(page.contains("a&amp;b.jsonl") && page.contains("generated &lt;seed 1&gt;"));
        assert!(!page.contains("<seed 1>"));
    }

    #[test]
    fn wrong_bytes_are_not_shown_as_good() {
        let mut record = record();
        record.ticks[0][0].mismatched_bytes = 3;
        let outcome = Outcome::of(&record);
        let report = Report {
            outcome: &outcome,
            record: &record,
            trace: &Statistics::of(&[]),
            favourite_share: 0.0,
            keep_copies: false,
            trace_name: String::new(),
            setup: Vec::new(),
            machine: Vec::new(),
            command: String::new(),
        };
        assert!(report.html().contains("tile bad\"><b>3</b>"));
    }
}

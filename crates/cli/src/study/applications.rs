//! The Firehose paper's table: its two programs under three strategies, beside what it published.

use anyhow::Result;
use serde::Serialize;
use sim::experiments::{Figures, Recorded, Replayed, Strategy, with_buckets};

use super::{
    recording::Program,
    show::{deviation_percent, row},
    work::{Bar, on_all_cores},
};
use crate::report::page::Grid;

/// One program under one strategy.
#[derive(Debug, Serialize)]
pub(super) struct Application {
    name: &'static str,
    strategy: &'static str,
    puts: u64,
    #[serde(flatten)]
    ours: Numbers,
    paper: Numbers,
    deviation_percent: Numbers,
    registrations: u64,
    evictions: u64,
}

/// What is measured of it; `None`: not published, or there is none.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Numbers {
    runtime_s: Option<f64>,
    put_latency_us: Option<f64>,
    hit_percent: Option<f64>,
    hit_us: Option<f64>,
    miss_us: Option<f64>,
}

impl Numbers {
    fn each(self) -> [(&'static str, Option<f64>); 5] {
        [
            ("run time", self.runtime_s),
            ("put latency", self.put_latency_us),
            ("hits", self.hit_percent),
            ("a hit", self.hit_us),
            ("a miss", self.miss_us),
        ]
    }

    fn of(replayed: &Replayed) -> Numbers {
        let us = |tally: sim::Tally| (tally.count > 0).then(|| tally.mean_ns() / 1e3);
        let ran = &replayed.ran;
        Numbers {
            runtime_s: Some(ran.runtime_ns as f64 / 1e9),
            put_latency_us: us(ran.transfers()),
            hit_percent: Some(ran.hit_percent()),
            hit_us: us(ran.hits),
            miss_us: us(ran.misses),
        }
    }

    /// How far these are from what was published.
    fn against(self, paper: Numbers) -> Numbers {
        let off = |ours: Option<f64>, paper: Option<f64>| Some(deviation_percent(ours?, paper?));
        Numbers {
            runtime_s: off(self.runtime_s, paper.runtime_s),
            put_latency_us: off(self.put_latency_us, paper.put_latency_us),
            hit_percent: off(self.hit_percent, paper.hit_percent),
            hit_us: off(self.hit_us, paper.hit_us),
            miss_us: off(self.miss_us, paper.miss_us),
        }
    }
}

/// A row of the paper's table, or of ours.
#[derive(Debug, Clone, Copy)]
struct Variant {
    name: &'static str,
    strategy: Strategy,
    /// Pages of a bucket, of which the paper does not say how many they were.
    bucket_pages: u32,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: Strategy::Firehose.name(), strategy: Strategy::Firehose, bucket_pages: 1 },
    Variant { name: "firehose, 4-page buckets", strategy: Strategy::Firehose, bucket_pages: 4 },
    Variant { name: Strategy::RendezvousKeep.name(), strategy: Strategy::RendezvousKeep, bucket_pages: 1 },
    Variant { name: Strategy::RendezvousUnpin.name(), strategy: Strategy::RendezvousUnpin, bucket_pages: 1 },
];

/// What the paper's table says.
fn published(program: Program, strategy: Strategy) -> Numbers {
    let asks = |runtime_s, put_latency_us| Numbers {
        runtime_s: Some(runtime_s),
        put_latency_us: Some(put_latency_us),
        ..Numbers::default()
    };
    let firehose = |runtime_s, hit_percent, hit_us, miss_us| Numbers {
        runtime_s: Some(runtime_s),
        hit_percent: Some(hit_percent),
        hit_us: Some(hit_us),
        miss_us: Some(miss_us),
        ..Numbers::default()
    };
    match (program, strategy) {
        (Program::Cannon, Strategy::RendezvousUnpin) => asks(5460.0, 5141.0),
        (Program::Cannon, Strategy::RendezvousKeep) => asks(797.0, 34.0),
        (Program::Cannon, Strategy::Firehose) => firehose(781.0, 99.8, 14.0, 46.0),
        (Program::Bitonic, Strategy::RendezvousUnpin) => asks(4740.0, 522.0),
        (Program::Bitonic, Strategy::RendezvousKeep) => asks(289.0, 33.0),
        (Program::Bitonic, Strategy::Firehose) => firehose(255.0, 99.98, 15.0, 54.0),
        _ => Numbers::default(),
    }
}

/// Puts of the paper's runs.
const fn puts_published(program: Program) -> f64 {
    match program {
        Program::Cannon => 1.5e6,
        Program::Bitonic => 2.1e6,
    }
}

/// Replays both recordings under the three strategies.
///
/// # Errors
/// If what was recorded does not fit together.
pub(super) fn table(experiment: &Figures, recorded: &[(Program, Recorded)]) -> Result<Vec<Application>> {
    let bar = Bar::new(recorded.len() * (1 + VARIANTS.len()), "replays");
    let replay = |variant: Variant, recorded: &Recorded, slower| {
        let settings = with_buckets(experiment.settings, variant.bucket_pages);
        let replayed = recorded.replay(&experiment.costs, variant.strategy, settings, slower);
        bar.step();
        replayed
    };
    let slower: Vec<f64> = on_all_cores(recorded, |(program, recorded)| {
        replay(VARIANTS[0], recorded, 0.0).map(|silent| slower(*program, recorded, &silent))
    })
    .into_iter()
    .collect::<Result<_, _>>()?;
    let jobs: Vec<(usize, Variant)> =
        (0..recorded.len()).flat_map(|index| VARIANTS.map(|variant| (index, variant))).collect();
    let replayed: Vec<Replayed> =
        on_all_cores(&jobs, |(index, variant)| replay(*variant, &recorded[*index].1, slower[*index]))
            .into_iter()
            .collect::<Result<_, _>>()?;
    let application = |((index, variant), replayed): (&(usize, Variant), &Replayed)| {
        application(recorded[*index].0, *variant, replayed)
    };
    Ok(jobs.iter().zip(&replayed).map(application).collect())
}

/// How many times slower the paper's processors are to be taken than this machine's, so that the program under firehose
/// runs as long as the paper's did, for each put: given what it takes when phases of computing take nothing.
fn slower(program: Program, recorded: &Recorded, silent: &Replayed) -> f64 {
    let share = recorded.transfers() as f64 / puts_published(program);
    let wanted_ns = published(program, Strategy::Firehose).runtime_s.unwrap_or(0.0) * 1e9 * share;
    let computing_ns = (wanted_ns - silent.ran.runtime_ns as f64).max(0.0);
    computing_ns / recorded.phases_ns().max(1) as f64
}

fn application(program: Program, variant: Variant, replayed: &Replayed) -> Application {
    let puts = replayed.ran.transfers().count;
    let ours = Numbers::of(replayed);
    let whole = published(program, variant.strategy);
    // A shorter run is to take a like part of the time.
    let share = puts as f64 / puts_published(program);
    let paper = Numbers { runtime_s: whole.runtime_s.map(|seconds| seconds * share), ..whole };
    Application {
        name: program.name(),
        strategy: variant.name,
        puts,
        ours,
        paper,
        deviation_percent: ours.against(paper),
        registrations: replayed.registrations,
        evictions: replayed.evictions,
    }
}

/// The table: for each number ours, the paper's in brackets, and by how much ours is off.
pub(super) fn grid(applications: &[Application]) -> Grid {
    let cells = |application: &Application| {
        let mut cells = vec![application.name.to_owned(), application.strategy.to_owned()];
        let numbers = application.ours.each().into_iter().zip(application.paper.each());
        cells.extend(
            numbers
                .zip(application.deviation_percent.each())
                .map(|((ours, paper), off)| cell(ours.1, paper.1, off.1)),
        );
        cells
    };
    Grid {
        title: "The paper’s table: ours, (the paper’s), and the deviation".to_owned(),
        note: "Run times depend on how fast the processors are: phases of computing are slowed down until the run \
               under firehose takes as long as the paper’s, and are made equally long at all ranks; the other two run \
               times follow from that."
            .to_owned(),
        header: ["program", "strategy", "run time (s)", "put (µs)", "hits (%)", "a hit (µs)", "a miss (µs)"]
            .map(str::to_owned)
            .to_vec(),
        rows: applications.iter().map(cells).collect(),
    }
}

fn cell(ours: Option<f64>, paper: Option<f64>, off: Option<f64>) -> String {
    let number = |value: f64| match value {
        1000.0.. => format!("{value:.0}"),
        99.0..100.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    };
    match (ours, paper, off) {
        (Some(ours), Some(paper), Some(off)) => format!("{} ({}) {off:+.1} %", number(ours), number(paper)),
        (Some(ours), ..) => number(ours),
        _ => "–".to_owned(),
    }
}

/// The bound on hits, and a sentence for each number that is more than 20 % off, and one on the two averages that one fixed cost does not
/// give.
pub(super) fn findings(applications: &[Application]) -> Vec<String> {
    let mut findings = vec![
        "Under firehose here each bucket that a peer puts to is asked for once, if nothing is evicted (see evictions in \
         the JSON); so the share of hits says how many puts went to each bucket, and what a miss takes is a handshake \
         and the pinning of a bucket at 40 µs a page. The remote part of the paper’s misses, 5 and 14 µs, is less than \
         one page takes to pin: we infer, and the paper does not say, that most of them found the bucket pinned \
         already. Larger buckets give more hits and longer misses."
            .to_owned(),
        "The paper’s averages for rendezvous with unpinning, 5141 and 522 µs a put, do not both come from one fixed cost \
         of unpinning a page at every put. Nor do they explain its run times, if its 1.5 and 2.1 million puts are those \
         of four ranks together, as here: that is 1930 and 270 s a rank, where the runs are 4680 and 4490 s longer than \
         under firehose. Here a page costs the 6 ms that the paper names."
            .to_owned(),
    ];
    for application in applications {
        let all = application.ours.each().into_iter().zip(application.paper.each());
        for ((what, ours), (_, paper)) in all {
            let (Some(ours), Some(paper)) = (ours, paper) else { continue };
            let off = deviation_percent(ours, paper);
            if off.abs() > 20.0 {
                findings.push(format!(
                    "{}, {}: {what} is {ours:.0} where the paper has {paper:.0} ({off:+.0} %).",
                    application.name, application.strategy
                ));
            }
        }
    }
    findings
}

/// What was run, for the page.
pub(super) fn setup(recorded: &[(Program, Recorded)], small: bool) -> Vec<(String, String)> {
    let line = |(program, recorded): &(Program, Recorded)| {
        let words = program.words(small).join(" ");
        row(program.name(), format!("standpipe {words}: {} puts", recorded.transfers()))
    };
    recorded.iter().map(line).collect()
}

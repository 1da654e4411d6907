//! The Firehose paper's table: its two programs under three strategies, beside what it published.

use anyhow::Result;
use serde::Serialize;
use sim::experiments::{Again, Figures, Recorded, Replayed, Settings, Strategy};

use crate::all_cores::on_all_cores;
use crate::study::recording::{Hosts, Program, Size};
use measure::progress::Bar;
use measure::report::{
    page::Grid,
    show::{beside, deviation, deviation_percent, row},
};
use measure::units::grouped;

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
    /// What each is, its unit, and its value.
    fn each(self) -> [(&'static str, &'static str, Option<f64>); 5] {
        [
            (RUN_TIME, "s", self.runtime_s),
            ("put latency", "µs", self.put_latency_us),
            (SHARE_OF_HITS, "%", self.hit_percent),
            ("time of a hit", "µs", self.hit_us),
            ("time of a miss", "µs", self.miss_us),
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
    /// Whether as much of each rank's memory is pinned before as the paper's moves tell: see [`moves_us`].
    pinned_before: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: Strategy::Firehose.name(), strategy: Strategy::Firehose, pinned_before: true },
    Variant { name: NOTHING_PINNED, strategy: Strategy::Firehose, pinned_before: false },
    Variant {
        name: Strategy::RendezvousKeep.name(),
        strategy: Strategy::RendezvousKeep,
        pinned_before: true,
    },
    Variant {
        name: Strategy::RendezvousUnpin.name(),
        strategy: Strategy::RendezvousUnpin,
        pinned_before: true,
    },
];

const NOTHING_PINNED: &str = "firehose, nothing pinned before";

/// What the remote part of a move takes on average, as published: of so many µs that one page takes to pin,
/// these were spent. So of every 40 moves as many pinned a page, and all others found theirs pinned.
const fn moves_us(program: Program) -> u64 {
    match program {
        Program::Cannon => 5,
        Program::Bitonic => 14,
    }
}

/// The paper's two nodes had two processors each. Cannon's multiply runs on a square number of ranks, so
/// there are four.
pub(super) fn hosts(experiment: &Figures) -> Hosts {
    Hosts { ranks_each: 2, copy_ns_per_byte: experiment.costs.copy_ns_per_byte }
}

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
    let replay = |variant: Variant, program: Program, recorded: &Recorded, slower| {
        let replayed = recorded.replay(&Again {
            costs: experiment.costs.clone(),
            strategy: variant.strategy,
            // The paper registers each bucket alone.
            settings: Settings { run_max: 1, ..experiment.settings },
            slower,
            pinned_before: if variant.pinned_before { 40 - moves_us(program) } else { 0 },
        });
        bar.step();
        replayed
    };
    let slower: Vec<f64> = on_all_cores(recorded, |(program, recorded)| {
        replay(VARIANTS[0], *program, recorded, 0.0).map(|silent| slower(*program, recorded, &silent))
    })
    .into_iter()
    .collect::<Result<_, _>>()?;
    let jobs: Vec<(usize, Variant)> =
        (0..recorded.len()).flat_map(|index| VARIANTS.map(|variant| (index, variant))).collect();
    let replayed: Vec<Replayed> = on_all_cores(&jobs, |(index, variant)| {
        let (program, recorded) = &recorded[*index];
        replay(*variant, *program, recorded, slower[*index])
    })
    .into_iter()
    .collect::<Result<_, _>>()?;
    let application = |((index, variant), replayed): (&(usize, Variant), &Replayed)| {
        application(recorded[*index].0, *variant, replayed)
    };
    Ok(jobs.iter().zip(&replayed).map(application).collect())
}

/// How many times slower the paper's processors are to be taken than this machine's, so that the program
/// under firehose runs as long as the paper's did, for each put: given what it takes when phases of computing
/// take nothing.
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
        cells.extend(numbers.map(|(ours, paper)| cell(ours.2, paper.2)));
        cells
    };
    Grid {
        title: "The paper’s table".to_owned(),
        note: "Ours, in brackets the paper’s, and by how many percent of the paper’s ours is above or below it (or how \
               many times it is, ×). Run times under firehose are the paper’s by choice, as the page says under \"Where do the run times \
               come from?\"."
            .to_owned(),
        header: ["program", "strategy", "run time (s)", "put (µs)", "hits (%)", "a hit (µs)", "a miss (µs)"]
            .map(str::to_owned)
            .to_vec(),
        rows: applications.iter().map(cells).collect(),
    }
}

fn cell(ours: Option<f64>, paper: Option<f64>) -> String {
    match (ours, paper) {
        (Some(ours), Some(paper)) => {
            format!("{}\u{a0}({}) {}", number(ours), number(paper), deviation(ours, paper))
        }
        (Some(ours), None) => number(ours),
        _ => "–".to_owned(),
    }
}

fn number(value: f64) -> String {
    match value {
        1000.0.. => format!("{value:.0}"),
        99.0..100.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    }
}

/// All numbers for which there is one of the paper's: whose, what, its unit, ours and the paper's.
fn compared(
    applications: &[Application],
) -> impl Iterator<Item = (&Application, &'static str, &'static str, f64, f64)> {
    applications.iter().flat_map(|application| {
        let all = application.ours.each().into_iter().zip(application.paper.each());
        all.filter_map(move |((what, unit, ours), (.., paper))| {
            Some((application, what, unit, ours?, paper?))
        })
    })
}

const FAR_PERCENT: f64 = 20.0;

/// What some numbers are of.
const RUN_TIME: &str = "run time";
const SHARE_OF_HITS: &str = "share of hits";

fn is_far(ours: f64, paper: f64) -> bool {
    deviation_percent(ours, paper).abs() > FAR_PERCENT
}

/// A sentence for each number that is far off.
pub(super) fn findings(applications: &[Application]) -> Vec<String> {
    let far = compared(applications).filter(|(.., ours, paper)| is_far(*ours, *paper));
    far.map(|(application, what, unit, ours, paper)| {
        format!(
            "{}, {}: {what} is {} {unit}, {} the paper’s {} {unit}.",
            application.name,
            application.strategy,
            number(ours),
            beside(ours, paper),
            number(paper)
        )
    })
    .collect()
}

/// How many hits the programs have under firehose, and what one takes.
pub(super) fn hits(applications: &[Application]) -> String {
    let firehose =
        applications.iter().filter(|application| application.strategy == Strategy::Firehose.name());
    let programs: Vec<String> = firehose
        .map(|Application { name, ours, paper, .. }| {
            let or_none = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
            let [share, took, published] = [ours.hit_percent, ours.hit_us, paper.hit_us].map(or_none);
            format!("{share} % of {name}’s puts ({took} µs each; the paper: {published} µs)")
        })
        .collect();
    format!("Firehose asks nobody for {}.", programs.join(" and "))
}

/// Whether sizes and speeds were chosen for this number to be the paper's.
fn is_chosen(application: &Application, what: &str) -> bool {
    application.strategy.starts_with(Strategy::Firehose.name()) && matches!(what, RUN_TIME | SHARE_OF_HITS)
}

/// How many of the paper's numbers are met, of those that could be missed.
pub(super) fn deviations(applications: &[Application]) -> String {
    let (mut chosen, mut all, mut far) = (0, 0, 0);
    for (application, what, _, ours, paper) in compared(applications) {
        if is_chosen(application, what) {
            chosen += 1;
        } else {
            all += 1;
            far += usize::from(is_far(ours, paper));
        }
    }
    let beside =
        format!("({chosen} others are the paper’s by choice: firehose’s run times and shares of hits)");
    match far {
        0 => format!("All {all} numbers of the table are within {FAR_PERCENT} % of the paper’s {beside}."),
        _ => format!(
            "Of {all} numbers of the table that the paper has too, {} are within {FAR_PERCENT} % of it {beside}; the rest \
             are among the findings, and why is on the page, under the questions at its end.",
            all - far
        ),
    }
}

/// What the set-up is taken from, and what cannot hold and why.
pub(super) fn explanations() -> impl Iterator<Item = (&'static str, Vec<String>)> {
    EXPLANATIONS.into_iter().map(|(question, answer)| (question, answer.map(str::to_owned).to_vec()))
}

const EXPLANATIONS: [(&str, [&str; 2]); 4] = [
    (
        "Which programs were run, and why not those of standpipe-study kernel --paper?",
        [
            "The paper’s machine was two nodes of two processors, and Cannon’s multiply wants a square number of ranks: \
             so four ranks run here, two on a host, and only what goes to the other host is a put. Those are as many as \
             in the paper, 1.5 and 2.1 million (about a twentieth with --small): half of all that cannon’s ranks put, and a third of bitonic’s. standpipe \
             kernel --paper makes that many between all four ranks, in fewer rounds.",
            "The paper does not say how large the matrices and the keys were. Here nothing is given up, so that each \
             bucket is asked for once and the share of misses is buckets by puts: sizes (bitonic’s 210,000 keys a rank, \
             in ten sorts, where --paper has 350,000 in two) are chosen for the share to be the paper’s, which therefore \
             is no prediction.",
        ],
    ),
    (
        "Where do the run times come from?",
        [
            "They depend on how fast the processors are: phases of computing are slowed down until the run under \
             firehose takes as long as the paper’s, and are made equally long at all ranks.",
            "The other strategies’ run times follow from that.",
        ],
    ),
    (
        "What does a miss consist of, and why the rows “nothing pinned before”?",
        [
            "A miss is a hit, a handshake of 21 µs, and the remote part of the move. The paper’s remote parts, 5 and \
             14 µs, are less than the 40 µs that one page takes to pin: of 40 moves 5 (cannon) and 14 (bitonic) pinned a \
             page, and the others found theirs among the victims. How it had come to be pinned the paper does not say.",
            "Here the owners have pinned 35 and 26 of every 40 pages before, for puts of their own. In the rows “nothing \
             pinned before” they have not.",
        ],
    ),
    (
        "Why are rendezvous-unpin’s averages and run times not the paper’s?",
        [
            "The paper’s averages, 5141 and 522 µs a put, do not both come from one fixed cost of unpinning a page at \
             every put: 522 µs is a twelfth of the 6 ms that it names. Nor do they explain its run times: 1.5 million × \
             5141 µs and 2.1 million × 522 µs are 1930 and 270 s for each of four ranks, where the runs are 4680 and \
             4490 s longer than under firehose. That is 6.2 and 4.3 ms a put if each of two hosts unpins for one put at \
             a time: about a page for every put, of which bitonic’s puts did not wait for most.",
            "Here every put unpins a page in 6 ms, and its peer’s next one waits for it: 6 ms where both unpin at the \
             same time, and up to 12 in turns.",
        ],
    ),
];

/// What was run, for the page.
pub(super) fn setup(recorded: &[(Program, Recorded)], size: Size) -> Vec<(String, String)> {
    let line = |(program, recorded): &(Program, Recorded)| {
        let (words, puts) = (program.words(size).join(" "), grouped(recorded.transfers()));
        let less = if size == Size::Small { "; --small: a twentieth" } else { "" };
        row(program.name(), format!("standpipe {words}: {puts} puts from one host to the other{less}"))
    };
    recorded.iter().map(line).collect()
}

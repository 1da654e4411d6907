//! `standpipe tune`: what each way to move bytes costs on this machine, where one becomes cheaper than
//! another, and whether the library's choice agrees.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use standpipe::path::{self, Access, Facts, Limits, MemId, Path, Wanted};
use standpipe::{PathReason, STAGED_MIN, Transport, network};

use crate::attach::{Attach, try_attach};
use crate::perf::case::{Case, Memory, Op};
use crate::progress::Bar;
use crate::report::output::{Output, OutputArgs};
use crate::report::page::{Figure, Grid};
use crate::report::plots::{Chart, Series};
use crate::report::show::{Show, row};
use crate::units::nanos;
use crate::{machine, perf, transport};

/// Arguments of `standpipe tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// Puts over shared memory only, of few sizes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// A way to move bytes: how processes reach each other, which memory, and the settings that leave this way
/// only.
struct Way {
    name: &'static str,
    network: &'static str,
    memory: Memory,
    settings: &'static [(&'static str, &'static str)],
    sizes: Sizes,
}

/// For which sizes the library takes a way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    All,
    /// All but words, which go by message over sockets.
    NoWord,
    /// Less than [`STAGED_MIN`].
    Short,
    Long,
}

const SHM: &str = "shm";
const TCP: &str = "ofi:tcp";
const MESSAGES: &[(&str, &str)] = &[EXPOSED, ("STANDPIPE_ATTACH", "never")];
const DIRECTLY: &[(&str, &str)] = &[EXPOSED, ("STANDPIPE_ATTACH", "auto")];
const BOUNCE: &[(&str, &str)] = &[EXPOSED, (transport::STRATEGY, "bounce")];
const FIREHOSE: &[(&str, &str)] = &[EXPOSED, (transport::STRATEGY, "firehose")];
/// Whatever the user's own environment says, ways are what they are called.
const EXPOSED: (&str, &str) = ("STANDPIPE_EXPOSE", "everything");

const fn way(
    name: &'static str,
    network: &'static str,
    memory: Memory,
    settings: &'static [(&'static str, &'static str)],
    sizes: Sizes,
) -> Way {
    Way { name, network, memory, settings, sizes }
}

const WAYS: [Way; 8] = [
    way("shm: heap, mapped", SHM, Memory::Heap, DIRECTLY, Sizes::All),
    way("shm: private, attach", SHM, Memory::Private, DIRECTLY, Sizes::All),
    way("shm: private, chunks", SHM, Memory::Private, MESSAGES, Sizes::Short),
    way("shm: private, stages", SHM, Memory::Private, MESSAGES, Sizes::Long),
    way("tcp: heap, one-sided", TCP, Memory::Heap, BOUNCE, Sizes::NoWord),
    way("tcp: private, chunks", TCP, Memory::Private, BOUNCE, Sizes::Short),
    way("tcp: private, stages", TCP, Memory::Private, BOUNCE, Sizes::Long),
    way("tcp: private, registered", TCP, Memory::Private, FIREHOSE, Sizes::All),
];

/// Two ways to private memory that is reached like this, of which the library may take the first for less
/// than so many bytes, and then the second.
struct Choice {
    first: &'static str,
    then: &'static str,
    access: Access,
    /// The path that the second way is.
    path: Path,
    setting: &'static str,
}

impl Choice {
    /// From how many bytes on the library takes the second; `None`: never, unless it is told to.
    fn from(&self) -> Option<u64> {
        let taken = |bytes: u64| {
            let limits = Limits { staged_min: STAGED_MIN, stages: true, ..Limits::default() };
            let (wanted, memory, access) = (Wanted::Put, MemId::Space, self.access);
            path::choose(&Facts { wanted, bytes, alone: true, memory, access, limits }).path == self.path
        };
        let (mut less, mut enough) = (0, u64::MAX);
        if !taken(enough) {
            return None;
        }
        while enough - less > 1 {
            let middle = less + (enough - less) / 2;
            (less, enough) = if taken(middle) { (less, middle) } else { (middle, enough) };
        }
        Some(enough)
    }
}

const CHOICES: [Choice; 4] = [
    Choice {
        first: "shm: private, chunks",
        then: "shm: private, stages",
        access: Access::Attach(Err(PathReason::Configured)),
        path: Path::Staged,
        setting: "none: fixed in the library",
    },
    Choice {
        first: "shm: private, attach",
        then: "shm: private, stages",
        access: Access::Attach(Ok(())),
        path: Path::Staged,
        setting: "STANDPIPE_ATTACH=never",
    },
    Choice {
        first: "tcp: private, chunks",
        then: "tcp: private, stages",
        access: Access::No(PathReason::Network),
        path: Path::Staged,
        setting: "none: fixed in the library",
    },
    Choice {
        first: "tcp: private, stages",
        then: "tcp: private, registered",
        access: Access::No(PathReason::Network),
        path: Path::Registered,
        setting: "STANDPIPE_STRATEGY=firehose, where the program keeps mapped what peers may still transfer (else a put can \
                  end it, or write elsewhere)",
    },
];

#[derive(Debug, Serialize)]
struct Outcome {
    lines: Vec<Line>,
    choices: Vec<Verdict>,
}

/// What one way costs in one direction: `fixed_ns + bytes * ns_per_byte`.
#[derive(Clone, Debug, Serialize)]
struct Line {
    way: &'static str,
    op: &'static str,
    fixed_ns: f64,
    ns_per_byte: f64,
    /// How far the line is from what was measured, at the worst, in percent.
    off_percent: f64,
    /// Bytes, and nanoseconds: medians.
    measured: Vec<(usize, f64)>,
}

/// What came out about one of the choices.
#[derive(Clone, Debug, Serialize)]
struct Verdict {
    op: &'static str,
    first: &'static str,
    then: &'static str,
    /// The library takes the second from so many bytes on; `None`: it does not by itself.
    taken_from_bytes: Option<u64>,
    /// The second is cheaper from so many bytes on, by the lines; `None`: for no size.
    cheaper_from_bytes: Option<u64>,
    /// Perhaps it is before: of less it was not measured.
    or_less: bool,
    /// It is so up to so many only.
    cheaper_to_bytes: Option<u64>,
    /// `None`: it cannot be told, as the two were not measured for the same sizes.
    agrees: Option<bool>,
    setting: &'static str,
}

/// Measures, and writes the report.
///
/// # Errors
/// When a measurement cannot be made, or the results cannot be written.
pub fn run(args: &TuneArgs) -> Result<ExitCode> {
    let output = Output::make(&args.output)?;
    machine::mind_load();
    let has_tcp = network::look_for(Some("tcp"));
    // All of these are measured beside the kernel's own call.
    let attach = match try_attach() {
        Attach::Works => Ok(()),
        Attach::Denied(why) | Attach::Failed(why) => Err(why),
    };
    let is_there = |way: &&Way| match (way.network, way.memory) {
        (SHM, Memory::Heap) => true,
        (SHM, Memory::Private) => attach.is_ok(),
        _ => has_tcp.is_ok() && !args.quick,
    };
    let ways: Vec<&Way> = WAYS.iter().filter(is_there).collect();
    let ops = if args.quick { &[Op::Put][..] } else { &[Op::Put, Op::Get] };
    let runs: usize = ways.iter().map(|way| ops.len() * sizes(way.sizes, args.quick).len()).sum();
    let (bar, mut lines) = (Bar::new(runs, "measurements"), Vec::new());
    for op in ops {
        for way in &ways {
            let mut measured = Vec::new();
            for size in sizes(way.sizes, args.quick) {
                measured.push((size, measure(way, *op, size)?));
                bar.step();
            }
            lines.push(Line::through(way.name, op.name(), measured));
        }
    }
    drop(bar);
    let choices =
        ops.iter().flat_map(|op| CHOICES.iter().filter_map(|choice| verdict(choice, op.name(), &lines)));
    let outcome = Outcome { choices: choices.collect(), lines };
    let no_tcp = has_tcp.err().map(|why| format!("Not measured: tcp. {why}."));
    let no_attach = attach.err().map(|why| format!("Not measured: private memory over shm. {why}."));
    show(args, &outcome, no_tcp.into_iter().chain(no_attach).collect()).deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

fn sizes(sizes: Sizes, quick: bool) -> Vec<usize> {
    const KIB: usize = 1 << 10;
    let (short, long) = match quick {
        true => (&[8, 64 * KIB][..], &[128 * KIB, 1024 * KIB][..]),
        false => (&[8, KIB, 8 * KIB, 64 * KIB][..], &[128 * KIB, 512 * KIB, 1024 * KIB, 4096 * KIB][..]),
    };
    match sizes {
        Sizes::Short => short.to_vec(),
        Sizes::Long => long.to_vec(),
        Sizes::All if quick => vec![short[0], long[1]],
        Sizes::All => [short, long].concat(),
        Sizes::NoWord => [&[16], &short[1..], long].concat(),
    }
}

fn measure(way: &Way, op: Op, size: usize) -> Result<f64> {
    let case = Case { memory: way.memory, ..Case::of(op, size) };
    let network = Transport::parse(way.network).context("a transport")?;
    let row = perf::measure_by(&case, &network, way.settings);
    Ok(row.with_context(|| format!("measuring {} of {size} bytes, {}", op.name(), way.name))?.median_ns)
}

impl Line {
    /// The line with the least squares of relative errors: small sizes count as much as large ones.
    fn through(way: &'static str, op: &'static str, measured: Vec<(usize, f64)>) -> Line {
        let mut sums = [0.0; 5];
        for (bytes, ns) in &measured {
            let (one, bytes) = (1.0 / ns, *bytes as f64 / ns);
            for (sum, term) in sums.iter_mut().zip([one * one, one * bytes, bytes * bytes, one, bytes]) {
                *sum += term;
            }
        }
        let [aa, ab, bb, a, b] = sums;
        let determinant = aa * bb - ab * ab;
        let (fixed, each) = ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant);
        // Neither is negative, whatever noise makes of it.
        let (fixed_ns, ns_per_byte) = match (fixed < 0.0, each < 0.0) {
            (true, _) => (0.0, b / bb),
            (_, true) => (a / aa, 0.0),
            _ => (fixed, each),
        };
        let mut line = Line { way, op, fixed_ns, ns_per_byte, off_percent: 0.0, measured };
        let off = |(bytes, ns): &(usize, f64)| 100.0 * (line.at(*bytes as f64) / ns - 1.0).abs();
        line.off_percent = line.measured.iter().map(off).fold(0.0, f64::max);
        line
    }

    fn at(&self, bytes: f64) -> f64 {
        self.fixed_ns + self.ns_per_byte * bytes
    }

    /// For how many bytes another line is lower: from so many on, and up to so many, if not for all that are
    /// more. `None`: for none.
    fn undercut_by(&self, other: &Line) -> Option<(u64, Option<u64>)> {
        let (fixed, each) = (other.fixed_ns - self.fixed_ns, self.ns_per_byte - other.ns_per_byte);
        match (fixed, each) {
            (fixed, each) if fixed <= 0.0 && each >= 0.0 => (fixed < 0.0 || each > 0.0).then_some((0, None)),
            (fixed, each) if fixed < 0.0 => Some((0, Some((fixed / each) as u64))),
            (fixed, each) if each > 0.0 => Some(((fixed / each).ceil() as u64, None)),
            _ => None,
        }
    }
}

/// How far the place where a choice changes may be from where the lines cross, as a factor: there both cost
/// nearly the same.
const NEAR: f64 = 2.0;

/// No transfer is so long that it would matter.
const MATTERS_BYTES: u64 = 64 << 20;

fn verdict(choice: &Choice, op: &'static str, lines: &[Line]) -> Option<Verdict> {
    let find = |name| lines.iter().find(|line| line.way == name && line.op == op);
    let (first, then) = (find(choice.first)?, find(choice.then)?);
    // Of less one of the two was not measured.
    let least = |line: &Line| line.measured.iter().map(|(bytes, _)| *bytes as u64).min();
    let least = least(first)?.max(least(then)?);
    let range = first
        .undercut_by(then)
        .filter(|(from, to)| *from <= MATTERS_BYTES && to.is_none_or(|to| to >= least));
    let crossed = range.map(|(from, _)| from);
    let (cheaper, or_less) =
        (crossed.map(|bytes| bytes.max(least)), crossed.is_some_and(|bytes| bytes < least));
    let agrees = match (choice.from(), cheaper) {
        (None, cheaper) => Some(cheaper.is_none()),
        // It is taken for all that are more.
        (Some(_), None) => Some(false),
        (Some(_), Some(_)) if range.is_some_and(|(_, to)| to.is_some()) => Some(false),
        (Some(taken), Some(_)) if or_less => (taken > least).then_some(false),
        (Some(taken), Some(cheaper)) => {
            let (taken, cheaper) = (taken as f64, cheaper.max(1) as f64);
            Some(taken <= cheaper * NEAR && cheaper <= taken * NEAR)
        }
    };
    Some(Verdict {
        op,
        first: choice.first,
        then: choice.then,
        taken_from_bytes: choice.from(),
        cheaper_from_bytes: cheaper,
        or_less,
        cheaper_to_bytes: range.and_then(|(_, to)| to),
        agrees,
        setting: choice.setting,
    })
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

fn show(args: &TuneArgs, outcome: &Outcome, missing: Vec<String>) -> Show {
    let count = |agrees| outcome.choices.iter().filter(|verdict| verdict.agrees == agrees).count();
    let (agreeing, unknown) = (count(Some(true)), count(None));
    let quick = if args.quick { " --quick" } else { "" };
    Show {
        heading: "What each way to move bytes costs here",
        lead: "Two processes on two cores; medians. A line through them says what a transfer costs beforehand and what each \
               byte costs; where two lines cross, the other way becomes the cheaper one."
            .to_owned(),
        summary: vec![format!(
            "The library's choice agrees with {agreeing} of {} comparisons; of {unknown} it cannot be told, as the two ways are never \
             taken for the same sizes.",
            outcome.choices.len()
        )],
        figures: ["put", "get"].into_iter().filter_map(|op| figure(op, outcome)).collect(),
        grids: vec![costs(outcome), choices(outcome)],
        findings: missing.into_iter().chain(outcome.choices.iter().filter(|v| v.agrees == Some(false)).map(finding)).collect(),
        numbers: Vec::new(),
        explanations: Vec::new(),
        costs: None,
        seed: None,
        setup: vec![row("stages from", format!("{STAGED_MIN} bytes"))],
        command: format!("standpipe tune{quick}"),
        beside: Vec::new(),
    }
}

/// A power of ten of nanoseconds, as it stands at a chart's side.
fn round(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        _ => format!("{:.0} ms", ns / 1e6),
    }
}

fn figure(op: &'static str, outcome: &Outcome) -> Option<Figure> {
    let points = |line: &Line| line.measured.iter().map(|(bytes, ns)| (*bytes as f64, *ns)).collect();
    let series: Vec<Series> = outcome
        .lines
        .iter()
        .filter(|line| line.op == op)
        .map(|line| Series { name: line.way.to_owned(), points: points(line) })
        .collect();
    (!series.is_empty()).then(|| Figure {
        title: format!("A {op} by each way").into(),
        note: "Lower is better. Chunks end where stages begin.".into(),
        chart: Chart {
            x_label: "bytes",
            y_label: "time of one transfer",
            x_log: true,
            y_log: true,
            y_text: round,
            y_max: None,
            marks: Vec::new(),
            series,
        },
    })
}

fn costs(outcome: &Outcome) -> Grid {
    let cells = |line: &Line| {
        let part = |ns: f64| if ns > 0.0 { nanos(ns) } else { "in the noise".to_owned() };
        let (fixed, per_kib) = (part(line.fixed_ns), part(line.ns_per_byte * 1024.0));
        let gbps =
            if line.ns_per_byte > 0.0 { format!("{:.2}", 1.0 / line.ns_per_byte) } else { "-".to_owned() };
        // Two points lie on a line, whatever they are.
        let off = if line.measured.len() > 2 { format!("{:.0} %", line.off_percent) } else { "-".to_owned() };
        vec![line.op.to_owned(), line.way.to_owned(), fixed, per_kib, gbps, off]
    };
    Grid {
        title: "Costs".to_owned(),
        note: "What a transfer costs at all, and each KiB of it; how far the line is from what was measured, at the worst (-: a \
               line through two points). What came out below nothing is lost in the noise."
            .to_owned(),
        header: ["op", "way", "fixed", "a KiB", "GB/s", "off"].map(str::to_owned).to_vec(),
        rows: outcome.lines.iter().map(cells).collect(),
    }
}

fn choices(outcome: &Outcome) -> Grid {
    let cells = |verdict: &Verdict| {
        vec![
            verdict.op.to_owned(),
            verdict.first.to_owned(),
            verdict.then.to_owned(),
            verdict.taken_from_bytes.map_or("never".to_owned(), bytes),
            cheaper(verdict),
            verdict.agrees.map_or("cannot be told", |agrees| if agrees { "yes" } else { "no" }).to_owned(),
        ]
    };
    Grid {
        title: "Choices".to_owned(),
        note: "From how many bytes on the library takes the second way by itself, and from how many on it is cheaper here. Within a \
               factor of two both cost nearly the same. What is registered was used before: a first use costs more."
            .to_owned(),
        header: ["op", "first", "then", "taken from", "cheaper from", "agrees"].map(str::to_owned).to_vec(),
        rows: outcome.choices.iter().map(cells).collect(),
    }
}

/// From how many bytes on the second way is cheaper.
fn cheaper(verdict: &Verdict) -> String {
    let from = match (verdict.cheaper_from_bytes, verdict.or_less) {
        (None, _) => "never".to_owned(),
        (Some(from), true) => format!("{} or less", bytes(from)),
        (Some(from), false) => bytes(from),
    };
    from + &verdict.cheaper_to_bytes.map_or(String::new(), |to| format!(", to {}", bytes(to)))
}

fn finding(verdict: &Verdict) -> String {
    let Verdict { op, first, then, taken_from_bytes, setting, .. } = verdict;
    let least = if verdict.or_less { ", perhaps for less, too" } else { "" };
    let cheaper = match (verdict.cheaper_from_bytes, verdict.cheaper_to_bytes) {
        (Some(from), Some(to)) => {
            format!("costs less than `{first}` for {} to {}{least}", bytes(from), bytes(to))
        }
        (Some(from), None) => format!("costs less than `{first}` for {} and more{least}", bytes(from)),
        (None, _) => format!("never costs less than `{first}`"),
    };
    let taken = taken_from_bytes
        .map_or("not taken by itself".to_owned(), |from| format!("taken from {} on", bytes(from)));
    format!("{op}: `{then}` {cheaper}, and is {taken}. What changes that: {setting}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fixed: f64, each: f64, noise: f64) -> Line {
        let sizes = [8_usize, 1024, 65_536, 1 << 20];
        let measured = sizes.iter().enumerate().map(|(at, bytes)| {
            let sign = if at % 2 == 0 { 1.0 } else { -1.0 };
            (*bytes, (fixed + each * *bytes as f64) * (1.0 + sign * noise))
        });
        Line::through("a", "put", measured.collect())
    }

    #[test]
    fn a_line_is_found_again() {
        let exact = line(700.0, 0.1, 0.0);
        assert!((exact.fixed_ns - 700.0).abs() < 1e-6 && (exact.ns_per_byte - 0.1).abs() < 1e-9);
        assert!(exact.off_percent < 1e-6);
        let noisy = line(700.0, 0.1, 0.05);
        assert!((noisy.fixed_ns - 700.0).abs() < 40.0 && (noisy.ns_per_byte - 0.1).abs() < 0.01, "{noisy:?}");
        assert!(noisy.off_percent > 1.0 && noisy.off_percent < 11.0);
        let flat = Line::through("a", "put", vec![(8, 100.0), (1024, 90.0)]);
        assert!(flat.ns_per_byte == 0.0 && flat.fixed_ns > 90.0);
        let steep = Line::through("a", "put", vec![(8, 1.0), (1024, 500.0)]);
        assert!(steep.fixed_ns == 0.0 && steep.ns_per_byte > 0.1);
    }

    #[test]
    fn lines_cross_where_they_cost_the_same() {
        let (cheap, fast) = (line(100.0, 1.0, 0.0), line(1100.0, 0.5, 0.0));
        assert!(cheap.undercut_by(&fast).is_some_and(|(from, to)| from.abs_diff(2000) <= 1 && to.is_none()));
        assert!(
            fast.undercut_by(&cheap)
                .is_some_and(|(from, to)| from == 0 && to.is_some_and(|to| to.abs_diff(2000) <= 1))
        );
        assert_eq!(cheap.undercut_by(&line(50.0, 0.5, 0.0)), Some((0, None)));
        assert_eq!(line(50.0, 0.5, 0.0).undercut_by(&cheap), None);
        let same = Line { fixed_ns: 50.0, ..cheap.clone() };
        assert_eq!((cheap.undercut_by(&same), cheap.undercut_by(&cheap)), (Some((0, None)), None));
    }

    #[test]
    fn the_library_is_asked_what_it_takes() {
        let taken: Vec<Option<u64>> = CHOICES.iter().map(Choice::from).collect();
        assert_eq!(taken, [Some(STAGED_MIN), None, Some(STAGED_MIN), None]);
    }

    #[test]
    fn what_is_taken_too_late_or_in_vain_is_told() {
        let of = |way, line: Line| Line { way, ..line };
        let lines = [
            of("tcp: private, chunks", line(10_000.0, 1.0, 0.0)),
            of("tcp: private, stages", line(110_000.0, 0.2, 0.0)),
            of("tcp: private, registered", line(10_000.0, 0.1, 0.0)),
        ];
        let verdicts: Vec<Verdict> =
            CHOICES.iter().filter_map(|choice| verdict(choice, "put", &lines)).collect();
        assert_eq!(verdicts.len(), 2, "of shm nothing was measured");
        assert_eq!(verdicts[0].agrees, Some(true), "{:?}", verdicts[0]);
        assert!(
            verdicts[1].agrees == Some(false)
                && finding(&verdicts[1]).contains("STANDPIPE_STRATEGY=firehose")
        );
        // Cheaper already for sizes of which one of the two was not measured, or only for a while.
        let only =
            |line: Line, at: std::ops::Range<usize>| Line { measured: line.measured[at].to_vec(), ..line };
        let (short, long) =
            (only(lines[0].clone(), 0..3), only(of("tcp: private, stages", line(9e3, 0.2, 0.0)), 3..4));
        let judged = |lines: &[Line]| verdict(&CHOICES[2], "put", lines).expect("measured");
        let both = judged(&[short.clone(), long]);
        assert_eq!((both.agrees, both.cheaper_from_bytes, both.or_less), (None, Some(1 << 20), true));
        let soon_dear = of("tcp: private, stages", line(9e3, 1.001, 0.0));
        assert_eq!(judged(&[short, soon_dear]).agrees, Some(false));
    }

    #[test]
    fn findings_are_sentences() {
        let verdict = Verdict {
            op: "put",
            first: "heap",
            then: "kernel",
            taken_from_bytes: Some(8),
            cheaper_from_bytes: Some(16),
            or_less: true,
            cheaper_to_bytes: Some(32),
            agrees: None,
            setting: "nothing",
        };
        let [eight, sixteen, many] = [8, 16, 32].map(bytes);
        assert_eq!(
            finding(&verdict),
            format!(
                "put: `kernel` costs less than `heap` for {sixteen} to {many}, perhaps for less, too, and is taken from {eight} on. \
                 What changes that: nothing."
            )
        );
        let never =
            finding(&Verdict { cheaper_from_bytes: None, or_less: false, taken_from_bytes: None, ..verdict });
        assert!(
            never.starts_with("put: `kernel` never costs less than `heap`, and is not taken by itself."),
            "{never}"
        );
    }
}

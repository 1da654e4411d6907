//! The page and the table that the check writes.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::environment::Environment;
use super::figures::{Figures, TURNS};
use super::instructions::Counted;
use super::rows::{Contestant, ROWS, Row};
use crate::command::run;

/// Figures of all contestants, by row.
type All = [BTreeMap<usize, Figures>];

fn cells(all: &All) -> impl Iterator<Item = (&'static Row, &'static Contestant, &Figures)> {
    ROWS.iter().zip(all).flat_map(|(row, figures)| {
        figures.iter().map(move |(index, figures)| (row, &row.contestants[*index], figures))
    })
}

/// Nanoseconds, least and most; of a figure entered by hand its own range.
fn numbers(contestant: &Contestant, figures: &Figures) -> Option<[f64; 3]> {
    match contestant {
        Contestant::ByHand(_, [least, most]) => Some([f64::midpoint(*least, *most), *least, *most]),
        _ => figures.spread(),
    }
}

/// Nanoseconds as they can be told apart.
fn shown(ns: f64) -> String {
    if ns < 10.0 { format!("{ns:.2}") } else { format!("{ns:.0}") }
}

/// The figures as text of at most 80 columns.
pub(super) fn table(all: &All) -> String {
    let mut text = format!("{:<33}{:<24}{:>9}{:>14}\n", "work", "by", "ns", "least, most");
    for (row, contestant, figures) in cells(all) {
        let (work, name) = (row.work, contestant.name());
        let end = match numbers(contestant, figures) {
            Some([median, least, most]) => {
                format!("{:>9}{:>14}", shown(median), format!("{}, {}", shown(least), shown(most)))
            }
            None => format!("{:>9}", "skipped"),
        };
        let _ = writeln!(text, "{work:<33}{name:<24}{end}");
    }
    text
}

/// The same for programs.
pub(super) fn json(environment: &Environment, all: &All, counted: &Result<Vec<Counted>, String>) -> Value {
    let rows = cells(all).map(|(row, contestant, figures)| {
        let [median, least, most] = numbers(contestant, figures).map_or([None; 3], |numbers| numbers.map(Some));
        let skipped = match figures {
            Figures::Skipped(why) => Some(why),
            Figures::Taken(_) => None,
        };
        json!({
            "work": row.work, "by": contestant.name(), "median_ns": median, "least_ns": least, "most_ns": most,
            "command": contestant.line(), "skipped": skipped,
        })
    });
    let counted = counted.iter().flatten();
    let counted = counted.map(|one| json!({ "call": one.call, "by_c": one.by_c, "by_rust": one.by_rust }));
    json!({
        "turns": TURNS, "versions": environment.versions(), "rows": rows.collect::<Vec<_>>(),
        "instructions": counted.collect::<Vec<_>>(),
    })
}

/// The page.
pub(super) fn page(environment: &Environment, all: &All, counted: &Result<Vec<Counted>, String>) -> String {
    let mut text = String::from(INTRODUCTION);
    let said = |line: &str| run(line).output().map_or_else(|_| "?".to_owned(), |said| said.trim().to_owned());
    let (date, load) = (said("date +%F"), said("cut -d. -f1 /proc/loadavg"));
    let commit = said("git rev-parse --short HEAD");
    let processor = processor().unwrap_or_else(|| "an unknown processor".to_owned());
    let cores = said("nproc");
    let _ = writeln!(
        text,
        "Run on {date}, of commit {commit}: {processor}, {cores} cores, load average {load}.\n"
    );
    text += "| work | by | median ns | least–most |\n|---|---|---|---|\n";
    for (row, contestant, figures) in cells(all) {
        let (work, name) = (row.work, contestant.name());
        let _ = match (numbers(contestant, figures), figures) {
            (Some([median, least, most]), _) => {
                let [median, least, most] = [median, least, most].map(shown);
                writeln!(text, "| {work} | {name} | {median} | {least}–{most} |")
            }
            (None, Figures::Skipped(why)) => {
                writeln!(text, "| {work} | {name} | *skipped*: {} | |", short(why))
            }
            (None, Figures::Taken(_)) => writeln!(text, "| {work} | {name} | | |"),
        };
    }
    text += INSTRUCTIONS;
    match counted {
        Err(why) => _ = writeln!(text, "*skipped*: {}", short(why)),
        Ok(counted) => {
            text += "| call | by C | by Rust |\n|---|---|---|\n";
            for Counted { call, by_c, by_rust } in counted {
                let _ = writeln!(text, "| `{call}` | {by_c:.0} | {by_rust:.0} |");
            }
        }
    }
    text += "\n## Versions\n\n";
    for version in environment.versions() {
        let _ = writeln!(text, "- {version}");
    }
    text += BY_HAND;
    text += "\n## Commands\n\n```sh\n";
    let mut lines: Vec<String> = Vec::new();
    for (_, contestant, _) in cells(all) {
        lines.extend(contestant.line().filter(|line| !lines.contains(line)));
    }
    text + &lines.join("\n") + "\n```\n"
}

/// The processor's name.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(": ")?.1.trim().to_owned())
}

/// A reason that fits a cell.
fn short(why: &str) -> String {
    let line = why.replace('|', "/");
    line.strip_prefix("standpipe: ").unwrap_or(&line).chars().take(160).collect()
}

const INTRODUCTION: &str = "\
# Peers beside us

`cargo xtask peers` writes this page. It installs peers from package registries into a folder that it removes,
and runs them and us in turns, five times, on the same two cores. Compare only within one run.

A message's time is one way, of a flood: the sender waits for nothing but room. Each turn of each contestant
is the median of many floods of some milliseconds, so that other programs disturb all alike. Handlers do not
look at the payload, unless the work says *copied out*. MPICH keeps 64 sends under way, and iceoryx2
64 samples; NIXL has all puts in one transfer. A limit stands beside
our own rows: [PERF.md](PERF.md) says what it is. With a load average above the cores, read the table as noise.

";

const INSTRUCTIONS: &str = "
## Instructions of one call

Counted by callgrind, in a job of one process, loops and all: `crates/capi/examples/face.c` and `face.rs`. A
message goes there and back. A C function looks at its handle, counts its thread in, and keeps `errno`.

";

const BY_HAND: &str = "\
- GASNet-EX 2025.8, conduit `smp`, which no registry has: entered by hand, of November 2026, from an earlier
  run on a machine of 2 cores. Nobody wrote its command down. Its source is to be had at gasnet.lbl.gov.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_eighty_columns() {
        let figures = |row: &Row| {
            let one = |(index, _)| (index, Figures::Taken(vec![1234.0, 123_456.0, 99_999.0]));
            row.contestants.iter().enumerate().map(one).collect()
        };
        let all: Vec<BTreeMap<usize, Figures>> = ROWS.iter().map(figures).collect();
        let text = table(&all);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("99999"), "the median: {text}");
    }

    #[test]
    fn a_reason_fits_a_cell() {
        assert_eq!(short("standpipe: a | b"), "a / b");
        assert_eq!(short(&"x".repeat(300)).len(), 160);
    }
}

//! What the study shows.

use super::outcome::{Outcome, Point};
use super::plan::Way;
use measure::report::page::{Figure, Grid};
use measure::report::plots::{Chart, Series, short};
use measure::report::show::{Show, row};
use measure::transport::Chosen;
use measure::units::{bytes, grouped};

/// All that there is to show of a run, which this command line repeats.
pub(super) fn show(command: &str, chosen: &Chosen, outcome: &Outcome) -> Show {
    Show {
        heading: "GUPS: random updates of a table in all processes’ heaps",
        lead: format!(
            "{} processes on this machine hold equal parts of a table of 64-bit words in their heaps, and each updates words \
             of the whole table in a random order, that of the HPC Challenge’s RandomAccess: a word is combined with a random \
             number by exclusive or, or for puts replaced by it. Of its updates a process may have at most {} under way. \
             GUPS are thousands of millions of updates a second, of all processes together. After each turn every word was \
             compared with what the same updates, made again by its holder alone, make of it.",
            outcome.ranks,
            grouped(outcome.lookahead as u64)
        ),
        summary: summary(outcome),
        figures: vec![figure(outcome)],
        grids: [Some(grid(outcome)), beside(outcome)].into_iter().flatten().collect(),
        findings: Vec::new(),
        numbers: Vec::new(),
        explanations: Vec::new(),
        costs: None,
        seed: None,
        setup: vec![
            row("build", outcome.build),
            row("processes", outcome.ranks),
            row("reached by", chosen),
            row("rounds, in each of which ways take turns", outcome.rounds),
            row("what stands for a way", "the round in the middle"),
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
    let mut summary = vec![match outcome.errors {
        0 => "Every word of every table was what it must be.".to_owned(),
        errors => format!("WRONG: {} words were not what they must be.", grouped(errors)),
    }];
    for other in &outcome.beside {
        let ours = Way::ALL.into_iter().filter(|way| way.name() == other.way);
        let ours = ours.filter_map(|way| outcome.largest(way)).next();
        summary.push(match (&other.figures, ours) {
            (Some(figures), Some(ours)) => format!(
                "{}, by {}, came to {} GUPS; Standpipe to {}: {:.1} times as many{}.",
                other.program,
                other.way,
                rate(figures.gups),
                rate(ours.gups),
                ours.gups / figures.gups,
                wanted(other.is_rma, ours.gups / figures.gups)
            ),
            _ => {
                format!("{} was skipped: {}.", other.program, other.skipped.as_deref().unwrap_or("no result"))
            }
        });
    }
    summary
}

/// What is wanted beside MPI's one-sided operations, and whether it is so.
fn wanted(is_rma: bool, times: f64) -> &'static str {
    match is_rma {
        false => "",
        true if times >= TIMES_MIN => " (at least 2, as wanted)",
        true => " (BROKEN: less than the 2 wanted)",
    }
}

const TIMES_MIN: f64 = 2.0;

fn figure(outcome: &Outcome) -> Figure {
    let line = |way: Way| Series {
        name: way.name().to_owned(),
        points: outcome
            .points
            .iter()
            .filter(|point| point.way == way.name())
            .map(|point| (point.table_bytes as f64 / f64::from(1 << 20), point.gups))
            .collect(),
    };
    Figure {
        title: "Updates by size of the table".into(),
        note: "Small tables lie in the processor’s caches, large ones do not.".into(),
        chart: Chart {
            x_label: "table (MiB, logarithmic)",
            y_label: "GUPS (logarithmic)",
            x_log: true,
            y_log: true,
            y_text: small,
            y_max: None,
            marks: Vec::new(),
            series: Way::ALL.map(line).into(),
        },
    }
}

/// A number that may be far below one.
fn small(value: f64) -> String {
    if value < 0.01 { format!("{value:.4}") } else { short(value) }
}

/// GUPS, with more digits where there are few.
fn rate(gups: f64) -> String {
    if gups < 0.001 { format!("{gups:.6}") } else { format!("{gups:.4}") }
}

fn grid(outcome: &Outcome) -> Grid {
    let words = |name: &str| {
        let way = Way::ALL.into_iter().find(|way| way.name() == name);
        way.map_or_else(|| name.to_owned(), |way| way.in_words().to_owned())
    };
    let cells = |point: &Point| {
        vec![
            bytes(point.table_bytes),
            words(point.way),
            grouped(point.updates),
            rate(point.gups),
            point.gups_spread.map(rate).join(" to "),
            format!("{:.1} ns", f64::from(outcome.ranks) / point.gups),
            grouped(point.errors),
        ]
    };
    let header = ["table", "updated by", "updates", "GUPS", "slowest to fastest", "an update takes", "wrong"];
    Grid {
        title: "Random updates".to_owned(),
        note: "“An update takes”: the time of one process for one of its updates, on average. “Wrong”: words that are not what \
               they must be."
            .to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: outcome.points.iter().map(cells).collect(),
    }
}

fn beside(outcome: &Outcome) -> Option<Grid> {
    let cells = |other: &super::mpi_references::Beside| match &other.figures {
        Some(figures) => vec![
            other.program.clone(),
            other.way.to_owned(),
            bytes(figures.table_bytes),
            grouped(figures.updates),
            rate(figures.gups),
            figures.gups_spread.map(rate).join(" to "),
            grouped(figures.errors),
        ],
        None => {
            let why = other.skipped.clone().unwrap_or_default();
            let mut cells = vec![other.program.clone(), other.way.to_owned()];
            cells.push(format!("skipped: {why}"));
            cells.resize(7, String::new());
            cells
        }
    };
    (!outcome.beside.is_empty()).then(|| Grid {
        title: "The same by others, on this machine in turns with these".to_owned(),
        note: "“As”: by which way of ours it does so.".to_owned(),
        header: ["program", "as", "table", "updates", "GUPS", "slowest to fastest", "wrong"]
            .map(str::to_owned)
            .to_vec(),
        rows: outcome.beside.iter().map(cells).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::mpi_references::{Beside, Figures};
    use super::super::plan::{Plan, Turn};
    use super::*;

    #[test]
    fn wrong_words_and_programs_that_were_not_run_are_told() {
        let plan = Plan { tables: vec![1 << 10], updates: 4096, rounds: 1, spoil: false, is_shared: true };
        let turn = |way| Turn { words: 1 << 10, way, took_ns: 40_960, wrong: 1 };
        let figures =
            Figures { gups: 0.05, gups_spread: [0.04, 0.06], table_bytes: 8192, updates: 4096, errors: 0 };
        let beside = vec![
            Beside {
                program: "fast".to_owned(),
                way: "batches",
                is_rma: false,
                figures: Some(figures),
                skipped: None,
            },
            Beside {
                program: "none".to_owned(),
                way: "put",
                is_rma: true,
                figures: None,
                skipped: Some("it is not installed".to_owned()),
            },
        ];
        let outcome =
            Outcome::of(&plan, &Chosen::default(), &[Way::ALL.map(turn).into(), Vec::new()], beside);
        let said = summary(&outcome);
        assert_eq!(said[0], "WRONG: 4 words were not what they must be.");
        assert!(said[1].ends_with("to 0.1000: 2.0 times as many."), "{}", said[1]);
        assert_eq!(
            [(true, 1.9), (true, 2.0), (false, 1.0)].map(|(is_rma, times)| wanted(is_rma, times)),
            [" (BROKEN: less than the 2 wanted)", " (at least 2, as wanted)", ""]
        );
        assert_eq!([0.06, 0.001, 0.000_095].map(rate), ["0.0600", "0.0010", "0.000095"]);
        assert_eq!(said[2], "none was skipped: it is not installed.");
    }
}

//! The tables of a pull beside its alternatives, for people, and the sentences under them.

use super::{
    outcome::Outcome,
    worth::{Beside, Pass, WithoutPulling},
};
use measure::report::page::Grid;
use measure::units::{counted, grouped, micros};

/// The tables: the ways to have a block, and the passes with pulling and without. None where nothing was
/// measured.
#[must_use]
pub(crate) fn grids(outcome: &Outcome) -> Vec<Grid> {
    let ways = outcome.yardsticks.as_ref().map(|beside| ways(outcome, beside));
    ways.into_iter().chain(outcome.without_pulling.as_ref().map(passes)).collect()
}

/// A block by each way to have it.
fn ways(outcome: &Outcome, beside: &Beside) -> Grid {
    let row = |what: &str, us: f64| vec![what.to_owned(), micros(us), times(us / beside.pull_us)];
    let mut rows = vec![
        row("one memcpy of the same bytes", beside.memcpy_us),
        row("a pull, one block again and again", beside.pull_us),
        row("a pull, in the replay", outcome.pull_p50_us),
        row("a TCP socket on this host", beside.socket_us),
        row("making it (as set)", beside.make_us),
    ];
    if outcome.pulls == 0 {
        rows.remove(2);
    }
    Grid {
        title: "A block, by each way to have it".to_owned(),
        note: said(outcome, beside).join(" "),
        header: ["way", "median", "by the first pull"].map(str::to_owned).to_vec(),
        rows,
    }
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "–".to_owned() }
}

/// What the figures say, in sentences.
fn said(outcome: &Outcome, beside: &Beside) -> Vec<String> {
    let mut said = vec![format!(
        "The owner keeps {:.0} % of its rate of filling blocks while a peer pulls from it without a pause.",
        100.0 * beside.owner_keeps
    )];
    if beside.pull_us >= beside.make_us {
        said.push("Making a block takes less than a pull: such blocks are better made.".to_owned());
    }
    said.extend(two_times(outcome, beside));
    said
}

/// Times a quiet pull from which on one in the replay counts as slower.
const SLOWER: f64 = 1.25;
/// Share of a pull's time above which its processor time counts as nearly all of it.
const NEARLY_ALL: f64 = 0.8;

/// What the two times of a pull are, and why they differ. None without pulls in the replay.
fn two_times(outcome: &Outcome, beside: &Beside) -> Option<String> {
    if outcome.pulls == 0 {
        return None;
    }
    let workers = counted(outcome.workers as u64, "worker");
    let why = if outcome.pull_p50_us <= SLOWER * beside.pull_us {
        "In this run that makes little difference.".to_owned()
    } else {
        let waits = match outcome.pull_processor_p50_us >= NEARLY_ALL * outcome.pull_p50_us {
            true => "It hardly waits.",
            false => "The rest it waits, mostly for a core.",
        };
        let processor = micros(outcome.pull_processor_p50_us);
        format!(
            "There the puller needs {processor} of processor time, as the caches hold these blocks no more. {waits}"
        )
    };
    Some(format!(
        "The first pull is of one block into the same buffers, before the replay, while two workers run. The one in \
         the replay is of many blocks, written a while ago, while {workers} run. {why}"
    ))
}

/// The passes over the first requests, in their order.
fn passes(without: &WithoutPulling) -> Grid {
    let row = |pass: &Pass| {
        let kind = if pass.pulling { "with pulling" } else { "without" };
        vec![kind.to_owned(), format!("{:.2} s", pass.seconds), grouped(pass.made), grouped(pass.pulls)]
    };
    Grid {
        title: format!("The first {} requests, in turns", grouped(without.requests)),
        note: "Each pass had new processes with empty stores, so that both kinds are as cold. Its workers compared no \
               bytes: only this study does that. Without pulling, a worker keeps its own copy of each block that it \
               had to make."
            .to_owned(),
        header: ["pass", "time", "blocks made", "pulled"].map(str::to_owned).to_vec(),
        rows: without.passes.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::{
        outcome::Record,
        worker_lines::{Pull, Tick, Yardsticks},
    };

    fn outcome(make_us: f64, took_us: u64, processor_us: u64) -> Outcome {
        let measured = Yardsticks {
            pull_ns: 300_000.0,
            memcpy_ns: 100_000.0,
            socket_ns: 900_000.0,
            made_alone: 200.0,
            made_pulled: 190.0,
        };
        let pull = Pull {
            owner: 0,
            took_ns: 1000 * took_us,
            processor_ns: 1000 * processor_us,
            bytes: 1,
            computing: true,
        };
        let mut record = Record { yardsticks: Some(measured), make_us, ..Record::new(2) };
        record.ticks[1] = vec![Tick { pulls: vec![pull], ..Tick::default() }];
        Outcome::of(&record)
    }

    fn ways_of(outcome: &Outcome) -> Grid {
        grids(outcome).into_iter().next().expect("measured")
    }

    #[test]
    fn the_words_follow_the_figures() {
        let table = ways_of(&outcome(3000.0, 700, 690));
        let ratios = table.rows.iter().map(|row| row[2].clone()).collect::<Vec<_>>();
        assert_eq!(ratios, ["0.33", "1.00", "2.33", "3.00", "10.00"]);
        assert!(table.note.contains("keeps 95 %") && !table.note.contains("better made"), "{}", table.note);
        let text = ways_of(&outcome(200.0, 700, 690)).note;
        assert!(text.contains("better made"), "{text}");
    }

    #[test]
    fn both_times_of_a_pull_are_told_with_the_reason() {
        let note = |took_us, processor_us| ways_of(&outcome(3000.0, took_us, processor_us)).note;
        let text = note(700, 690);
        assert!(text.contains("690 µs of processor time") && text.contains("hardly waits"), "{text}");
        assert!(note(700, 400).contains("mostly for a core"));
        assert!(note(320, 310).contains("little difference"));
        let none = Outcome { pulls: 0, ..outcome(3000.0, 700, 690) };
        let table = ways_of(&none);
        assert!(table.rows.len() == 4 && !table.note.contains("The first pull"), "{}", table.note);
    }

    #[test]
    fn each_pass_is_told() {
        let pass =
            |pulling, seconds| Pass { pulling, seconds, made: 9, pulls: 3, pull_processor_seconds: 0.0 };
        let without_pulling = WithoutPulling::of(10, vec![pass(false, 2.0), pass(true, 3.0)]);
        let outcome = Outcome { without_pulling, ..outcome(3000.0, 700, 690) };
        let table = grids(&outcome).pop().expect("measured");
        assert_eq!(table.rows, [["without", "2.00 s", "9", "3"], ["with pulling", "3.00 s", "9", "3"]]);
    }
}

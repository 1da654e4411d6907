//! What a run of a kernel came to.

use std::{collections::BTreeMap, path::PathBuf};

use comfy_table::CellAlignment;
use serde::Serialize;
use sim::recording::Totals;

use super::{
    keys::{self, Block},
    plan::Kernel,
    product::{Method, Verdict},
    rank_lines::{Done, RankResult},
};
use measure::{
    table,
    units::{bytes, grouped, micros},
};

/// The run in numbers; `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Outcome {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Ranks it ran on.
    pub ranks: usize,
    /// Its parameters.
    pub parameters: BTreeMap<String, u64>,
    /// Puts of all ranks.
    pub puts: u64,
    /// Bytes put by all ranks.
    pub bytes: u64,
    /// Time from the first barrier to the last, in seconds.
    pub seconds: f64,
    /// Mean time of one put, in microseconds. Where there are more ranks than cores, waiting for a core is
    /// part of it.
    pub put_latency_us: f64,
    /// Bytes by how they were put.
    pub mechanisms: BTreeMap<String, u64>,
    /// Whether the result is right.
    pub verified: bool,
    /// How that was found out.
    pub verified_by: &'static str,
    /// What is wrong with the result.
    pub fault: Option<String>,
    /// The recording, if there is one.
    pub trace: Option<Recording>,
}

/// A recording that was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Recording {
    /// The file.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Steps in it.
    pub steps: u64,
    /// Processor time between the steps of all ranks, in seconds.
    pub compute_seconds: f64,
}

impl Recording {
    /// A recording of `bytes` in `file`.
    #[must_use]
    pub(super) fn new(file: PathBuf, bytes: u64, totals: Totals) -> Self {
        Self { file, bytes, steps: totals.steps, compute_seconds: totals.compute_ns as f64 / 1e9 }
    }
}

impl Outcome {
    /// What all ranks, in order, said of `kernel`.
    #[must_use]
    pub(super) fn of(kernel: &Kernel, ranks: &[Done], trace: Option<Recording>) -> Self {
        let sum = |of: fn(&Done) -> u64| ranks.iter().map(of).sum::<u64>();
        let puts = sum(|done| done.puts);
        let mut mechanisms = BTreeMap::new();
        for (name, bytes) in ranks.iter().flat_map(|done| &done.mechanisms) {
            *mechanisms.entry(name.clone()).or_default() += bytes;
        }
        let (verified_by, fault) = judge(ranks);
        Self {
            kernel: kernel.name(),
            ranks: ranks.len(),
            parameters: kernel.parameters(),
            puts,
            bytes: sum(|done| done.bytes),
            seconds: ranks.iter().map(|done| done.run_ns).max().unwrap_or(0) as f64 / 1e9,
            put_latency_us: sum(|done| done.put_ns) as f64 / 1e3 / puts.max(1) as f64,
            mechanisms,
            verified: fault.is_none(),
            verified_by,
            fault,
            trace,
        }
    }

    /// The numbers as a table.
    #[must_use]
    pub(super) fn table(&self) -> table::Table {
        let mut table = table::plain(&[self.kernel, ""]);
        table.add_rows(self.rows());
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        table
    }

    fn rows(&self) -> Vec<[String; 2]> {
        let row = |name: &str, value: String| [name.to_owned(), value];
        let parameter = |name| grouped(self.parameters.get(name).copied().unwrap_or(1));
        let mut rows = vec![row("ranks", self.ranks.to_string()), row("size", parameter("size"))];
        rows.push(row("rounds", parameter("rounds")));
        rows.push(row("puts", format!("{}, of up to {} bytes", grouped(self.puts), parameter("put-bytes"))));
        rows.push(row("bytes put", bytes(self.bytes)));
        rows.extend(self.mechanisms.iter().map(|(name, count)| row(&format!("  by {name}"), bytes(*count))));
        rows.push(row("seconds", format!("{:.2}", self.seconds)));
        rows.push(row(
            "mean put latency",
            if self.puts > 0 { micros(self.put_latency_us) } else { "–".to_owned() },
        ));
        rows.push(row(
            "verified",
            match &self.fault {
                None => format!("yes: {}", self.verified_by),
                Some(fault) => format!("NO: {fault}"),
            },
        ));
        if let Some(trace) = &self.trace {
            let steps = format!("{} steps, {}", grouped(trace.steps), bytes(trace.bytes));
            rows.push(row("recorded", format!("{}: {steps}", trace.file.display())));
            rows.push(row("computing, all ranks", format!("{:.2} s", trace.compute_seconds)));
        }
        rows
    }
}

/// How the ranks' result was verified, and what is wrong with it.
fn judge(ranks: &[Done]) -> (&'static str, Option<String>) {
    let verdicts: Vec<Verdict> = ranks
        .iter()
        .filter_map(|done| match done.result {
            RankResult::Product(verdict) => Some(verdict),
            RankResult::Sorted(_) => None,
        })
        .collect();
    let Some(verdict) = verdicts.first() else {
        return ("in order, and the same keys as before", unsorted(ranks));
    };
    let by = match verdict.by {
        Method::NaiveProduct => "every entry equals the naive product's",
        Method::RandomVectors => "times random vectors it equals the factors' products with them",
    };
    let wrong: u64 = verdicts.iter().map(|verdict| verdict.wrong_rows).sum();
    (by, (wrong > 0).then(|| format!("{wrong} rows of the ranks' blocks are wrong")))
}

/// What is wrong with the first round that did not sort.
fn unsorted(ranks: &[Done]) -> Option<String> {
    let of = |done: &Done, round: usize| match &done.result {
        RankResult::Sorted(rounds) => rounds.get(round).copied(),
        RankResult::Product(_) => None,
    };
    let blocks = |round| ranks.iter().filter_map(|done| of(done, round)).collect::<Vec<Block>>();
    (0..).map(blocks).take_while(|blocks| !blocks.is_empty()).find_map(|blocks| keys::fault(&blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::plan::{BitonicPlan, CannonPlan};

    fn done(result: RankResult) -> Done {
        let mechanisms = [("cma".to_owned(), 16)].into();
        Done { puts: 2, bytes: 16, put_ns: 3000, run_ns: 5, mechanisms, result, arrays: vec![], steps: 0 }
    }

    #[test]
    fn a_wrong_sort_of_any_round_is_told() {
        let block = |first, last, hash_after| Block {
            keys: 2,
            first,
            last,
            in_order: true,
            hash_before: 9,
            hash_after,
        };
        let kernel = Kernel::Bitonic(BitonicPlan::new(2, 4, 8, 2).expect("it fits"));
        let outcome = |low: Block, high: Block| {
            let right = [block(0, 1, 8), block(1, 2, 10)];
            let ranks = [vec![right[0], low], vec![right[1], high]];
            Outcome::of(&kernel, &ranks.map(|blocks| done(RankResult::Sorted(blocks))), None)
        };
        let right = outcome(block(3, 4, 10), block(5, 6, 8));
        assert_eq!((right.verified, right.puts, right.bytes, right.put_latency_us), (true, 4, 32, 1.5));
        assert_eq!(right.mechanisms["cma"], 32);
        assert!(!outcome(block(3, 4, 9), block(5, 6, 8)).verified, "other keys");
        assert!(!outcome(block(3, 6, 9), block(5, 6, 9)).verified, "not in order");
    }

    #[test]
    fn a_wrong_row_of_any_rank_is_told() {
        let kernel = Kernel::Cannon(CannonPlan::new(4, 4, 8, 1).expect("it fits"));
        let ranks = [0, 0, 2, 0].map(|wrong_rows| Verdict { wrong_rows, by: Method::NaiveProduct });
        let outcome = Outcome::of(&kernel, &ranks.map(|verdict| done(RankResult::Product(verdict))), None);
        assert_eq!(outcome.fault.as_deref(), Some("2 rows of the ranks' blocks are wrong"));
        assert!(outcome.table().text(table::Layout::FILE).contains("NO: 2 rows"));
    }
}

//! The same updates by others, where they are installed: the HPC Challenge's own MPIRandomAccess, and MPI's
//! one-sided operations, as Debian's Open MPI and MPICH have them or whichever MPIs are named. They take
//! turns with ours.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use super::hpcc;
use super::other_programs::{Asked, Ran, found};
use super::rma::Rma;
use measure::signals;

/// What another program came to, or why it was not run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Beside {
    /// The program, and what it runs on.
    pub(super) program: String,
    /// How it updates: a name of ours.
    pub(super) way: &'static str,
    /// Whether it is by MPI's one-sided operations.
    #[serde(skip)]
    pub(super) is_rma: bool,
    /// What it came to.
    #[serde(flatten)]
    pub(super) figures: Option<Figures>,
    /// Why there is nothing.
    pub(super) skipped: Option<String>,
}

/// What a program came to in all its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Of the round in the middle.
    pub(super) gups: f64,
    /// Of the slowest round, and the fastest.
    pub(super) gups_spread: [f64; 2],
    pub(super) table_bytes: u64,
    /// Of a round.
    pub(super) updates: u64,
    /// Words that it found wrong, in all rounds.
    pub(super) errors: u64,
}

impl Figures {
    /// Of all rounds, if there was one.
    fn of(rounds: &[Ran]) -> Option<Figures> {
        let mut rates: Vec<f64> = rounds.iter().map(|ran| ran.gups).collect();
        rates.sort_by(f64::total_cmp);
        let first = rounds.first()?;
        Some(Figures {
            // Of an even number the faster of the two in the middle, as of ours.
            gups: rates[rates.len() / 2],
            gups_spread: [rates[0], rates[rates.len() - 1]],
            table_bytes: first.table_bytes,
            updates: first.updates,
            errors: rounds.iter().map(|ran| ran.errors).sum(),
        })
    }
}

/// The other programs of a run, with what they came to so far.
pub(super) struct Others {
    asked: Asked,
    all: Vec<Other>,
}

struct Other {
    /// What it is called.
    program: String,
    is_rma: bool,
    /// How it is run, or why it is not.
    way_to_run: Result<Runs, String>,
    /// By which ways of ours it updates, with what it came to in each round.
    came: Vec<(&'static str, Vec<Ran>)>,
}

enum Runs {
    Hpcc,
    Rma(Rma),
}

impl Runs {
    fn run(&self, asked: Asked) -> Result<Vec<(&'static str, Ran)>> {
        match self {
            Runs::Hpcc => Ok(vec![("batches", hpcc::run(asked)?)]),
            Runs::Rma(rma) => {
                // No longer than it must, but of less, beginning and ending would be what is measured.
                let updates = (asked.updates / FEWER).max(asked.updates.min(ENOUGH));
                Ok(rma.run(Asked { updates, ..asked })?.into())
            }
        }
    }
}

/// Debian's MPIs: their names, compilers, and packages.
const DEBIANS: [(&str, &str, &str); 2] = [
    ("Open MPI", "mpicc.openmpi", "openmpi-bin and libopenmpi-dev"),
    ("MPICH", "mpicc.mpich", "mpich and libmpich-dev"),
];

/// Updates by MPI's one-sided operations may be many times slower than ours, and fewer are enough for a rate.
const FEWER: u64 = 8;

/// But no fewer than these, if there are so many.
const ENOUGH: u64 = 1 << 16;

impl Others {
    /// Those that there are, made ready: hpcc, and the MPIs of these compilers, or of none Debian's.
    pub(super) fn prepare(asked: Asked, compilers: &[PathBuf]) -> Others {
        let hpcc = Other {
            program: "hpcc MPIRandomAccess".to_owned(),
            is_rma: false,
            way_to_run: Ok(Runs::Hpcc),
            came: vec![("batches", Vec::new())],
        };
        let mut all = vec![hpcc];
        all.extend(
            compilers.iter().map(|compiler| by_rma(&compiler.display().to_string(), Rma::compiled(compiler))),
        );
        if compilers.is_empty() {
            all.extend(DEBIANS.map(|(name, compiler, packages)| {
                let missing = || format!("it is not installed (Debian's packages {packages})");
                let compiler = found(&[compiler]).with_context(missing);
                by_rma(name, compiler.and_then(|compiler| Rma::compiled(&compiler).with_context(missing)))
            }));
        }
        Others { asked, all }
    }

    /// One round of each. Who fails has no more.
    pub(super) fn round(&mut self) {
        for other in &mut self.all {
            let Ok(runs) = &other.way_to_run else { continue };
            match runs.run(self.asked) {
                Ok(ran) => {
                    for ((_, rounds), (_, ran)) in other.came.iter_mut().zip(ran) {
                        rounds.push(ran);
                    }
                }
                Err(error) => other.way_to_run = Err(skipped(&other.program, &error)),
            }
        }
    }

    /// What all have come to.
    pub(super) fn told(self) -> Vec<Beside> {
        self.all.into_iter().flat_map(Other::told).collect()
    }
}

impl Other {
    fn told(self) -> Vec<Beside> {
        let beside = |way, figures, skipped| Beside {
            program: self.program.clone(),
            way,
            is_rma: self.is_rma,
            figures,
            skipped,
        };
        match &self.way_to_run {
            Ok(_) => {
                let figures = |(way, rounds): &(&'static str, Vec<Ran>)| {
                    Some(beside(way, Some(Figures::of(rounds)?), None))
                };
                self.came.iter().filter_map(figures).collect()
            }
            Err(why) => vec![beside(self.came[0].0, None, Some(why.clone()))],
        }
    }
}

/// An MPI's one-sided operations, by a name for where it cannot give its own.
fn by_rma(name: &str, rma: Result<Rma>) -> Other {
    let name = format!("{}’s RMA", rma.as_ref().map_or(name, |rma| &rma.library));
    let way_to_run = rma.map(Runs::Rma).map_err(|error| skipped(&name, &error));
    let came = vec![("put", Vec::new()), ("atomic", Vec::new())];
    Other { program: name, is_rma: true, way_to_run, came }
}

/// Says that a program is skipped, and gives why.
fn skipped(program: &str, error: &anyhow::Error) -> String {
    signals::say(&format!("{program} is skipped: {error:#}"));
    format!("{error:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_in_the_middle_counts_and_all_wrong_words() {
        let ran = |gups, errors| Ran { gups, table_bytes: 8192, updates: 99, errors };
        let figures = Figures::of(&[ran(0.3, 1), ran(0.1, 0), ran(0.2, 2)]).expect("three rounds");
        assert_eq!((figures.gups, figures.gups_spread, figures.errors), (0.2, [0.1, 0.3], 3));
        assert_eq!(Figures::of(&[ran(0.1, 0), ran(0.2, 0)]).map(|figures| figures.gups), Some(0.2));
        assert_eq!(Figures::of(&[]), None);
    }

    #[test]
    fn what_is_not_there_is_skipped_with_its_reason() {
        let asked = Asked { ranks: 1, words: 1024, updates: 1024 };
        let none = by_rma("none", Err(anyhow::anyhow!("no such file").context("it is not there")));
        let mut others = Others { asked, all: vec![none] };
        others.round();
        let told = others.told();
        assert_eq!((told.len(), told[0].program.as_str(), told[0].way), (1, "none’s RMA", "put"));
        assert_eq!(told[0].skipped.as_deref(), Some("it is not there: no such file"));
        assert!(told[0].is_rma);
    }
}

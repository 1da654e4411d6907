//! Peers beside us: the same work in turns, in one run, on the same two cores. Peers come from package
//! registries into a folder that goes with the check; `docs/PEERS.md` has the result.

mod environment;
mod figures;
mod instructions;
mod page;
mod rows;

use std::collections::BTreeMap;

use self::environment::Environment;
use self::figures::{Figures, TURNS};
use self::rows::{ROWS, Row};
use crate::command::{Failure, root, run};
use crate::outcome::Outcome;

/// The page that it writes.
const PAGE: &str = "docs/PEERS.md";

/// Measures, and writes the page. How fast anybody is never fails.
pub(crate) fn peers(json: bool) -> Outcome {
    measure(json).into()
}

fn measure(json: bool) -> Result<(), Failure> {
    run("cargo build --release --package standpipe-cli").status()?;
    // Outside the tree, as a wheel brings a thousand files.
    let folder = tempfile::tempdir().map_err(|error| Failure(format!("no folder: {error}")))?;
    let environment = Environment::install(folder.path());
    let mut all = Vec::new();
    for (index, row) in ROWS.iter().enumerate() {
        eprintln!("\n== {} of {}: {}", index + 1, ROWS.len(), row.work);
        all.push(in_turns(row, &environment));
    }
    let counted = instructions::count(&environment);
    let page = page::page(&environment, &all, &counted);
    std::fs::write(root().join(PAGE), page).map_err(|error| Failure(format!("{PAGE}: {error}")))?;
    if json {
        println!("{}", page::json(&environment, &all, &counted));
    } else {
        println!("\n{}\n{PAGE} has the commands and instructions, too.", page::table(&all));
    }
    Ok(())
}

/// All contestants of a row, so many times in turns.
fn in_turns(row: &Row, environment: &Environment) -> BTreeMap<usize, Figures> {
    let mut figures: BTreeMap<usize, Figures> = BTreeMap::new();
    for turn in 1..=TURNS {
        let mut said = rows::Said::new();
        for (index, contestant) in row.contestants.iter().enumerate() {
            let figures = figures.entry(index).or_insert_with(|| Figures::Taken(Vec::new()));
            let Figures::Taken(taken) = figures else { continue };
            match contestant.measure(environment, &mut said) {
                Ok(ns) => taken.push(ns),
                Err(why) => {
                    eprintln!("{}: skipped: {why}", contestant.name());
                    *figures = Figures::Skipped(why);
                }
            }
        }
        eprintln!("turn {turn} of {TURNS}");
    }
    figures
}

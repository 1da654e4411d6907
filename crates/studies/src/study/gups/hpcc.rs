//! The HPC Challenge's own MPIRandomAccess, as Debian has it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::other_programs::{Asked, PATIENCE, Ran, Started, found};
use measure::scratch;
use measure::signals::Leftover;

/// Runs it once.
pub(super) fn run(asked: Asked) -> Result<Ran> {
    let hpcc = found(&["hpcc"]).context("it is not installed (Debian's package hpcc)")?;
    let mpirun = found(&["mpirun.openmpi", "mpirun"]).context("there is no mpirun (Debian's openmpi-bin)")?;
    let folder = scratch::folder().context("hpcc needs a folder")?;
    Leftover::Folder(folder.path().to_owned()).note();
    fs::write(folder.path().join("hpccinf.txt"), input(asked.ranks, asked.words)).context("hpcc's input")?;
    let mut command = Command::new(mpirun);
    command.args(["-n", &asked.ranks.to_string()]).arg(hpcc).current_dir(folder.path());
    // What a launcher that is killed leaves behind goes with the folder.
    command.env("TMPDIR", folder.path());
    let mut started = Started::start(&mut command, None)?;
    let said = folder.path().join("hpccoutf.txt");
    let begun = Instant::now();
    // It is the first of hpcc's benchmarks; the others are not waited for.
    while section(&said).is_none() {
        if started.has_ended()? && section(&said).is_none() {
            bail!("it ended before its result");
        }
        if begun.elapsed() > PATIENCE {
            bail!("it took longer than {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
    drop(started);
    parsed(&section(&said).unwrap_or_default()).context("its output has another form than that of hpcc 1.5")
}

/// hpcc's input: the table has as many words as the largest power of two that the matrix has entries, or
/// fewer.
fn input(ranks: u32, words: u64) -> String {
    let order = words.isqrt() + u64::from(words.isqrt().pow(2) < words);
    format!(
        "input\nof standpipe-study gups\nHPL.out\n8\n1\n{order}\n1\n80\n0\n1\n1\n{ranks}\n16.0\n1\n2\n1\n4\n1\n2\n1\n1\n1\n1\n\
         1\n1\n2\n64\n0\n0\n1\n8\n#\n0\n1200\n0\n40\n"
    )
}

/// What hpcc has said of the benchmark, once it is done with it.
fn section(file: &Path) -> Option<String> {
    let said = fs::read_to_string(file).ok()?;
    let (_, said) = said.split_once("Begin of MPIRandomAccess section.")?;
    Some(said.split_once("End of MPIRandomAccess section.")?.0.to_owned())
}

fn parsed(said: &str) -> Option<Ran> {
    let after = |what: &str| {
        let rest = &said[said.find(what)? + what.len()..];
        rest.split_whitespace().next()
    };
    let gups = said.lines().find_map(|line| line.split_once(" Billion(10^9) Updates    per second"))?.0;
    let table = said.lines().find_map(|line| line.strip_prefix("Total Main table size = "))?;
    let words: u64 = table.split(" = ").nth(1)?.split_whitespace().next()?.parse().ok()?;
    Some(Ran {
        gups: gups.trim().parse().ok()?,
        table_bytes: words * 8,
        updates: after("Number of updates EXECUTED = ")?.parse().ok()?,
        errors: after("Found ")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\nRunning on 2 processors (PowerofTwo)\nTotal Main table size = 2^23 = 8388608 words\n\
        PE Main table size = 2^22 = 4194304 words/PE\nDefault number of updates (RECOMMENDED) = 33554432\n\
        Number of updates EXECUTED = 33554432 (for a TIME BOUND of 60.00 secs)\n\
        Real time used = 5.513018 seconds\n0.006086399 Billion(10^9) Updates    per second [GUP/s]\n\
        0.003043200 Billion(10^9) Updates/PE per second [GUP/s]\nFound 3 errors in 8388608 locations (passed).\n";

    #[test]
    fn what_hpcc_says_is_understood_and_what_it_does_not_say_is_not_made_up() {
        let figures = Ran { gups: 0.006_086_399, table_bytes: 64 << 20, updates: 33_554_432, errors: 3 };
        assert_eq!(parsed(SAID), Some(figures));
        for line in ["Found 3", "EXECUTED", "Billion(10^9) Updates  ", "Total Main"] {
            assert_eq!(parsed(&SAID.replace(line, "?")), None, "without {line}");
        }
    }

    #[test]
    fn hpccs_matrix_has_as_many_entries_as_the_table_words() {
        let order = |words| input(2, words).lines().nth(5).and_then(|line| line.parse::<u64>().ok());
        assert_eq!((order(1 << 22), order(1 << 21)), (Some(2048), Some(1449)));
    }
}

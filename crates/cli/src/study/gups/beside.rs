//! The same updates by others, where they are installed: the HPC Challenge's own MPIRandomAccess, and MPI's one-sided
//! operations as Open MPI and MPICH have them.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::signals::{self, Leftover};

/// What another program came to, or why it was not run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Beside {
    /// The program, and what it runs on.
    pub(super) program: &'static str,
    /// How it updates: a name of ours.
    pub(super) way: &'static str,
    /// What it came to.
    #[serde(flatten)]
    pub(super) figures: Option<Figures>,
    /// Why there is nothing.
    pub(super) skipped: Option<String>,
}

/// What a program came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) gups: f64,
    pub(super) table_bytes: u64,
    pub(super) updates: u64,
    /// Words that it found wrong.
    pub(super) errors: u64,
}

impl Beside {
    /// Whether it is by MPI's one-sided operations.
    pub(super) fn is_rma(&self) -> bool {
        MPIS.iter().any(|mpi| mpi.name == self.program)
    }
}

/// What hpcc calls the benchmark.
const HPCC: &str = "hpcc MPIRandomAccess";

/// As long as another program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An MPI, with the names of its compiler and its launcher in `PATH`.
struct Mpi {
    name: &'static str,
    compiler: &'static str,
    launcher: &'static [&'static str],
    packages: &'static str,
}

const MPIS: [Mpi; 2] = [
    Mpi {
        name: "Open MPI’s RMA",
        compiler: "mpicc.openmpi",
        launcher: &["mpirun.openmpi"],
        packages: "openmpi-bin and libopenmpi-dev",
    },
    Mpi {
        name: "MPICH’s RMA",
        compiler: "mpicc.mpich",
        launcher: &["mpiexec.mpich", "mpiexec.hydra"],
        packages: "mpich and libmpich-dev",
    },
];

/// Updates by MPI's one-sided operations are many times slower than ours, and fewer are enough for a rate.
const FEWER: u64 = 64;

/// But no fewer than these, if there are so many: of less, beginning and ending would be what is measured.
const ENOUGH: u64 = 1 << 16;

/// Runs all that is installed, with so many processes, a table of so many words, and where they can be told with so many
/// updates and rounds.
pub(super) fn run(ranks: u32, words: u64, updates: u64, rounds: u32) -> Vec<Beside> {
    let mut all = vec![told(HPCC, "batches", hpcc(ranks, words))];
    for mpi in &MPIS {
        match rma(mpi, ranks, words, (updates / FEWER).max(updates.min(ENOUGH)), rounds) {
            Ok(figures) => all.extend(figures.map(|(way, figures)| Beside {
                program: mpi.name,
                way,
                figures: Some(figures),
                skipped: None,
            })),
            Err(error) => all.push(told(mpi.name, "put", Err(error))),
        }
    }
    all
}

/// Compiles and runs the same updates by an MPI's one-sided operations.
fn rma(mpi: &Mpi, ranks: u32, words: u64, updates: u64, rounds: u32) -> Result<[(&'static str, Figures); 2]> {
    let missing = || format!("it is not installed (Debian's packages {})", mpi.packages);
    let compiler = found(&[mpi.compiler]).with_context(missing)?;
    let launcher = found(mpi.launcher).with_context(missing)?;
    let folder = tempfile::tempdir().context("a folder for it")?;
    Leftover::Folder(folder.path().to_owned()).note();
    let [source, program, said] = ["rma.c", "rma", "said"].map(|name| folder.path().join(name));
    fs::write(&source, include_str!("rma.c")).context("its source")?;
    let mut compile = Command::new(compiler);
    compile.arg("-O2").arg("-o").arg(&program).arg(&source);
    await_end(Started::start(&mut compile, None)?, PATIENCE)
        .with_context(|| format!("compiling for it ({})", missing()))?;
    let mut command = Command::new(launcher);
    command.args(["-n", &ranks.to_string()]).arg(&program);
    command.args([words.to_string(), updates.to_string(), rounds.to_string()]).current_dir(folder.path());
    command.env("TMPDIR", folder.path());
    let out = File::create(&said).context("a file for what it says")?;
    await_end(Started::start(&mut command, Some(out))?, PATIENCE)?;
    let said = fs::read_to_string(&said).context("what it said")?;
    let figures = |way| line_of(&said, way, words, updates).map(|figures| (way, figures));
    Ok([figures("put").context("it said nothing of puts")?, figures("atomic").context("nor of accumulates")?])
}

/// What our own program for MPI has said of a way: its name, GUPS and wrong words.
fn line_of(said: &str, way: &str, words: u64, updates: u64) -> Option<Figures> {
    let mut parts = said.lines().find_map(|line| line.strip_prefix(way))?.split_whitespace();
    let (gups, errors) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Figures { gups, table_bytes: words * 8, updates, errors })
}

/// Waits for a program's end.
fn await_end(mut started: Started, patience: Duration) -> Result<()> {
    let begun = Instant::now();
    loop {
        match started.0.try_wait().context("waiting for it")? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("it ended with {status}"),
            None if begun.elapsed() > patience => bail!("it took longer than {} s", patience.as_secs()),
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn told(program: &'static str, way: &'static str, came: Result<Figures>) -> Beside {
    let (figures, skipped) = match came {
        Ok(figures) => (Some(figures), None),
        Err(error) => {
            signals::say(&format!("{program} is skipped: {error:#}"));
            (None, Some(format!("{error:#}")))
        }
    };
    Beside { program, way, figures, skipped }
}

/// The first of these programs that is in a folder of `PATH`.
fn found(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    let file = |name: &&str| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    names.iter().find_map(file)
}

fn hpcc(ranks: u32, words: u64) -> Result<Figures> {
    let hpcc = found(&["hpcc"]).context("it is not installed (Debian's package hpcc)")?;
    let mpirun = found(&["mpirun.openmpi", "mpirun"]).context("there is no mpirun (Debian's openmpi-bin)")?;
    let folder = tempfile::tempdir().context("a folder for hpcc")?;
    Leftover::Folder(folder.path().to_owned()).note();
    fs::write(folder.path().join("hpccinf.txt"), input(ranks, words)).context("hpcc's input")?;
    let mut command = Command::new(mpirun);
    command.args(["-n", &ranks.to_string()]).arg(hpcc).current_dir(folder.path());
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

/// A program, an MPI's launcher mostly, that ends with this.
struct Started(Child);

impl Started {
    fn start(command: &mut Command, out: Option<File>) -> Result<Started> {
        // As many processes as are asked for, whoever asks and however few cores there are.
        command.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ]);
        command.stdin(Stdio::null()).stdout(out.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::null());
        Ok(Started(signals::undisturbed(|| command.spawn()).context("starting it")?))
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait().context("waiting for it")?.is_some())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A launcher ends what it has started when it is asked to end, and cannot when it is killed.
        let pid = Pid::from_child(&self.0);
        let begun = Instant::now();
        let mut asked = false;
        while matches!(self.0.try_wait(), Ok(None)) {
            if !asked {
                asked = kill_process(pid, Signal::TERM).is_ok();
            }
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// hpcc's input: the table has as many words as the largest power of two that the matrix has entries, or fewer.
fn input(ranks: u32, words: u64) -> String {
    let order = words.isqrt() + u64::from(words.isqrt().pow(2) < words);
    format!(
        "input\nof standpipe study gups\nHPL.out\n8\n1\n{order}\n1\n80\n0\n1\n1\n{ranks}\n16.0\n1\n2\n1\n4\n1\n2\n1\n1\n1\n1\n\
         1\n1\n2\n64\n0\n0\n1\n8\n#\n0\n1200\n0\n40\n"
    )
}

/// What hpcc has said of the benchmark, once it is done with it.
fn section(file: &Path) -> Option<String> {
    let said = fs::read_to_string(file).ok()?;
    let (_, said) = said.split_once("Begin of MPIRandomAccess section.")?;
    Some(said.split_once("End of MPIRandomAccess section.")?.0.to_owned())
}

fn parsed(said: &str) -> Option<Figures> {
    let after = |what: &str| {
        let rest = &said[said.find(what)? + what.len()..];
        rest.split_whitespace().next()
    };
    let gups = said.lines().find_map(|line| line.split_once(" Billion(10^9) Updates    per second"))?.0;
    let table = said.lines().find_map(|line| line.strip_prefix("Total Main table size = "))?;
    let words: u64 = table.split(" = ").nth(1)?.split_whitespace().next()?.parse().ok()?;
    Some(Figures {
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
        let figures = Figures { gups: 0.006_086_399, table_bytes: 64 << 20, updates: 33_554_432, errors: 3 };
        assert_eq!(parsed(SAID), Some(figures));
        for line in ["Found 3", "EXECUTED", "Billion(10^9) Updates  ", "Total Main"] {
            assert_eq!(parsed(&SAID.replace(line, "?")), None, "without {line}");
        }
    }

    #[test]
    fn what_our_program_for_mpi_says_is_understood() {
        let said = "put 0.0125 0\natomic 0.003 7\n";
        let figures = |gups, errors| Some(Figures { gups, table_bytes: 8192, updates: 99, errors });
        assert_eq!(line_of(said, "put", 1024, 99), figures(0.0125, 0));
        assert_eq!(line_of(said, "atomic", 1024, 99), figures(0.003, 7));
        assert_eq!(line_of("put 0.0125\n", "put", 1024, 99), None);
    }

    #[test]
    fn hpccs_matrix_has_as_many_entries_as_the_table_words() {
        let order = |words| input(2, words).lines().nth(5).and_then(|line| line.parse::<u64>().ok());
        assert_eq!((order(1 << 22), order(1 << 21)), (Some(2048), Some(1449)));
    }

    #[test]
    fn what_is_not_there_is_skipped_with_its_reason() {
        let beside = told("nothing", "put", Err(anyhow::anyhow!("no such file").context("it is not there")));
        assert_eq!(beside.skipped.as_deref(), Some("it is not there: no such file"));
        assert!(found(&["no-such-program-anywhere"]).is_none() && found(&["none", "sh"]).is_some());
    }
}

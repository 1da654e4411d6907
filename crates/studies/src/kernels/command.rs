//! `standpipe-study kernel`: starts the ranks, listens to them, and tells what came of it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use sim::recording::{Part, assemble};
use standpipe::launch::{Launch, Stream};
use tempfile::TempDir;

use super::{
    args::KernelArgs,
    outcome::{Outcome, Recording},
    plan::Kernel,
    rank_lines::{Done, Line},
    recorder::part_file,
    worker::Worker,
};
use crate::study::ranks::words;
use measure::{
    json_lines, machine, progress,
    signals::{self, Leftover},
    stdout::print,
    table::Layout,
    usage_error::UsageError,
};

/// Runs a kernel. The command fails if its result is wrong.
///
/// # Errors
/// If the arguments do not fit together, a rank fails, the result is wrong, or the recording cannot be
/// written.
pub fn run(args: &KernelArgs) -> Result<ExitCode> {
    let kernel = args.kernel().map_err(UsageError::new)?;
    machine::check_room(kernel.bytes_min(), "this")?;
    let options = args.run();
    let recording = options.record.as_deref().map(Parts::beside).transpose()?;
    let ranks = match launch(&kernel, recording.as_ref().map(Parts::directory), options.spoil)? {
        Ended::Done(ranks) => ranks,
        Ended::Failed => return Ok(ExitCode::FAILURE),
    };
    let trace = recording.map(|parts| parts.assemble(&kernel, &ranks)).transpose()?;
    let outcome = Outcome::of(&kernel, &ranks, trace);
    if options.json {
        print(serde_json::to_string_pretty(&outcome)?)?;
    } else {
        print(outcome.table().text(Layout::of_stdout()))?;
    }
    match outcome.fault {
        Some(fault) => bail!("the result is wrong: {fault}"),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The ranks' parts of a recording, in a directory that goes again.
struct Parts {
    file: PathBuf,
    directory: TempDir,
}

impl Parts {
    /// Makes the directory beside the file that the recording is to become: rather now than after the run.
    fn beside(file: &Path) -> Result<Self, UsageError> {
        let doing = format!("recording to {}", file.display());
        let file = UsageError::unless_writable(&doing, file)?;
        let parent = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let directory = tempfile::Builder::new().prefix(".recording-").tempdir_in(parent);
        let directory = directory.map_err(|error| UsageError::file(&doing, &error))?;
        Leftover::Folder(directory.path().to_owned()).note();
        Ok(Self { file, directory })
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn assemble(self, kernel: &Kernel, ranks: &[Done]) -> Result<Recording> {
        let parts: Vec<Part> = ranks
            .iter()
            .enumerate()
            .map(|(rank, done)| Part {
                file: part_file(self.directory(), rank),
                arrays: done.arrays.clone(),
                steps: done.steps,
            })
            .collect();
        let describe = || format!("recording to {}", self.file.display());
        let totals =
            assemble(&self.file, kernel.name(), kernel.parameters(), &parts).with_context(describe)?;
        let bytes = fs::metadata(&self.file).with_context(describe)?.len();
        Ok(Recording::new(self.file, bytes, totals))
    }
}

/// How the job ended.
enum Ended {
    /// What each rank did.
    Done(Vec<Done>),
    /// A rank failed.
    Failed,
}

fn launch(kernel: &Kernel, record: Option<&Path>, spoil: bool) -> Result<Ended> {
    let progress = Arc::new(Progress::new(kernel));
    let (listener, teller) = (Arc::clone(&progress), Arc::clone(&progress));
    let plan = Worker { kernel: *kernel, record: record.map(|folder| folder.as_os_str().to_owned()), spoil };
    let outcome = Launch::new(env::current_exe().context("this program's own file")?)
        .args(words(&plan)?)
        .ranks(u32::try_from(kernel.ranks())?)
        .say(move |text| teller.show(&format!("standpipe: {text}")))
        .on_line(move |rank, stream, line| {
            let line = String::from_utf8_lossy(line);
            if stream != Stream::Stdout || !listener.hear(rank as usize, &line) {
                listener.show(&format!("[{rank}] {line}"));
            }
        })
        .run()?;
    let done = progress.finish();
    if outcome.status() == 0 {
        let all: Option<Vec<Done>> = done.into_iter().collect();
        return Ok(Ended::Done(all.context("a rank ended without a word")?));
    }
    Ok(Ended::Failed)
}

/// What the ranks say, gathered while they run, and shown as a bar on standard error where that is a
/// terminal.
struct Progress {
    bar: ProgressBar,
    heard: Mutex<Heard>,
}

struct Heard {
    puts: Vec<u64>,
    done: Vec<Option<Done>>,
}

impl Progress {
    fn new(kernel: &Kernel) -> Self {
        let bar = progress::bar(kernel.puts(), "{human_pos}/{human_len} puts");
        let ranks = kernel.ranks();
        Self { bar, heard: Mutex::new(Heard { puts: vec![0; ranks], done: vec![None; ranks] }) }
    }

    /// Takes in one line of a rank. Gives false if it is none of a kernel's: the caller may show it.
    fn hear(&self, rank: usize, line: &str) -> bool {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if rank >= heard.puts.len() {
            return false;
        }
        match json_lines::decode(line) {
            Some(Line::Puts(puts)) => heard.puts[rank] = puts,
            Some(Line::Done(done)) => {
                heard.puts[rank] = done.puts;
                heard.done[rank] = Some(*done);
            }
            None => return false,
        }
        self.bar.set_position(heard.puts.iter().sum());
        true
    }

    /// Shows a line above the bar, unless a signal ends all of this.
    fn show(&self, line: &str) {
        if !signals::ending() {
            self.bar.suspend(|| signals::complain(line));
        }
    }

    /// Takes the bar away and gives what was heard.
    fn finish(&self) -> Vec<Option<Done>> {
        self.bar.finish_and_clear();
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).done.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::plan::BitonicPlan;

    #[test]
    fn puts_of_all_ranks_move_the_bar_and_other_lines_are_given_back() {
        let plan = BitonicPlan::new(2, 50, 8, 2).expect("it fits");
        let progress = Progress::new(&Kernel::Bitonic(plan));
        assert_eq!(progress.bar.length(), Some(100));
        for (rank, puts) in [(0, 5), (1, 7), (0, 6)] {
            assert!(progress.hear(rank, &json_lines::encode(&Line::Puts(puts))));
        }
        assert_eq!(progress.bar.position(), 13);
        assert!(!progress.hear(0, "a stray line") && !progress.hear(2, &json_lines::encode(&Line::Puts(1))));
        assert_eq!(progress.finish(), [None, None]);
    }
}

//! Programs of others: how they are started and ended, and what a run of one comes to.

use std::env;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use measure::signals;

/// As long as another program may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// Processes.
    pub(super) ranks: u32,
    /// Words of the table.
    pub(super) words: u64,
    /// Updates of all processes together, where it can be told.
    pub(super) updates: u64,
}

/// What a run of a program came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ran {
    pub(super) gups: f64,
    pub(super) table_bytes: u64,
    pub(super) updates: u64,
    /// Words that it found wrong.
    pub(super) errors: u64,
}

/// A program, an MPI's launcher mostly, that ends with this.
pub(super) struct Started(Child);

impl Started {
    pub(super) fn start(command: &mut Command, out: Option<File>) -> Result<Started> {
        // As many processes as are asked for, whoever asks and however few cores there are.
        command.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ]);
        command.stdin(Stdio::null()).stdout(out.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::null());
        Ok(Started(signals::undisturbed(|| command.spawn()).context("starting it")?))
    }

    pub(super) fn has_ended(&mut self) -> Result<bool> {
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

/// Waits for a program's end.
pub(super) fn await_end(mut started: Started, patience: Duration) -> Result<()> {
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

/// The first of these programs that is in a folder of `PATH`.
pub(super) fn found(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    let file = |name: &&str| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    names.iter().find_map(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_program_of_the_path_is_found() {
        assert!(found(&["no-such-program-anywhere"]).is_none() && found(&["none", "sh"]).is_some());
    }
}

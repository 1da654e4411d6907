//! Processes that a measurement starts for parts of its work: the same program, with subcommands that nobody
//! else knows.

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{attach, perf};

/// The part of a measurement that a process is started for.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// A process that `doctor` starts, to have its memory read
    #[command(name = attach::SUBCOMMAND)]
    DoctorPeer,
    /// A process that `perf` starts
    #[command(name = perf::SUBCOMMAND)]
    PerfWorker(perf::WorkerArgs),
}

impl Part {
    /// Does the part, telling on standard output what it does.
    ///
    /// # Errors
    /// If it cannot be done, or nobody listens.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Part::DoctorPeer => attach::run(),
            Part::PerfWorker(args) => perf::run_worker(&args),
        }
    }
}

/// The command line of a process that was started for a part. It stands apart from the user's commands, so
/// that neither help nor hints nor completions name a part.
#[derive(Debug, Parser)]
#[command(name = "standpipe")]
struct Line {
    #[command(subcommand)]
    part: Part,
}

/// The part that this process was started for, if it was. A program that uses this library runs it before it
/// looks at its own command line.
#[must_use]
pub fn asked_for() -> Option<Part> {
    is_named::<Line>().then(|| Line::parse().part)
}

/// Whether the first argument of this process is a subcommand of `L`.
#[must_use]
pub fn is_named<L: Parser>() -> bool {
    let Some(name) = env::args_os().nth(1) else { return false };
    L::command().get_subcommands().any(|command| name.to_str() == Some(command.get_name()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_lines_of_workers_are_well_formed() {
        Line::command().debug_assert();
    }
}

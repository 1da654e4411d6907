//! Processes that this library starts for parts of its work: the same program, with subcommands that nobody
//! else knows.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::kernels::worker as kernel_worker;
use crate::study::{
    gups, isx,
    kv::{args::KvArgs, elastic_worker, worker_process},
    layers,
    live::{rank, ranks},
    pindown::pm_rank,
    scale,
};
use measure::signals::Attended;

/// The part of a study, a kernel or a measurement that this process was started for. A program that uses this
/// library runs it before it looks at its own command line.
#[derive(Debug)]
pub struct Worker(Part);

impl Worker {
    /// The worker that this process was started as.
    #[must_use]
    pub fn asked_for() -> Option<Worker> {
        measure::worker::is_named::<Part>().then(|| Worker(Part::parse()))
    }

    /// Does its part, telling on standard output what it does.
    ///
    /// # Errors
    /// If it cannot do it, or nobody listens.
    pub fn run(self) -> Result<ExitCode> {
        match self.0 {
            Part::Measurement(part) => part.run(),
            Part::KvWorker(args) => worker_process::run(&args),
            Part::KvGuest(args) => elastic_worker::run(&args),
            Part::KernelWorker(args) => kernel_worker::run(&args),
            Part::ScaleRow(args) => {
                let attended = Attended::begin("there is no result").context("minding signals")?;
                let ended = scale::run_row(&args);
                attended.finish();
                ended
            }
            Part::StudyRank(args) => rank::run(&args),
            Part::StudyRanks(args) => ranks::run(&args),
            Part::GupsRank(args) => gups::rank::run(&args),
            Part::IsxRank(args) => isx::rank::run(&args),
            Part::LayersRank(args) => layers::rank::run(&args),
            Part::PinDownPmRank(args) => pm_rank::run(&args),
        }
    }
}

/// Apart from the user's commands, so that neither help nor hints nor completions name one.
#[derive(Debug, Parser)]
#[command(name = "standpipe")]
enum Part {
    /// A process that a measurement starts
    #[command(flatten)]
    Measurement(measure::worker::Part),
    /// A worker that `kv` starts
    #[command(name = worker_process::SUBCOMMAND)]
    KvWorker(KvArgs),
    /// A worker that `kv --phases` starts
    #[command(name = elastic_worker::SUBCOMMAND)]
    KvGuest(elastic_worker::GuestArgs),
    /// A rank that `kernel` starts
    #[command(name = kernel_worker::SUBCOMMAND)]
    KernelWorker(kernel_worker::WorkerArgs),
    /// A process that `scale` starts
    #[command(name = scale::SUBCOMMAND)]
    ScaleRow(scale::RowArgs),
    /// A rank that a study over a network starts
    #[command(name = rank::SUBCOMMAND)]
    StudyRank(rank::RankArgs),
    /// A launcher that a study over a network starts for both ranks
    #[command(name = ranks::SUBCOMMAND)]
    StudyRanks(rank::RankArgs),
    /// A rank that `gups` starts
    #[command(name = gups::rank::SUBCOMMAND)]
    GupsRank(gups::rank::RankArgs),
    /// A rank that `isx` starts
    #[command(name = isx::rank::SUBCOMMAND)]
    IsxRank(isx::rank::RankArgs),
    /// A rank that `layers` starts
    #[command(name = layers::rank::SUBCOMMAND)]
    LayersRank(layers::rank::RankArgs),
    /// A rank that `pindown --layer pm` starts
    #[command(name = pm_rank::SUBCOMMAND)]
    PinDownPmRank(pm_rank::PmRankArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_lines_of_workers_are_well_formed() {
        Part::command().debug_assert();
    }
}

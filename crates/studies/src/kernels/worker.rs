//! One rank of a kernel as a process of its own: what `standpipe-study kernel` starts.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{
    bitonic, cannon,
    job::Job,
    plan::Kernel,
    rank_lines::{Line, RankResult},
};
use measure::json_lines::tell;

/// The hidden subcommand that runs a rank.
pub(crate) const SUBCOMMAND: &str = "kernel-worker";

/// What a rank is told.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The kernel and its parameters, as JSON
    kernel: String,
    /// Directory for this rank's part of the recording
    #[arg(long)]
    record: Option<PathBuf>,
    /// Make the first put of rank 1 wrong
    #[arg(long)]
    spoil: bool,
}

/// Runs this rank's part of the kernel, telling on standard output what it does.
///
/// # Errors
/// If the job cannot be joined, a peer is lost, the recording cannot be written, or nobody listens.
pub(crate) fn run(args: &WorkerArgs) -> Result<ExitCode> {
    let kernel: Kernel = serde_json::from_str(&args.kernel).context("the kernel")?;
    let mut job = Job::join(args.record.as_deref(), args.spoil)?;
    ensure!(job.size() == kernel.ranks(), "{} ranks for a kernel of {}", job.size(), kernel.ranks());
    let result = match kernel {
        Kernel::Cannon(plan) => RankResult::Product(cannon::run(&mut job, &plan)?),
        Kernel::Bitonic(plan) => RankResult::Sorted(bitonic::run(&mut job, &plan)?),
    };
    tell(&Line::Done(Box::new(job.finish(result)?)))?;
    Ok(ExitCode::SUCCESS)
}

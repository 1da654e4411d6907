//! Both ranks of a live study, started by a process of their own. The study talks to rank 0 through it, ends
//! it, and so ends both.

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use standpipe::launch::{Launch, unblock_signals};

use super::rank::{self, RankArgs};

/// The hidden subcommand that runs both ranks.
pub(crate) const SUBCOMMAND: &str = "study-ranks";

/// Runs both ranks until they end. Rank 0 has this process's standard input and output.
///
/// # Errors
/// If they cannot be started.
pub(crate) fn run(args: &RankArgs) -> Result<ExitCode> {
    unblock_signals().context("unblocking signals")?;
    let program = env::current_exe().context("this program's own file")?;
    let job = Launch::new(program).arg(rank::SUBCOMMAND).args(args.words()).ranks(2);
    Ok(job.run()?.status().into())
}

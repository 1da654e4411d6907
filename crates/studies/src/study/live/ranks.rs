//! Both ranks of a live study, started by a process of their own. The study talks to rank 0 through it, ends
//! it, and so ends both.

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use standpipe::launch::{Launch, unblock_signals};

use super::rank::{self, Memory};
use crate::study::ranks::{RankPlan, words};

/// The work of a process of a live study.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// It starts both ranks.
    Both(Memory),
    /// It is one of them.
    One(Memory),
}

impl RankPlan for Part {
    const NAME: &'static str = "live";

    fn run(&self) -> Result<ExitCode> {
        match self {
            Part::Both(memory) => both(*memory),
            Part::One(memory) => rank::run(*memory),
        }
    }
}

/// Runs both ranks until they end. Rank 0 has this process's standard input and output.
///
/// # Errors
/// If they cannot be started.
fn both(memory: Memory) -> Result<ExitCode> {
    unblock_signals().context("unblocking signals")?;
    let program = env::current_exe().context("this program's own file")?;
    let job = Launch::new(program).args(words(&Part::One(memory))?).ranks(2);
    Ok(job.run()?.status().into())
}

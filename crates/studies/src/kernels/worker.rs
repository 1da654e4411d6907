//! One rank of a kernel as a process of its own: what `standpipe-study kernel` starts.

use std::{ffi::OsString, path::Path, process::ExitCode};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::{
    bitonic, cannon,
    job::Job,
    plan::Kernel,
    rank_lines::{Line, RankResult},
};
use crate::study::ranks::RankPlan;
use measure::json_lines::tell;

/// What a rank is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Worker {
    pub(super) kernel: Kernel,
    /// Directory for this rank's part of the recording; an `OsString`, since serde refuses a path that is no
    /// UTF-8.
    pub(super) record: Option<OsString>,
    /// Whether the first put of rank 1 is made wrong.
    pub(super) spoil: bool,
}

impl RankPlan for Worker {
    const NAME: &'static str = "kernel";

    /// Runs this rank's part of the kernel, telling on standard output what it does.
    ///
    /// # Errors
    /// If the job cannot be joined, a peer is lost, the recording cannot be written, or nobody listens.
    fn run(&self) -> Result<ExitCode> {
        let mut job = Job::join(self.record.as_deref().map(Path::new), self.spoil)?;
        let ranks = self.kernel.ranks();
        ensure!(job.size() == ranks, "{} ranks for a kernel of {ranks}", job.size());
        let result = match self.kernel {
            Kernel::Cannon(plan) => RankResult::Product(cannon::run(&mut job, &plan)?),
            Kernel::Bitonic(plan) => RankResult::Sorted(bitonic::run(&mut job, &plan)?),
        };
        tell(&Line::Done(Box::new(job.finish(result)?)))?;
        Ok(ExitCode::SUCCESS)
    }
}

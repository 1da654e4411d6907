//! The orders of a process of the study, and how it follows them.

use std::process::ExitCode;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::args::KvArgs;
use super::elastic_worker::{self, Guest};
use super::worker_process;
use crate::study::ranks::RankPlan;

/// A process of the study.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Part {
    /// A worker of a job.
    Worker(KvArgs),
    /// A worker of a replay during which workers die and join.
    Guest(Guest),
}

impl RankPlan for Part {
    const NAME: &'static str = "kv";

    fn run(&self) -> Result<ExitCode> {
        match self {
            Part::Worker(args) => worker_process::run(args),
            Part::Guest(guest) => elastic_worker::run(guest),
        }
    }
}

//! `standpipe-study pindown`: in virtual time, or between real processes.

use std::process::ExitCode;

use anyhow::Result;

use super::args::PinDownArgs;
use super::pm_rank::PmPlan;
use super::{by_pm, measured, simulated};
use crate::study::ranks::{RankPlan, run_plan};
use crate::study::subcommand::Subcommand;

/// `standpipe-study pindown`.
pub(crate) static STUDY: Subcommand<PinDownArgs> = Subcommand {
    name: PmPlan::NAME,
    about: "The bandwidth of PM's pin-down cache by its hit ratio, in virtual time",
    checks_settings: false,
    run,
    rank: Some(run_plan::<PmPlan>),
};

/// Runs `standpipe-study pindown`, in virtual time unless a transport is named.
///
/// # Errors
/// If something simulated or real fails, or the results cannot be written.
fn run(args: &PinDownArgs) -> Result<ExitCode> {
    if let Some(ended) = args.vm.run(&args.output, args.transport.is_some()) {
        return ended;
    }
    match &args.transport {
        Some(transport) if args.layer.is_some() => by_pm::run(args, transport),
        Some(transport) => measured::run(args, transport),
        None => simulated::run(args),
    }
}

//! `standpipe-study firehose`: in virtual time, or between real processes.

use std::process::ExitCode;

use anyhow::Result;

use super::args::FirehoseArgs;
use super::{measured, simulated};
use crate::study::subcommand::Subcommand;

/// `standpipe-study firehose`.
pub(crate) static STUDY: Subcommand<FirehoseArgs> = Subcommand {
    name: "firehose",
    about: "The Firehose paper's figures and its table, in virtual time",
    checks_settings: true,
    run,
    rank: None,
};

/// Runs `standpipe-study firehose`, in virtual time unless a transport is named.
///
/// # Errors
/// If something simulated or real fails, or the results cannot be written.
fn run(args: &FirehoseArgs) -> Result<ExitCode> {
    if let Some(ended) = args.vm.run(&args.output, args.transport.is_some()) {
        return ended;
    }
    match &args.transport {
        Some(transport) => measured::run(args, transport),
        None => simulated::run(args),
    }
}

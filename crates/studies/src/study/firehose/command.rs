//! `standpipe study firehose`: in virtual time, or between real processes.

use std::process::ExitCode;

use anyhow::Result;

use super::args::FirehoseArgs;
use super::{measured, simulated};

/// Runs `standpipe study firehose`, in virtual time unless a transport is named.
///
/// # Errors
/// If something simulated or real fails, or the results cannot be written.
pub fn run(args: &FirehoseArgs) -> Result<ExitCode> {
    if let Some(ended) = args.vm.run(&args.output, args.transport.is_some()) {
        return ended;
    }
    match &args.transport {
        Some(transport) => measured::run(args, transport),
        None => simulated::run(args),
    }
}

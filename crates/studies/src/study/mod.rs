//! The papers' figures and tables, and what lies beyond them: in the simulator, and between real processes.

mod ahead;
mod applications;
pub mod firehose;
pub mod gups;
pub mod isx;
pub mod kv;
pub mod live;
pub mod pindown;
pub mod policies;
mod ranks;
mod recording;
pub mod scale;

use std::process::ExitCode;

use anyhow::Result;

use self::firehose::FirehoseArgs;
use self::pindown::PinDownArgs;

/// Runs `standpipe study firehose`, in virtual time unless a transport is named.
///
/// # Errors
/// If something simulated or real fails, or the results cannot be written.
pub fn run_firehose(args: &FirehoseArgs) -> Result<ExitCode> {
    if let Some(ended) = args.vm.run(&args.output, args.transport.is_some()) {
        return ended;
    }
    match &args.transport {
        Some(transport) => live::firehose::run(args, transport),
        None => firehose::run(args),
    }
}

/// Runs `standpipe study pindown`, in virtual time unless a transport is named.
///
/// # Errors
/// If something simulated or real fails, or the results cannot be written.
pub fn run_pindown(args: &PinDownArgs) -> Result<ExitCode> {
    if let Some(ended) = args.vm.run(&args.output, args.transport.is_some()) {
        return ended;
    }
    match &args.transport {
        Some(transport) => live::pindown::run(args, transport),
        None => pindown::run(args),
    }
}

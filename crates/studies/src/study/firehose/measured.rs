//! `standpipe-study firehose --transport`: the paper's figures over working sets between real processes, each
//! strategy for real, beside the simulator's with costs that are measured in the same run.

use std::process::ExitCode;

use anyhow::Result;
use standpipe::Transport;

use super::args::FirehoseArgs;
use super::display;
use super::experiment::Experiment;
use crate::study::live::costs::Taker;
use measure::machine;
use measure::report::output::Output;
use measure::transport::look_for;
use measure::usage_error::UsageError;

/// Runs the study.
///
/// # Errors
/// If it is not over a network, a job fails, or the results cannot be written.
pub(super) fn run(args: &FirehoseArgs, transport: &Transport) -> Result<ExitCode> {
    if *transport == Transport::Shm {
        let why =
            "--transport shm: shared memory registers nothing, so that there are no strategies to compare";
        return Err(UsageError::new(why).into());
    }
    let output = Output::make(&args.output)?;
    look_for(transport)?;
    machine::mind_load();
    let experiment = Experiment::of(args, transport);
    let mut costs = Taker::start(&experiment.plan, if args.small { 20 } else { 200 })?;
    let measured = experiment.measure(&mut costs)?;
    let (file, costs) = costs.measured().file(&experiment.plan.transport)?;
    let outcome = experiment.outcome(&measured, costs)?;
    display::show(args, &experiment, &outcome, file).deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

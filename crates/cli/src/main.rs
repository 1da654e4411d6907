//! The `standpipe` command.

mod run;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::{ArgAction, Parser, Subcommand};
use standpipe_cli::{
    doctor,
    kernels::{args::KernelArgs, command as kernel, worker as kernel_worker},
    kv::{args::KvArgs, study, worker_process},
    perf, sim,
    study::{
        firehose::{self, FirehoseArgs},
        pindown::{self, PinDownArgs},
        policies::{self, PoliciesArgs},
        scale::{self, RowArgs, ScaleArgs},
    },
    top,
};
use tracing_subscriber::filter::LevelFilter;

/// Put to and get from any address of any peer, without registering memory.
#[derive(Debug, Parser)]
#[command(name = "standpipe", version, propagate_version = true)]
struct Cli {
    /// Say more on standard error: -v what is done, -vv how, -vvv every step
    #[arg(long, short, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the processes of a job on this host and stay until all have ended
    Run(run::RunArgs),
    /// Say what this host allows, which path memory takes here, and what to change
    Doctor(doctor::DoctorArgs),
    /// Run a study and write its report
    #[command(subcommand)]
    Study(Study),
    /// Run one of the Firehose paper's two programs, verify its result, and record what it does if told to
    #[command(subcommand)]
    Kernel(KernelArgs),
    /// Look at a running job: what each rank does, by which mechanism
    Top(top::TopArgs),
    /// Measure operations beside the machine's own limits
    Perf(perf::PerfArgs),
    /// Let random operations and failures loose on a simulated cluster, and check everything
    Sim(sim::SimArgs),
    /// A process that `doctor` starts, to have its memory read
    #[command(hide = true, name = doctor::peer::SUBCOMMAND)]
    DoctorPeer,
    /// A worker that `study kv` starts
    #[command(hide = true, name = worker_process::SUBCOMMAND)]
    KvWorker(KvArgs),
    /// A rank that `kernel` starts
    #[command(hide = true, name = kernel_worker::SUBCOMMAND)]
    KernelWorker(kernel_worker::WorkerArgs),
    /// A process that `study scale` starts
    #[command(hide = true, name = scale::SUBCOMMAND)]
    ScaleRow(RowArgs),
    /// A process that `perf` starts
    #[command(hide = true, name = perf::SUBCOMMAND)]
    PerfWorker(perf::WorkerArgs),
}

#[derive(Debug, Subcommand)]
enum Study {
    /// Workers pull each other's key-value-cache blocks out of ordinary memory
    Kv(study::StudyArgs),
    /// The Firehose paper's figures and its table, in virtual time
    Firehose(FirehoseArgs),
    /// The bandwidth of PM's pin-down cache by its hit ratio, in virtual time
    #[command(name = "pindown")]
    PinDown(PinDownArgs),
    /// Leases against the even split of the papers, from 2 nodes to 16,384, in virtual time
    Scale(ScaleArgs),
    /// Which registration to give up first: three orders on programs, a key-value cache and scans, in virtual time
    Policies(PoliciesArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    let result = match cli.command {
        Command::Run(args) => Ok(run::run(args)),
        Command::Doctor(args) => doctor::run(&args),
        Command::Study(Study::Kv(args)) => study::run(&args),
        Command::Study(Study::Firehose(args)) => firehose::run(&args),
        Command::Study(Study::PinDown(args)) => pindown::run(&args),
        Command::Study(Study::Scale(args)) => scale::run(&args),
        Command::Study(Study::Policies(args)) => policies::run(&args),
        Command::ScaleRow(args) => scale::run_row(&args),
        Command::KvWorker(args) => worker_process::run(&args),
        Command::Kernel(args) => kernel::run(&args),
        Command::KernelWorker(args) => kernel_worker::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::PerfWorker(args) => perf::run_worker(&args),
        Command::DoctorPeer => doctor::peer::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("standpipe: {error:#}");
        ExitCode::FAILURE
    })
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}

//! The `standpipe` command: it starts processes and looks at machines and jobs. Studies, kernels and the
//! simulator are the command `standpipe-study`. `crates/measure` has what both measure and show with.
#![forbid(unsafe_code)]

mod doctor;
mod elsewhere;
mod forward;
mod info;
mod latency_figures;
mod layers;
mod rendezvous;
mod run;
mod top;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgAction, Parser, Subcommand};
use measure::{
    frame::{self, Framed, Settings},
    pages::Pages,
    perf, tune, worker,
};

/// Put to and get from any address of any peer, without registering memory.
#[derive(Debug, Parser)]
#[command(name = "standpipe", version, propagate_version = true, after_help = AFTER)]
struct Cli {
    /// Say more on standard error: -v what is done, -vv how, -vvv every step
    #[arg(long, short, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "Studies, kernels and the simulator are a command of their own: standpipe-study.\n\n\
                        Exit status: 0 when all went well; 1 when something failed; 2 when the arguments, what they \
                        name, or settings in the environment cannot be used, and nothing was run; 129, 130 and 143 when SIGHUP, Ctrl-C and SIGTERM \
                        ended it. `run` has the worst of its ranks' statuses; or 127 where there is no such program, 126 where it cannot be run, and \
                        125 where the job cannot be started otherwise.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the processes of a job on this host and stay until all have ended
    ///
    /// Signals go on to all ranks: INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT. Ranks that still
    /// run --grace after the first INT (Ctrl-C) are killed, and all at once at the second.
    Run(run::RunArgs),
    /// Say what this host allows, which path memory takes here, and what to change
    Doctor(doctor::DoctorArgs),
    /// List the transports, and libfabric's providers with what each can do and needs
    Info(info::InfoArgs),
    /// Say how to build C programs for the historic layers, and which headers they have
    ///
    /// It prints where the headers and the library lie beside this command. `cargo xtask install` in
    /// Standpipe's sources puts them there.
    Layers(layers::LayersArgs),
    /// Look at a running job: what each rank does, by which mechanism
    ///
    /// It looks at a job of the same user on this host. A rank does something for that only when it is looked
    /// at: it copies its counters, which takes it some microseconds. Keys: q or Ctrl-C leaves; p shows how
    /// one rank registers memory with each of its peers, and back; arrows choose the rank. Where there are
    /// more lines than the terminal has, PgDn, PgUp, j, k, Home and End show the others.
    ///
    /// `top` also names jobs and nodes of yours in other network namespaces, as containers have them. They
    /// can be looked at there only, and `top` says how to get there.
    ///
    /// Columns: puts and gets a second and their bytes, to mapped memory (map), by cross-memory attach (cma)
    /// and by message (msg); Active Messages sent (AM) and handled (ran); atomics (atom). Above them `top`
    /// names ranks that have called nothing of the library for five seconds: they compute, or are stuck, and
    /// take no messages. It also names ranks that were sent malformed messages, and ranks that copy for their
    /// peers' puts and gets by message. A rank that has not opened a node is `awaited`. Ranks that register
    /// memory stand in a second table, with transfers by it (reg).
    Top(top::TopArgs),
    /// Measure operations beside the machine's own limits
    ///
    /// The ratio is our median by the limit's. Some rows are measured in several jobs. The last column says
    /// how many of these are within the bound. A row holds if its ratio is within the bound, and that of at
    /// least half of its jobs. If only one of both is so, the row is unsteady. Otherwise it is BROKEN, or on
    /// a busy machine `beyond`.
    Perf(perf::PerfArgs),
    /// Measure what each way to move bytes costs here, and whether the library's choice of one agrees
    Tune(tune::TuneArgs),
    /// Be the place where nodes that nobody launched find each other by name
    ///
    /// Nodes that set STANDPIPE_RENDEZVOUS to this host and port, and STANDPIPE_SECRET to what it is here (64
    /// hexadecimal digits), leave their addresses here under names, and find those of others:
    /// `standpipe::rendezvous`. It needs the secret, keeps nothing on disk, and serves until it is ended.
    Rendezvous(rendezvous::RendezvousArgs),
    #[command(flatten)]
    Pages(Pages),
}

fn main() -> ExitCode {
    if let Some(part) = worker::asked_for() {
        return frame::run_part(|| part.run());
    }
    match forward::asked_for(std::env::args_os()) {
        Some(words) => forward::run(&words),
        None => frame::run::<Cli>(),
    }
}

impl Framed for Cli {
    fn verbose(&self) -> u8 {
        self.verbose
    }

    fn without(&self) -> Option<&'static str> {
        match self.command {
            Command::Run(_) | Command::Top(_) | Command::Pages(_) => None,
            Command::Tune(_) => Some("no report was written"),
            Command::Rendezvous(_) => Some("no node finds another here any more"),
            Command::Doctor(_) | Command::Info(_) | Command::Layers(_) | Command::Perf(_) => {
                Some("there is no result")
            }
        }
    }

    fn settings(&self) -> Settings {
        match self.command {
            // It has a row for them.
            Command::Doctor(_) | Command::Pages(_) => Settings::Unread,
            Command::Run(_) | Command::Perf(_) | Command::Tune(_) => Settings::Needed,
            _ => Settings::Named,
        }
    }

    fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Run(args) => Ok(run::run(args)),
            Command::Doctor(args) => doctor::run(&args),
            Command::Info(args) => info::run(&args),
            Command::Layers(args) => layers::run(&args),
            Command::Rendezvous(args) => rendezvous::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Perf(args) => perf::run(&args),
            Command::Pages(pages) => pages.run::<Cli>(),
        }
    }
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

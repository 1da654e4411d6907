//! The `standpipe` command: it reads arguments, starts processes, and shows what came of it. What it measures
//! with is in `crates/studies`; the library of the same name is what programs build on.
#![forbid(unsafe_code)]

mod doctor;
mod elsewhere;
mod info;
mod latency_figures;
mod layers;
mod rendezvous;
mod run;
mod sim;
mod study;
mod top;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use measure::{
    perf,
    signals::{Attended, complain},
    stdout::print,
    table::shows_colours,
    transport::{STRATEGY, TRANSPORT},
    tune,
    usage_error::UsageError,
};
use standpipe::{Config, config::UNKNOWN_VARIABLES};
use studies::{
    kernels::{self, KernelArgs},
    worker::Worker,
};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};

use self::study::Given;

/// Put to and get from any address of any peer, without registering memory.
#[derive(Debug, Parser)]
#[command(name = "standpipe", version, propagate_version = true, after_help = STATUSES)]
struct Cli {
    /// Say more on standard error: -v what is done, -vv how, -vvv every step
    #[arg(long, short, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const STATUSES: &str = "Exit status: 0 when all went well; 1 when something failed; 2 when the arguments, what they \
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
    /// Say how to build C programs for the historic layers (am.h, bip.h, fm.h, pm.h)
    ///
    /// The command carries the headers and the library. It writes them to
    /// $XDG_DATA_HOME/standpipe (~/.local/share/standpipe), once, or to the folder that --out names.
    Layers(layers::LayersArgs),
    /// Run a study and write its report
    #[command(subcommand)]
    Study(Given),
    /// Run one of the Firehose paper's two programs, verify its result, and record what it does if told to
    #[command(subcommand)]
    Kernel(KernelArgs),
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
    Perf(perf::PerfArgs),
    /// Measure what each way to move bytes costs here, and whether the library's choice of one agrees
    Tune(tune::TuneArgs),
    /// Be the place where nodes that nobody launched find each other by name
    ///
    /// Nodes that set STANDPIPE_RENDEZVOUS to this host and port, and STANDPIPE_SECRET to what it is here (64
    /// hexadecimal digits), leave their addresses here under names, and find those of others:
    /// `standpipe::rendezvous`. It needs the secret, keeps nothing on disk, and serves until it is ended.
    Rendezvous(rendezvous::RendezvousArgs),
    /// Let random operations and failures loose on a simulated cluster, and check everything
    Sim(sim::SimArgs),
    /// Print what a shell needs to complete this command's words
    ///
    /// For bash: standpipe completions bash > ~/.local/share/bash-completion/completions/standpipe. For zsh:
    /// into a file _standpipe in a folder of $fpath. For fish: into
    /// ~/.config/fish/completions/standpipe.fish.
    Completions {
        /// Whose completions
        shell: Shell,
    },
    /// Print the manual page, or write those of all subcommands
    ///
    /// To read it: standpipe man | man -l -. To install them all: standpipe man --out ~/.local/share/man/man1
    Man {
        /// Write all pages to this folder, which is made if it is not there
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    if let Some(worker) = Worker::asked_for() {
        log_to_stderr(0);
        return status(worker.run());
    }
    // A file that may grow no more is an error of a write, which is told, and no death without a word.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    log_to_stderr(cli.verbose);
    cli.command.say_unknown_variables();
    if let Err(error) = cli.command.check_settings(&matches) {
        return status(Err(error.into()));
    }
    let Some(without) = cli.command.without() else { return status(cli.command.run()) };
    let attended = match Attended::begin(without).context("minding signals") {
        Ok(attended) => attended,
        Err(error) => return status(Err(error)),
    };
    let attended = match folder_of_results(&matches) {
        Some(out) => attended.keep_tidy(out),
        None => attended,
    };
    let result = cli.command.run();
    attended.finish();
    status(result)
}

/// The exit status, after the error has been said if there is one.
fn status(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        complain(format_args!("standpipe: {}", with_causes(&error)));
        if UsageError::is(&error) { UsageError::STATUS.into() } else { ExitCode::FAILURE }
    })
}

/// An error and its causes, but for those that it names itself.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        text if text.contains(&format!(": {cause}")) => said,
        text => format!("{text}: {cause}"),
    })
}

/// Where a study's results are to go.
fn folder_of_results(matches: &ArgMatches) -> Option<&PathBuf> {
    match matches.subcommand() {
        Some((_, inner)) => folder_of_results(inner),
        None => matches.try_get_one("out").ok().flatten(),
    }
}

/// Whether an option says what otherwise this setting would.
fn is_overridden(matches: &ArgMatches, setting: &str) -> bool {
    let option = match setting {
        TRANSPORT => "transport",
        STRATEGY => "strategy",
        _ => return false,
    };
    match matches.subcommand() {
        Some((_, inner)) => is_overridden(inner, setting),
        None => matches.try_contains_id(option).unwrap_or(false),
    }
}

impl Command {
    /// The result that a signal prevents, for the line that says so; `None` where signals mean something
    /// else: they are for the ranks, or are the way to leave, or the process that started this one minds
    /// them.
    fn without(&self) -> Option<&'static str> {
        match self {
            Self::Run(_) | Self::Top(_) | Self::Completions { .. } | Self::Man { .. } => None,
            Self::Study(_) | Self::Tune(_) => Some("no report was written"),
            Self::Rendezvous(_) => Some("no node finds another here any more"),
            Self::Doctor(_)
            | Self::Info(_)
            | Self::Kernel(_)
            | Self::Layers(_)
            | Self::Perf(_)
            | Self::Sim(_) => Some("there is no result"),
        }
    }

    /// Names variables that look like settings and are none. `doctor` has a row for them; programs that a job
    /// runs may not look for any.
    fn say_unknown_variables(&self) {
        if !matches!(self, Self::Doctor(_) | Self::Completions { .. } | Self::Man { .. }) {
            for name in Config::unknown_variables() {
                complain(format_args!("standpipe: {}", Config::unknown_variable(&name)));
            }
        }
    }

    /// Refuses settings in the environment that no rank could read, where this command starts ranks; others
    /// name them. An option overrides the setting of its name. `doctor` has a row for them.
    fn check_settings(&self, matches: &ArgMatches) -> Result<(), UsageError> {
        let ranks = match self {
            Self::Doctor(_) | Self::Completions { .. } | Self::Man { .. } => return Ok(()),
            Self::Study(given) => given.checks_settings(),
            Self::Run(_) | Self::Kernel(_) | Self::Perf(_) | Self::Tune(_) => true,
            _ => false,
        };
        let mut bad = Config::bad_variables();
        bad.retain(|error| !is_overridden(matches, error.name()));
        let said = bad.iter().map(ToString::to_string).collect::<Vec<_>>();
        if ranks && !said.is_empty() {
            return Err(UsageError::new(said.join("; ")));
        }
        for error in said {
            complain(format_args!("standpipe: no node would open: {error}"));
        }
        Ok(())
    }

    fn run(self) -> Result<ExitCode> {
        match self {
            Self::Run(args) => Ok(run::run(args)),
            Self::Doctor(args) => doctor::run(&args),
            Self::Info(args) => info::run(&args),
            Self::Layers(args) => layers::run(&args),
            Self::Rendezvous(args) => rendezvous::run(&args),
            Self::Tune(args) => tune::run(&args),
            Self::Study(given) => given.run(),
            Self::Kernel(args) => kernels::run(&args),
            Self::Sim(args) => sim::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Perf(args) => perf::run(&args),
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "standpipe", &mut script);
                print(String::from_utf8_lossy(&script).trim_end())?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Man { out } => {
                match out {
                    Some(folder) => write_pages(&folder)?,
                    None => {
                        let mut page = Vec::new();
                        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
                        print(String::from_utf8_lossy(&page).trim_end())?;
                    }
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Writes the manual pages of all commands.
fn write_pages(folder: &Path) -> Result<()> {
    let failed = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(failed)
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // The command says by itself, and once, which variables nothing reads.
    let filter = EnvFilter::new(format!("{level},{UNKNOWN_VARIABLES}=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(shows_colours(&io::stderr()))
        .with_writer(io::stderr)
        // A standard error that takes no line takes no complaint of that either.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_study_is_a_subcommand_with_help() {
        let command = Cli::command();
        let study = command.find_subcommand("study").expect("it is one of the commands");
        let names: Vec<&str> = study.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, studies::study::ALL.map(|study| study.name()));
        for name in names {
            let asked = Cli::command().try_get_matches_from(["standpipe", "study", name, "--help"]);
            assert!(asked.is_err_and(|help| help.kind() == clap::error::ErrorKind::DisplayHelp), "{name}");
        }
    }

    #[test]
    fn what_may_be_pinned_is_for_studies_over_a_network() {
        for study in ["firehose", "pindown"] {
            let parsed = |over: &[&str]| {
                let words = [&["standpipe", "study", study, "--pin", "1M"], over].concat();
                Cli::command().try_get_matches_from(words).is_ok()
            };
            assert!(parsed(&["--vm"]) && parsed(&["--transport", "ofi:tcp"]) && !parsed(&[]), "{study}");
        }
    }

    #[test]
    fn no_cause_is_told_twice() {
        let error = anyhow::anyhow!("no provider").context("no network: no provider").context("joining");
        assert_eq!(with_causes(&error), "joining: no network: no provider");
        assert_eq!(with_causes(&anyhow::anyhow!("inner").context("outer")), "outer: inner");
    }
}

//! The `standpipe-study` command: studies, kernels and the simulator. It reads arguments and shows what came
//! of them; what it does is in `crates/studies`.
#![forbid(unsafe_code)]

mod given;
mod sim;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgAction, Parser, Subcommand};
use measure::{
    frame::{self, Framed, Settings},
    pages::Pages,
};
use studies::kernels::{self, KernelArgs};
use studies::study::Rank;

use self::given::Given;

/// Study what Standpipe does: the papers' figures and programs, measured or in virtual time.
#[derive(Debug, Parser)]
#[command(name = "standpipe-study", version, propagate_version = true, after_help = STATUSES)]
struct Cli {
    /// Say more on standard error: -v what is done, -vv how, -vvv every step
    #[arg(long, short, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const STATUSES: &str = "Exit status: 0 when all went well; 1 when something failed; 2 when the arguments, what they \
                        name, or settings in the environment cannot be used, and nothing was run; 129, 130 and 143 when SIGHUP, Ctrl-C and SIGTERM \
                        ended it.";

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Study(Given),
    /// Run one of the Firehose paper's two programs, verify its result, and record what it does if told to
    #[command(subcommand)]
    Kernel(KernelArgs),
    /// Let random operations and failures loose on a simulated cluster, and check everything
    Sim(sim::SimArgs),
    #[command(flatten)]
    Pages(Pages),
}

fn main() -> ExitCode {
    if let Some(rank) = Rank::asked_for() {
        return frame::run_part(|| rank.run());
    }
    match measure::worker::asked_for() {
        Some(part) => frame::run_part(|| part.run()),
        None => frame::run::<Cli>(),
    }
}

impl Framed for Cli {
    fn verbose(&self) -> u8 {
        self.verbose
    }

    fn without(&self) -> Option<&'static str> {
        match self.command {
            Command::Study(_) => Some("no report was written"),
            Command::Kernel(_) | Command::Sim(_) => Some("there is no result"),
            Command::Pages(_) => None,
        }
    }

    fn settings(&self) -> Settings {
        match &self.command {
            Command::Study(given) if given.checks_settings() => Settings::Needed,
            Command::Kernel(_) => Settings::Needed,
            Command::Study(_) | Command::Sim(_) => Settings::Named,
            Command::Pages(_) => Settings::Unread,
        }
    }

    fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Study(given) => given.run(),
            Command::Kernel(args) => kernels::run(&args),
            Command::Sim(args) => sim::run(&args),
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

    #[test]
    fn each_study_is_a_subcommand_with_help() {
        let command = Cli::command();
        for name in studies::study::ALL.iter().map(|study| study.name()) {
            let study = command.find_subcommand(name);
            assert!(study.is_some_and(|study| study.get_about().is_some()), "{name}");
            let asked = Cli::command().try_get_matches_from(["standpipe-study", name, "--help"]);
            assert!(asked.is_err_and(|help| help.kind() == clap::error::ErrorKind::DisplayHelp), "{name}");
        }
    }

    #[test]
    fn what_may_be_pinned_is_for_studies_over_a_network() {
        for study in ["firehose", "pindown"] {
            let parsed = |over: &[&str]| {
                let words = [&["standpipe-study", study, "--pin", "1M"], over].concat();
                Cli::command().try_get_matches_from(words).is_ok()
            };
            assert!(parsed(&["--vm"]) && parsed(&["--transport", "ofi:tcp"]) && !parsed(&[]), "{study}");
        }
    }
}

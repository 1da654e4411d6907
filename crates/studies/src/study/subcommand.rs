//! What a study is: a subcommand of `standpipe-study`.

use std::fmt::Debug;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args, Command};

use super::ranks::RunPlan;

/// A study, whatever its arguments are.
pub trait Study: Debug + Sync {
    /// The subcommand's name.
    fn name(&self) -> &'static str;

    /// The subcommand with its line of help and its arguments.
    fn command(&self) -> Command;

    /// Whether settings in the environment that cannot be used are refused before it begins. Its ranks would
    /// refuse them.
    fn checks_settings(&self) -> bool;

    /// Runs it with what was given to the subcommand, and writes its report.
    ///
    /// # Errors
    /// If the arguments do not fit together, the study fails or finds something wrong, or the results cannot
    /// be written.
    fn run(&self, given: &ArgMatches) -> Result<ExitCode>;

    /// The function that the processes of its own job run; `None` where it has none.
    fn rank(&self) -> Option<RunPlan>;
}

/// A study made of the type of its arguments and the function that runs with them.
#[derive(Debug)]
pub(crate) struct Subcommand<A> {
    pub(crate) name: &'static str,
    /// One line of help.
    pub(crate) about: &'static str,
    /// [`Study::checks_settings`].
    pub(crate) checks_settings: bool,
    pub(crate) run: fn(&A) -> Result<ExitCode>,
    /// [`Study::rank`].
    pub(crate) rank: Option<RunPlan>,
}

impl<A: Args + Debug> Study for Subcommand<A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn command(&self) -> Command {
        A::augment_args(Command::new(self.name)).about(self.about).long_about(None)
    }

    fn checks_settings(&self) -> bool {
        self.checks_settings
    }

    fn run(&self, given: &ArgMatches) -> Result<ExitCode> {
        (self.run)(&A::from_arg_matches(given)?)
    }

    fn rank(&self) -> Option<RunPlan> {
        self.rank
    }
}

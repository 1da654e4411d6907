//! One of the studies that there are, each of which is a subcommand.

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand, error::ErrorKind};
use studies::study::{ALL, Study};

/// The study that was named, and what was given to it.
#[derive(Debug)]
pub(crate) struct Given {
    study: &'static dyn Study,
    arguments: ArgMatches,
}

impl Given {
    /// [`Study::checks_settings`].
    pub(crate) fn checks_settings(&self) -> bool {
        self.study.checks_settings()
    }

    /// Runs the study.
    ///
    /// # Errors
    /// What it ends with.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        self.study.run(&self.arguments)
    }
}

impl Subcommand for Given {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(ALL.iter().map(|study| study.command()))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        named(name).is_some()
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (name, arguments) =
            matches.subcommand().ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let study = named(name).ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
        Ok(Self { study, arguments: arguments.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn named(name: &str) -> Option<&'static dyn Study> {
    ALL.iter().copied().find(|study| study.name() == name)
}

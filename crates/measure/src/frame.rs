//! What every command does around its work: it logs, reads settings, minds signals, and says what went wrong.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{ArgMatches, Parser};
use standpipe::{Config, config::UNKNOWN_VARIABLES};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::signals::{Attended, complain};
use crate::table::shows_colours;
use crate::transport::{STRATEGY, TRANSPORT};
use crate::usage_error::UsageError;

/// What a command makes of the settings in its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// It reads none, or has words of its own for them.
    Unread,
    /// It names those that no node could read, and goes on.
    Named,
    /// It starts ranks, and refuses those that no rank could read.
    Needed,
}

/// A whole command line.
pub trait Framed: Parser {
    /// How much is to be said on standard error: 0 for warnings, 3 for every step.
    fn verbose(&self) -> u8;

    /// The result that a signal prevents, for the line that says so. `None` where signals mean something
    /// else: they are for the ranks, or are the way to leave.
    fn without(&self) -> Option<&'static str>;

    /// What becomes of settings.
    fn settings(&self) -> Settings;

    /// Does the work.
    ///
    /// # Errors
    /// What the command line's end says.
    fn run(self) -> Result<ExitCode>;
}

/// Reads this process's command line and does what it says.
#[must_use]
pub fn run<C: Framed>() -> ExitCode {
    // A file that may grow no more is an error of a write, which is told, and no death without a word.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let matches = C::command().get_matches();
    let command = C::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    log_to_stderr(command.verbose());
    if let Err(error) = check_settings(command.settings(), &matches) {
        return status(Err(error.into()));
    }
    let Some(without) = command.without() else { return status(command.run()) };
    let attended = match Attended::begin(without).context("minding signals") {
        Ok(attended) => attended,
        Err(error) => return status(Err(error)),
    };
    let attended = match folder_of_results(&matches) {
        Some(out) => attended.keep_tidy(out),
        None => attended,
    };
    let result = command.run();
    attended.finish();
    status(result)
}

/// Does what a process was started for by the command itself.
#[must_use]
pub fn run_part(part: impl FnOnce() -> Result<ExitCode>) -> ExitCode {
    log_to_stderr(0);
    status(part())
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

/// Where the results of a command are to go.
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

/// Names variables that look like settings and are none, and settings that nobody could read. The latter are
/// refused where the command starts ranks, unless an option overrides them.
fn check_settings(settings: Settings, matches: &ArgMatches) -> Result<(), UsageError> {
    if settings == Settings::Unread {
        return Ok(());
    }
    for name in Config::unknown_variables() {
        complain(format_args!("standpipe: {}", Config::unknown_variable(&name)));
    }
    let mut bad = Config::bad_variables();
    bad.retain(|error| !is_overridden(matches, error.name()));
    let said = bad.iter().map(ToString::to_string).collect::<Vec<_>>();
    if settings == Settings::Needed && !said.is_empty() {
        return Err(UsageError::new(said.join("; ")));
    }
    for error in said {
        complain(format_args!("standpipe: no node would open: {error}"));
    }
    Ok(())
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // The command says by itself, and once, which variables nothing reads.
    let shown = Targets::new().with_default(level).with_target(UNKNOWN_VARIABLES, LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(shows_colours(&io::stderr()))
        .with_writer(io::stderr)
        // A standard error that takes no line takes no complaint of that either.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(shown).with(lines).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_told_twice() {
        let error = anyhow::anyhow!("no provider").context("no network: no provider").context("joining");
        assert_eq!(with_causes(&error), "joining: no network: no provider");
        assert_eq!(with_causes(&anyhow::anyhow!("inner").context("outer")), "outer: inner");
    }
}

//! How a check ended.

use crate::command::Failure;
use std::process::ExitCode;

/// The end of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran, and found nothing.
    Passed,
    /// It ran, and found this.
    Failed(String),
    /// It could not run, because of this. Never for what a check found.
    Skipped(String),
}

impl Outcome {
    /// One word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "FAILED",
            Outcome::Skipped(_) => "skipped",
        }
    }

    /// Why it did not pass; empty if it did.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Outcome::Passed => "",
            Outcome::Failed(reason) | Outcome::Skipped(reason) => reason,
        }
    }

    /// The end of this check and, unless it failed, of `next` as one: passed only if both did.
    pub(crate) fn and(self, next: impl FnOnce() -> Outcome) -> Outcome {
        match self {
            Outcome::Passed => next(),
            Outcome::Failed(_) => self,
            Outcome::Skipped(_) => match next() {
                Outcome::Failed(reason) => Outcome::Failed(reason),
                Outcome::Passed | Outcome::Skipped(_) => self,
            },
        }
    }

    /// Says on one line how check `name` ended.
    pub(crate) fn announce(&self, name: &str) {
        let colon = if self.reason().is_empty() { "" } else { ": " };
        println!("xtask {name}: {}{colon}{}", self.word(), self.reason());
    }

    /// Failure only for a failed check.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(matches!(self, Outcome::Failed(_))))
    }
}

impl From<Result<(), Failure>> for Outcome {
    fn from(result: Result<(), Failure>) -> Outcome {
        match result {
            Ok(()) => Outcome::Passed,
            Err(failure) => Outcome::Failed(failure.0),
        }
    }
}

/// Why a check cannot run on this machine.
pub(crate) struct Missing(pub(crate) String);

impl From<Missing> for Outcome {
    fn from(missing: Missing) -> Outcome {
        Outcome::Skipped(missing.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_checks_as_one_pass_only_if_both_do() {
        let skipped = || Outcome::Skipped("no clippy".into());
        let failed = || Outcome::Failed("rc 1".into());
        assert_eq!(Outcome::Passed.and(|| Outcome::Passed), Outcome::Passed);
        assert_eq!(Outcome::Passed.and(skipped), skipped());
        assert_eq!(skipped().and(|| Outcome::Passed), skipped());
        assert_eq!(skipped().and(failed), failed());
        assert_eq!(failed().and(|| unreachable!("the first has failed")), failed());
    }

    #[test]
    fn only_a_failure_makes_the_command_fail() {
        let code = |outcome: Outcome| format!("{:?}", outcome.exit_code());
        assert_eq!(code(Outcome::Passed), code(Outcome::Skipped("no nightly".into())));
        assert_ne!(code(Outcome::Passed), code(Outcome::Failed("rc 1".into())));
    }
}

//! Arguments that cannot be.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Arguments, a file or folder that they name, or settings in the environment cannot be used. Nothing was
/// run, and the command's exit status is [`STATUS`](UsageError::STATUS), as it is for what the command line's
/// own parser refuses.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct UsageError(String);

/// A line of a file that is wrong may be shown, and of any length.
const LETTERS_MAX: usize = 500;

impl UsageError {
    /// The exit status.
    pub const STATUS: u8 = 2;

    /// For the reason that these words give.
    pub fn new(why: impl Display) -> UsageError {
        // With all its causes, where it is an error that has some.
        let why = format!("{why:#}");
        let lines = why.lines().map(|line| line.chars().take(LETTERS_MAX).collect());
        UsageError(lines.collect::<Vec<String>>().join("\n"))
    }

    /// Because a file cannot be made in that folder, or at that path; `doing` says what for, and names it as
    /// the user did. An error of a temporary file names that file, which nobody has heard of: its name is
    /// left out.
    #[must_use]
    pub fn file(doing: &str, error: &io::Error) -> UsageError {
        let error = error.to_string();
        let cause = error.split_once(" at path ").map_or(error.as_str(), |(cause, _)| cause);
        UsageError(format!("{doing}: {cause}"))
    }

    /// Where to write a file of this name that is there whole or not at all: what a link leads to, so that
    /// the link stays.
    ///
    /// # Errors
    /// If something else than a file is there: a folder, a device, a pipe. Its place is not taken.
    pub fn unless_writable(doing: &str, file: &Path) -> Result<PathBuf, UsageError> {
        let Ok(there) = file.canonicalize() else { return Ok(file.to_owned()) };
        match there.metadata() {
            Ok(found) if found.is_dir() => Err(UsageError(format!("{doing}: it is a directory"))),
            Ok(found) if !found.is_file() => {
                Err(UsageError(format!("{doing}: it is no file, but a device or a pipe")))
            }
            _ => Ok(there),
        }
    }

    /// Whether `error` is such a one.
    #[must_use]
    pub fn is(error: &anyhow::Error) -> bool {
        error.chain().any(<dyn std::error::Error>::is::<UsageError>)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_temporary_file_is_not_named() {
        let error = tempfile::tempdir_in("/no/such").expect_err("no such folder");
        assert_eq!(
            UsageError::file("writing to here", &error).to_string(),
            "writing to here: No such file or directory (os error 2)"
        );
        let error = std::fs::File::open("/no/such").expect_err("no such file");
        assert!(UsageError::file("reading", &error).to_string().starts_with("reading: No such"));
    }

    #[test]
    fn it_is_known_under_what_was_said_about_it() {
        let error = anyhow::Error::from(UsageError::new("no")).context("really");
        assert!(UsageError::is(&error) && !UsageError::is(&anyhow::anyhow!("no")));
        let causes: anyhow::Result<()> = Err(anyhow::anyhow!("inner")).context("outer");
        assert_eq!(UsageError::new(causes.expect_err("made above")).to_string(), "outer: inner");
        assert_eq!(UsageError::new("x".repeat(1 << 20)).to_string().len(), LETTERS_MAX);
    }
}

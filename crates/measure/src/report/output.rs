//! Where a study's results go: a directory with `report.html` and `result.json`, and standard output.

use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::{
    signals::{self, missing},
    stdout::print,
    table::{Layout, wrapped},
    usage_error::UsageError,
};

/// What every study can be told about its results.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Directory for report.html and result.json
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,
    /// Print the result as one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
}

/// The directory for the results. One that was made for them goes again if nothing came to be in it.
#[derive(Debug)]
pub struct Output<'a> {
    args: &'a OutputArgs,
    /// The folders that were made, from the innermost on.
    made: Vec<PathBuf>,
}

impl<'a> Output<'a> {
    /// Makes the directory, rather before a study than after it.
    ///
    /// # Errors
    /// If it cannot be made, or takes no files.
    pub fn make(args: &'a OutputArgs) -> Result<Self, UsageError> {
        let doing = format!("cannot write a report to {}", args.out.display());
        let made: Vec<PathBuf> = missing(&args.out).map(Path::to_owned).collect();
        if made.is_empty() && !args.out.is_dir() {
            return Err(UsageError::new(format_args!("{doing}: it is no directory")));
        }
        // Else a signal could have removed what is not yet there.
        signals::undisturbed(|| fs::create_dir_all(&args.out))
            .map_err(|error| UsageError::file(&doing, &error))?;
        let output = Self { args, made };
        // Known now rather than after minutes of a study.
        tempfile::tempfile_in(&args.out).map_err(|error| UsageError::file(&doing, &error))?;
        Ok(output)
    }

    /// Writes all files or none, and the result to standard output: as JSON, or as `text`.
    ///
    /// # Errors
    /// If something cannot be written.
    pub fn deliver(&self, html: &str, text: &str, result: &impl Serialize) -> Result<()> {
        self.deliver_with(html, text, result, &[])
    }

    /// The same, with more files of these names and texts in the directory.
    ///
    /// # Errors
    /// If something cannot be written.
    pub fn deliver_with(
        &self,
        html: &str,
        text: &str,
        result: &impl Serialize,
        beside: &[(&str, String)],
    ) -> Result<()> {
        let json = serde_json::to_string_pretty(result)?;
        let page = self.args.out.join("report.html");
        signals::undisturbed(|| {
            let beside = beside.iter().map(|(name, text)| write(&self.args.out.join(name), text));
            let mut written = beside.collect::<Result<Vec<_>>>()?;
            written.extend([write(&page, html)?, write(&self.args.out.join("result.json"), &json)?]);
            for (file, path) in written {
                file.persist(&path).with_context(|| format!("writing {}", path.display()))?;
            }
            signals::delivered();
            anyhow::Ok(())
        })?;
        if self.args.json {
            print(json)?;
        } else {
            let layout = Layout::of_stdout();
            let text: Vec<String> = text.lines().map(|line| fitted(line, layout)).collect();
            print(format_args!("{}\n\nreport: {}", text.join("\n"), page.display()))?;
        }
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        for folder in &self.made {
            // Refused where there is a file in it, which is as it should be.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A line of a study's words, in several where it is longer than it may be. Tables are as wide as they may be
/// already.
fn fitted(line: &str, layout: Layout) -> String {
    match line.chars().count() > usize::from(layout.columns) {
        true => wrapped(line, layout),
        false => line.to_owned(),
    }
}

/// Writes a file beside the one that it is to become.
fn write(path: &Path, text: &str) -> Result<(NamedTempFile, PathBuf)> {
    let beside = || {
        let permissions = Permissions::from_mode(0o666);
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        io::Result::Ok(file)
    };
    let file = beside().with_context(|| format!("writing {}", path.display()))?;
    Ok((file, path.to_owned()))
}

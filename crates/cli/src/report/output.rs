//! Where a study's results go: a directory with `report.html` and `result.json`, and standard output.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use crate::{printed::print, refused::Refused};

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
    made: bool,
}

impl<'a> Output<'a> {
    /// Makes the directory, rather before a study than after it.
    ///
    /// # Errors
    /// If it cannot be made, or takes no files.
    pub fn make(args: &'a OutputArgs) -> Result<Self, Refused> {
        let doing = format!("cannot write a report to {}", args.out.display());
        let made = !args.out.exists();
        if !made && !args.out.is_dir() {
            return Err(Refused::new(format_args!("{doing}: it is no directory")));
        }
        fs::create_dir_all(&args.out).map_err(|error| Refused::file(&doing, &error))?;
        let output = Self { args, made };
        // Known now rather than after minutes of a study.
        tempfile::tempfile_in(&args.out).map_err(|error| Refused::file(&doing, &error))?;
        Ok(output)
    }

    /// Writes both files, and the result to standard output: as JSON, or as `text`.
    ///
    /// # Errors
    /// If something cannot be written.
    pub fn deliver(&self, html: &str, text: &str, result: &impl Serialize) -> Result<()> {
        let json = serde_json::to_string_pretty(result)?;
        let page = write(&self.args.out, "report.html", html)?;
        write(&self.args.out, "result.json", &json)?;
        if self.args.json {
            print(json)?;
        } else {
            print(format_args!("{text}\n\nreport: {}", page.display()))?;
        }
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if self.made {
            // Refused where there is a file in it, which is as it should be.
            let _ = fs::remove_dir(&self.args.out);
        }
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

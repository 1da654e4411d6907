//! `standpipe-study sim --measure`: what this machine costs, as a file for the simulator.

pub(crate) mod figures;
pub(crate) mod fit;
mod pinning;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::sim::Costs;
use anyhow::{Context, Result};
use serde_json::json;
use standpipe::host;
use tempfile::NamedTempFile;

use self::figures::{Figure, HEAD, Measured, figures, text};
use measure::perf::{self, case::Case, case::Op, row::Row};
use measure::usage_error::UsageError;
use measure::{machine, progress, signals::Leftover, stdout::print, table};

/// Measures this machine, writes the file and prints what is in it.
///
/// # Errors
/// If the file cannot be written, a job cannot be run, or pages may not be locked.
pub fn run(file: &Path, json: bool) -> Result<ExitCode> {
    let writer = Writer::new(file)?;
    machine::mind_load();
    let (name, figures) = (name(), figures(&measure()?));
    let text = text(HEAD, &name, machine::load_before(), &figures);
    let costs = Costs::parse(&text).context("what was measured is beyond what the simulator takes")?;
    writer.write(&text)?;
    if json {
        let how = figures.iter().map(|Figure { field, how, .. }| ((*field).to_owned(), how.as_str().into()));
        let how = serde_json::Map::from_iter(how);
        print(json!({ "file": file, "costs": costs, "how": how }))?;
    } else {
        let mut table = table::plain(&["cost", "value", "how it was got"]);
        for Figure { field, value, how } in &figures {
            table.add_row([*field, value, how]);
        }
        let (file, table) = (file.display(), table.text(table::Layout::of_stdout()));
        print(format_args!("{name}\n\n{table}\n\nWritten. Use it: standpipe-study sim --costs {file}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The machine and what stands in for its network.
fn name() -> String {
    let facts = machine::facts();
    let fact = |wanted: &str| facts.iter().find(|(what, _)| what == wanted).map(|(_, value)| value.as_str());
    let processor = fact("processor").or(fact("architecture")).unwrap_or("this machine");
    format!("{processor}, {} cores, by shared memory", host::cores())
}

/// Runs all measurements, some ten seconds.
fn measure() -> Result<Measured> {
    let bar = progress::bar(6, "{pos}/{len} {msg}");
    bar.set_message("locking pages");
    let pinning = pinning::measure()?;
    bar.inc(1);
    let row = |case: Case| -> Result<Row> {
        let what = perf::describe(&case);
        bar.set_message(what.clone());
        let row = perf::measure(&case).with_context(|| format!("measuring {what}"))?;
        bar.inc(1);
        Ok(row)
    };
    let [round_trip, overhead, put] =
        [Case::of(Op::Am, 0), Case::of(Op::Overhead, 0), Case::of(Op::Put, 8)].map(row);
    let [short, long] = [64 << 10, 1 << 20].map(|size| row(Case::of(Op::Put, size)));
    let (round_trip, overhead, put, bulk) = (round_trip?, overhead?, put?, [short?, long?]);
    Ok(Measured { round_trip, overhead, put, bulk, pinning })
}

/// A file that is there whole or not at all. Made before the measurement, not after it: so what forbids it is
/// known at once.
struct Writer {
    file: PathBuf,
    beside: NamedTempFile,
}

impl Writer {
    fn new(file: &Path) -> Result<Writer, UsageError> {
        let doing = format!("cannot write {}", file.display());
        let file = UsageError::unless_writable(&doing, file)?;
        let parent = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        // As any file is made: the umask takes away what it takes away.
        let beside = tempfile::Builder::new()
            .prefix(".costs-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(parent);
        let beside = beside.map_err(|error| UsageError::file(&doing, &error))?;
        Leftover::File(beside.path().to_owned()).note();
        Ok(Writer { file, beside })
    }

    fn write(mut self, text: &str) -> Result<()> {
        let describe = || format!("cannot write {}", self.file.display());
        self.beside.write_all(text.as_bytes()).with_context(describe)?;
        self.beside.persist(&self.file).map_err(|error| error.error).with_context(describe)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_known_before_anything_is_measured() {
        let error = Writer::new(Path::new("/no/such/folder/costs.toml")).err().expect("no such folder");
        assert!(error.to_string().contains("/no/such/folder/costs.toml"), "{error}");
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("costs.toml");
        std::fs::write(&file, "before").expect("a file");
        let writer = Writer::new(&file).expect("it can be written");
        assert_eq!(std::fs::read_to_string(&file).expect("still there"), "before");
        writer.write("after").expect("written");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "after");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}

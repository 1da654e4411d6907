//! Other launchers, as they are today: small and large jobs under each, on one host and on two, which are
//! network namespaces with a script for ssh. Versions are pinned; all that is installed goes with the check.

mod environment;
#[path = "../../../tests/support/hosts.rs"]
mod hosts;
mod job;

use std::path::{Path, PathBuf};

use self::environment::{DEBIAN, Environment, WHEELS};
use self::job::{JOBS, Job};
use crate::command::{Failure, root, run};
use crate::outcome::Outcome;

/// The program whose processes are the ranks.
const BUILD: &str =
    "cargo test --package standpipe --features bundled --test launchers --no-run --message-format=json";

/// How one job went.
struct Row {
    launcher: String,
    hosts: usize,
    job: &'static str,
    outcome: Outcome,
}

/// Every job under every launcher, and a table of how they went.
pub(crate) fn launchers() -> Outcome {
    match all() {
        Ok(rows) => {
            println!("\n{}", table(&rows));
            judge(&rows)
        }
        Err(failure) => Err(failure).into(),
    }
}

fn all() -> Result<Vec<Row>, Failure> {
    let program = built()?;
    // Beside the program: a temporary folder may be of a file system that no other can be laid over.
    let folder = tempfile::tempdir_in(root().join("target"));
    let folder = folder.map_err(|error| Failure(format!("no folder: {error}")))?;
    let mut rows = Vec::new();
    for wheel in &WHEELS {
        println!("\n== {}", wheel.name());
        rows.extend(under(&wheel.name(), wheel.install(folder.path()), folder.path(), &program));
    }
    println!("\n== {}", DEBIAN.join(" and "));
    let debian = environment::debian(folder.path());
    for package in DEBIAN {
        let launcher = debian.as_ref().map(|debian| debian.launcher(package)).map_err(Clone::clone);
        rows.extend(under(&format!("Debian's {package}"), launcher, folder.path(), &program));
    }
    Ok(rows)
}

/// All jobs under one launcher, or a row that says why there is none.
fn under(name: &str, launcher: Result<Environment, String>, folder: &Path, program: &Path) -> Vec<Row> {
    let row = |hosts, job: &Job, outcome| Row { launcher: name.to_owned(), hosts, job: job.name, outcome };
    let launcher = match launcher {
        Ok(launcher) => launcher,
        Err(why) => return JOBS.iter().map(|job| row(1, job, Outcome::Skipped(why.clone()))).collect(),
    };
    let mut rows = Vec::new();
    for count in [1, 2] {
        for job in JOBS.iter().filter(|job| job.suits(launcher.family)) {
            // Hosts of its own: they live for longer than a job, and not for longer than all of them.
            let outcome = match hosts::hosts(2) {
                Some(hosts) => job.run(&launcher, &hosts[..count], folder, program),
                None => Outcome::Skipped("no network namespaces".to_owned()),
            };
            println!("{name}, {count} hosts, {}: {} {}", job.name, outcome.word(), outcome.reason());
            rows.push(row(count, job, outcome));
        }
    }
    rows
}

fn built() -> Result<PathBuf, Failure> {
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    };
    let told = run(BUILD).output()?;
    let last = told.lines().filter_map(program).next_back();
    last.ok_or_else(|| Failure("cargo names no program of tests".into()))
}

fn table(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let Row { launcher, hosts, job, outcome } = row;
        let [word, reason] = [outcome.word(), outcome.reason()];
        format!("{launcher:<32} {hosts:>5}  {job:<24} {word:<8} {reason}").trim_end().to_owned()
    };
    let head = format!("{:<32} {:>5}  {:<24} {:<8}", "launcher", "hosts", "job", "result");
    let lines: Vec<String> = rows.iter().map(line).collect();
    format!("{}\n{}", head.trim_end(), lines.join("\n"))
}

/// A failure anywhere is one of the check, and a skip is told.
fn judge(rows: &[Row]) -> Outcome {
    let count = |is: fn(&Outcome) -> bool| rows.iter().filter(|row| is(&row.outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    match (failed, skipped) {
        (0, 0) => Outcome::Passed,
        (0, skipped) => Outcome::Skipped(format!("{skipped} of {} jobs, see above", rows.len())),
        (failed, _) => Outcome::Failed(format!("{failed} of {} jobs, see above", rows.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_a_job_and_a_skip_is_no_pass() {
        let row = |outcome| Row { launcher: "mpich 5.0.2".into(), hosts: 2, job: "four", outcome };
        let rows = [row(Outcome::Passed), row(Outcome::Skipped("no pip".into()))];
        let told = table(&rows);
        let last = told.lines().last().expect("a row");
        assert_eq!(last, "mpich 5.0.2                          2  four                     skipped  no pip");
        assert_eq!(judge(&rows[..1]), Outcome::Passed);
        assert_eq!(judge(&rows), Outcome::Skipped("1 of 2 jobs, see above".into()));
        let failed = [row(Outcome::Failed("it hung".into())), row(Outcome::Skipped("no pip".into()))];
        assert_eq!(judge(&failed), Outcome::Failed("1 of 2 jobs, see above".into()));
    }
}

//! `standpipe doctor`: what this host allows, which path each kind of memory takes here, how long the calls of running nodes
//! take, and what to change.

mod check;
mod checks;
mod facts;
mod nodes;
pub mod peer;
mod remarks;

use std::process::ExitCode;

use anyhow::Result;
pub use check::{Check, Status};
use clap::Args;
use comfy_table::{Cell, Color};
use facts::Facts;
pub use nodes::Node;

use crate::printed::print;
use crate::table::{Layout, Table, plain};

/// Arguments of `standpipe doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON list and nothing else
    #[arg(long)]
    json: bool,
}

/// Looks at everything and prints it. The command fails if a check does.
///
/// # Errors
/// If standard output cannot take the result.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut checks = checks::of(&Facts::gather());
    checks.extend(remarks::checks(nodes::gather()));
    if args.json {
        print(serde_json::to_string_pretty(&checks)?)?;
    } else {
        print(format_args!("{}{}", table(&checks).text(Layout::of_stdout()), remedies(&checks)))?;
    }
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn table(checks: &[Check]) -> Table {
    let mut table = plain(&["check", "", "found"]);
    for check in checks {
        let (word, colour) = match check.status {
            Status::Ok => ("ok", Color::Green),
            Status::Warn => ("warn", Color::Yellow),
            Status::Fail => ("FAIL", Color::Red),
            Status::Info => ("info", Color::Blue),
        };
        table.add_row([Cell::new(check.check), Cell::new(word).fg(colour), Cell::new(&check.value)]);
    }
    table
}

/// What to do, a line each and outside the table: what is to be copied is not cut up there.
fn remedies(checks: &[Check]) -> String {
    let told = checks.iter().filter(|check| !check.remedy.is_empty());
    let lines: String = told.map(|check| format!("\n{}: {}", check.check, check.remedy)).collect();
    if lines.is_empty() { lines } else { format!("\n\nWhat to do, or to know:{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_stands_whole_on_a_line() {
        let remedy = "a long explanation of why: ".repeat(9) + "echo advise > /sys/kernel/mm/enabled";
        let check = |remedy: &str| Check {
            check: "c",
            status: Status::Warn,
            value: "v".to_owned(),
            remedy: remedy.to_owned(),
            node: None,
        };
        assert!(remedies(&[check(&remedy)]).lines().any(|line| line == format!("c: {remedy}")));
        assert_eq!(remedies(&[check("")]), "");
    }

    #[test]
    fn a_check_is_written_as_promised() {
        let check = Check {
            check: "memfd",
            status: Status::Warn,
            value: "v".to_owned(),
            remedy: "r".to_owned(),
            node: None,
        };
        let json = serde_json::to_string(&[&check]).expect("plain data");
        assert_eq!(json, r#"[{"check":"memfd","status":"warn","value":"v","remedy":"r"}]"#);
        assert!(table(&[check]).text(Layout::FILE).contains("warn"));
    }
}

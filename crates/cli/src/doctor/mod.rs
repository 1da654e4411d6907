//! `standpipe doctor`: what this host allows, which path each kind of memory takes here, how long the calls
//! of running nodes take, and what to change.

mod check;
mod checks;
mod facts;
mod network;
mod nodes;
mod remarks;

use std::process::ExitCode;

use anyhow::Result;
pub(crate) use check::{Check, Status};
use clap::Args;
use comfy_table::{Cell, Color};
use facts::Facts;
use measure::stdout::print;
use measure::table::{Layout, Table, plain, wrapped};
use serde::Serialize;

use crate::elsewhere::{self, Far};

/// Arguments of `standpipe doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 when nothing fails, whatever is warned of; 1 when a check fails: then no job can start."
)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object and nothing else: `checks`, and as `advice` what to do about them
    #[arg(long)]
    json: bool,
}

/// Looks at everything and prints it. The command fails if a check does.
///
/// # Errors
/// If standard output cannot take the result.
pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut checks = checks::of(&Facts::gather());
    checks.extend(remarks::checks(nodes::gather()));
    checks.extend(elsewhere::found().iter().map(Far::check));
    if args.json {
        print(serde_json::to_string_pretty(&Told { advice: advice(&checks).collect(), checks: &checks })?)?;
    } else {
        let layout = Layout::of_stdout();
        print(format_args!("{}{}", table(&checks).text(layout), remedies(&checks, layout)))?;
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

/// The output as JSON.
#[derive(Debug, Serialize)]
struct Told<'a> {
    checks: &'a [Check],
    advice: Vec<Advice<'a>>,
}

/// Advice about a check that warns or fails.
#[derive(Debug, Serialize)]
struct Advice<'a> {
    check: &'a str,
    status: Status,
    advice: &'a str,
}

/// The worst first.
fn advice(checks: &[Check]) -> impl Iterator<Item = Advice<'_>> {
    let of = |wanted: Status| {
        let told = checks.iter().filter(move |check| check.status == wanted && !check.remedy.is_empty());
        told.map(|check| Advice { check: check.check, status: check.status, advice: &check.remedy })
    };
    of(Status::Fail).chain(of(Status::Warn))
}

/// The text below the table: advice first, then facts. No line break parts a command.
fn remedies(checks: &[Check], layout: Layout) -> String {
    let mut text = String::new();
    let mut list = |title: &str, told: &mut dyn Iterator<Item = (&str, &str)>| {
        let lines: String = told
            .map(|(check, advice)| format!("\n{}", wrapped(&format!("{check}: {advice}"), layout)))
            .collect();
        if !lines.is_empty() {
            text += &format!("\n\n{title}:{lines}");
        }
    };
    list("What to do", &mut advice(checks).map(|advice| (advice.check, advice.advice)));
    let known = checks.iter().filter(|check| matches!(check.status, Status::Ok | Status::Info));
    let known = known.filter(|check| !check.remedy.is_empty());
    list("To know", &mut known.map(|check| (check.check, check.remedy.as_str())));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Status, remedy: &str) -> Check {
        Check { check: "c", status, value: "v".to_owned(), remedy: remedy.to_owned(), node: None }
    }

    #[test]
    fn what_to_do_is_as_wide_as_the_table_and_commands_are_whole() {
        let command = "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled`";
        let remedy = "a long explanation of why: ".repeat(9) + command;
        let layout = Layout { columns: 80, ..Layout::FILE };
        let told = remedies(&[check(Status::Info, "a fact"), check(Status::Warn, &remedy)], layout);
        assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
        assert!(told.lines().any(|line| line.contains(command)), "{told}");
        let (first, then) = told.split_once("To know:").expect("a fact");
        assert!(first.contains("What to do:\nc: a long") && then == "\nc: a fact", "{told}");
        assert_eq!(remedies(&[check(Status::Warn, "")], layout), "");
    }

    #[test]
    fn what_is_told_is_written_as_promised() {
        let checks = [check(Status::Info, "known"), check(Status::Warn, "r"), check(Status::Fail, "first")];
        let told = Told { advice: advice(&checks).collect(), checks: &checks[1..2] };
        let json = serde_json::to_string(&told).expect("plain data");
        let checked = r#"{"check":"c","status":"warn","value":"v","remedy":"r"}"#;
        let advised =
            r#"{"check":"c","status":"fail","advice":"first"},{"check":"c","status":"warn","advice":"r"}"#;
        assert_eq!(json, format!(r#"{{"checks":[{checked}],"advice":[{advised}]}}"#));
        assert!(table(&checks).text(Layout::FILE).contains("warn"));
    }
}

//! Everything, in short forms, in order.

use crate::outcome::Outcome;
use crate::{checks, fuzz, nightly};
use std::process::ExitCode;
use std::time::Instant;

/// A check and its name.
type Named = (&'static str, fn() -> Outcome);

const FUZZ_SECONDS: u64 = 10;

const CHECKS: &[Named] = &[
    ("lint", checks::lint),
    ("loom", checks::loom),
    ("miri", nightly::miri),
    ("tsan", nightly::tsan),
    ("asan", nightly::asan),
    ("fuzz", || fuzz::run(FUZZ_SECONDS, None)),
];

/// Runs every check, also after one failed, and ends with the line `checks: N passed, N failed, N skipped`.
pub(crate) fn run() -> ExitCode {
    let mut rows = Vec::new();
    for (name, check) in CHECKS {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = check();
        outcome.announce(name);
        rows.push((*name, outcome, start.elapsed().as_secs()));
    }
    println!("\n{}", table(&rows));
    ExitCode::from(u8::from(rows.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)))))
}

fn table(rows: &[(&str, Outcome, u64)]) -> String {
    let mut text = format!("{:<8}{:<9}{:>7}  why\n", "check", "result", "seconds");
    for (name, outcome, seconds) in rows {
        text += &format!("{name:<8}{:<9}{seconds:>7}  {}\n", outcome.word(), outcome.reason());
    }
    let count = |word| rows.iter().filter(|(_, outcome, _)| outcome.word() == word).count();
    let (passed, failed, skipped) = (count("passed"), count("FAILED"), count("skipped"));
    text + &format!("checks: {passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_check_and_counts_them() {
        let rows = [
            ("lint", Outcome::Passed, 12),
            ("miri", Outcome::Skipped("no network".into()), 1),
            ("loom", Outcome::Failed("`cargo test` exited with 101".into()), 3),
        ];
        let lines: Vec<String> = table(&rows).lines().map(str::to_owned).collect();
        assert_eq!(lines[2], "miri    skipped        1  no network");
        assert_eq!(lines[4], "checks: 1 passed, 1 failed, 1 skipped");
    }
}

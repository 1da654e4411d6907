//! Everything, in short forms, one after the other.

use crate::form::Form;
use crate::outcome::Outcome;
use crate::{checks, command, fuzz, hits, nightly, programs, verbs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A check and its name.
type Named = (&'static str, fn() -> Outcome);

/// How a check went. On a busy machine seconds of processor say more than those of the clock.
struct Row {
    name: &'static str,
    outcome: Outcome,
    clock: Duration,
    processor: Duration,
}

const FUZZ_SECONDS: u64 = 3;

/// Which of the checks.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Checks that depend on no time: they may run beside everything else, at the lowest priority.
    Patient,
    /// All other checks.
    Timed,
}

const PATIENT: &[Named] = &[
    ("miri", || nightly::miri(Form::Short)),
    ("loom", checks::loom),
    ("hits", hits::hits),
    ("fuzz", || fuzz::run(FUZZ_SECONDS, None)),
];

const TIMED: &[Named] = &[
    ("fmt", checks::fmt),
    ("clippy", checks::clippy),
    ("doc", checks::doc),
    ("terminals", programs::terminals),
    ("bare", programs::bare),
    ("verbs", || verbs::verbs(Form::Short)),
    ("tsan", || nightly::tsan(Form::Short)),
    ("asan", || nightly::asan(Form::Short)),
];

/// Runs this part of the checks, or all, also after one failed, and ends with the line `checks: N passed, N
/// failed, N skipped`.
pub(crate) fn run(part: Option<Part>) -> ExitCode {
    let of =
        |wanted, checks: &'static [Named]| if part.is_none_or(|part| part == wanted) { checks } else { &[] };
    let mut rows = Vec::new();
    for (name, check) in of(Part::Timed, TIMED).iter().chain(of(Part::Patient, PATIENT)) {
        println!("\n== {name}");
        let (start, before) = (Instant::now(), command::processor());
        let outcome = check();
        outcome.announce(name);
        let processor = command::processor() - before;
        rows.push(Row { name, outcome, clock: start.elapsed(), processor });
    }
    println!("\n{}", table(&rows));
    ExitCode::from(u8::from(rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_)))))
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("{:<10}{:<9}{:>8}{:>13}  why\n", "check", "result", "clock s", "processor s");
    for Row { name, outcome, clock, processor } in rows {
        let (word, why) = (outcome.word(), outcome.reason());
        let (clock_s, processor_s) = (clock.as_secs(), processor.as_secs());
        text += &format!("{name:<10}{word:<9}{clock_s:>8}{processor_s:>13}  {why}\n");
    }
    let count = |word| rows.iter().filter(|row| row.outcome.word() == word).count();
    let (passed, failed, skipped) = (count("passed"), count("FAILED"), count("skipped"));
    text + &format!("checks: {passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_told_names_first() {
        let log = "test good ... ok\ntest slow::bad ... FAILED\n\nthread 'slow::bad' panicked at src/a.rs:3:5:\n\
                   two is not three\n left: 2\nright: 3\nnote: run with a backtrace\n\
                   thread 'wordy' panicked at src/c.rs:1:1:\n1\n2\n3\n4\n5\n6\n7\n8\n9\n\nerror[E0308]: mismatched types\n\
                   WARNING: ThreadSanitizer: data race (pid=1)\nSUMMARY: ThreadSanitizer: data race src/b.rs:9\n\
                   an error: in the middle of a line\nxtask tsan: FAILED: `cargo test` exited with 66\n\
                   verbs: limits FAILED: 137\n[   61.2] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!\n";
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("log");
        std::fs::write(&file, log).expect("written");
        let told = command::run("awk -f .ci/what-failed").arg(&file).output().expect("awk");
        let lines: Vec<&str> = told.lines().collect();
        let expected = [
            "test slow::bad ... FAILED",
            "xtask tsan: FAILED: `cargo test` exited with 66",
            "verbs: limits FAILED: 137",
            "thread 'slow::bad' panicked at src/a.rs:3:5:",
            "two is not three",
            " left: 2",
            "right: 3",
            "thread 'wordy' panicked at src/c.rs:1:1:",
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
            "7",
            "8",
            "error[E0308]: mismatched types",
            "WARNING: ThreadSanitizer: data race (pid=1)",
            "SUMMARY: ThreadSanitizer: data race src/b.rs:9",
            "[   61.2] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
        ];
        assert_eq!(lines, expected);
        let many: String = (0..100).map(|test| format!("test number_{test} ... FAILED\n")).collect();
        std::fs::write(&file, many).expect("written");
        let told = command::run("awk -f .ci/what-failed").arg(&file).output().expect("awk");
        assert!(told.lines().count() == 61 && told.ends_with("and 40 lines more, above\n"), "{told}");
    }

    #[test]
    fn the_table_names_each_check_and_counts_them() {
        let row = |name, outcome| Row {
            name,
            outcome,
            clock: Duration::from_secs(12),
            processor: Duration::from_secs(20),
        };
        let rows = [
            row("lint", Outcome::Passed),
            row("miri", Outcome::Skipped("no network".into())),
            row("loom", Outcome::Failed("`cargo test` exited with 101".into())),
        ];
        let lines: Vec<String> = table(&rows).lines().map(str::to_owned).collect();
        assert_eq!(lines[2], "miri      skipped        12           20  no network");
        assert_eq!(lines[4], "checks: 1 passed, 1 failed, 1 skipped");
    }
}

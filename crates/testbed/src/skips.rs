//! Tests that cannot run here say so.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};

/// The variable of the environment that names the file to which each skip adds its line.
pub const SKIPS: &str = "STANDPIPE_TEST_SKIPS";

/// Says that the test which calls this skips, or a part of it, and why.
///
/// The harness shows what a test prints only when it fails: so this writes past it, to the process's standard
/// error. The same line is added to the file that [`SKIPS`] names, for whoever runs the tests to judge.
pub fn skip(why: impl Display) {
    let skip = Skip { program: program(), test: test(), why: why.to_string() };
    // With standard error closed there is nowhere to say it.
    let _ = writeln!(io::stderr(), "{skip}");
    if let Some(file) = std::env::var_os(SKIPS) {
        let mut file = File::options().append(true).create(true).open(&file).expect("the file of skips");
        // At once: other tests write to it, too.
        file.write_all(format!("{skip}\n").as_bytes()).expect("room for a line");
    }
}

/// The variable of the environment by which tests have time: `.ci/run` and `cargo xtask tests` set it.
pub const LONG: &str = "STANDPIPE_TEST_LONG";

/// Whether the test that calls this is to take its time for `what`, which it does where [`LONG`] is set. If
/// not, that is a skip.
pub fn has_time_for(what: impl Display) -> bool {
    let has = std::env::var_os(LONG).is_some();
    if !has {
        skip(format_args!("{what} takes long; `cargo xtask tests` has it"));
    }
    has
}

/// A test that skipped, and why. Its text is `skipped: PROGRAM::TEST: WHY`, on one line.
#[derive(Debug)]
pub struct Skip {
    program: String,
    test: String,
    why: String,
}

impl Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = self.why.split_whitespace().collect::<Vec<_>>().join(" ");
        write!(f, "skipped: {}::{}: {why}", self.program, self.test)
    }
}

/// The test program's name, without what cargo adds to it.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    without_hash(&name).to_owned()
}

fn without_hash(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => name,
    }
}

/// The harness names each test's thread after it; where it starts none, its arguments name the test at best.
fn test() -> String {
    let thread = std::thread::current();
    let named = thread.name().filter(|name| *name != "main").map(str::to_owned);
    let alone = || std::env::args().skip(1).find(|word| !word.starts_with('-'));
    named.or_else(alone).unwrap_or_else(|| "a test".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The other side of the test below.
    #[test]
    fn child() {
        if std::env::var_os(SKIPS).is_some_and(|file| file.to_string_lossy().ends_with("the skips")) {
            skip("no such\nthing here");
        }
    }

    #[test]
    fn a_skip_is_told_though_the_test_passes_and_stands_in_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("the skips");
        for _ in 0..2 {
            let mut itself = Command::new(std::env::current_exe().expect("a path"));
            itself.args(["--exact", "skips::tests::child"]).env(SKIPS, &file);
            let output = itself.output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}");
            assert_eq!(said, "skipped: standpipe_testbed::skips::tests::child: no such thing here\n");
        }
        let lines = std::fs::read_to_string(&file).expect("it was written");
        assert_eq!(lines, "skipped: standpipe_testbed::skips::tests::child: no such thing here\n".repeat(2));
    }

    #[test]
    fn programs_are_named_without_their_hashes() {
        assert_eq!(without_hash("words-0123456789abcdef"), "words");
        assert_eq!(without_hash("two-words"), "two-words");
    }
}

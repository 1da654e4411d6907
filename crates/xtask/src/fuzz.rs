//! Coverage-guided fuzzing of the targets in `fuzz/`, which is a workspace of its own: libFuzzer is C++, and
//! who only builds or tests Standpipe needs no C++ compiler.

use crate::command::{self, Failure, root};
use crate::nightly;
use crate::outcome::Outcome;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;

/// What lets libFuzzer see which branches an input took.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Zsanitizer=address -Dwarnings";

/// No peer sends more in one piece.
const INPUT_BYTES_MAX: usize = 65_536;

/// Runs each target, or only the one named, for so many seconds. What made one crash stays in
/// `fuzz/artifacts`.
pub(crate) fn run(seconds: u64, only: Option<&str>) -> Outcome {
    if command::run("c++ --version").output().is_err() {
        return Outcome::Skipped("libFuzzer needs a C++ compiler (`c++`)".into());
    }
    if let Err(missing) = nightly::install(&[]) {
        return missing.into();
    }
    let targets: Vec<String> =
        targets().into_iter().filter(|name| only.is_none_or(|only| only == name)).collect();
    if targets.is_empty() {
        return Outcome::Failed(format!("there is no target {}", only.unwrap_or("in fuzz/fuzz_targets")));
    }
    build(&targets).and_then(|()| fuzz_all(&targets, seconds)).into()
}

/// Fuzzes as many targets at a time as there are cores: each works on one.
fn fuzz_all(targets: &[String], seconds: u64) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    targets.chunks(cores).try_for_each(|some| {
        std::thread::scope(|scope| {
            let runs: Vec<_> = some.iter().map(|target| scope.spawn(move || fuzz(target, seconds))).collect();
            let results: Vec<_> =
                runs.into_iter().map(|run| run.join().expect("it does not panic")).collect();
            results.into_iter().collect()
        })
    })
}

/// The names of the targets, in order.
fn targets() -> Vec<String> {
    let entries = fs::read_dir(root().join("fuzz/fuzz_targets"));
    let files = entries.into_iter().flatten().flatten();
    let mut names: Vec<String> =
        files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned)).collect();
    names.sort();
    names
}

fn fuzz(target: &str, seconds: u64) -> Result<(), Failure> {
    let fuzz = root().join("fuzz");
    let corpus = fuzz.join("corpus").join(target);
    let artifacts = fuzz.join("artifacts").join(target);
    for dir in [&corpus, &artifacts] {
        fs::create_dir_all(dir).map_err(|error| Failure(format!("{}: {error}", dir.display())))?;
    }
    let (result, said) = command::run(&format!("target/fuzz/{}/release/{target}", triple()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-timeout=10")
        .arg("-rss_limit_mb=2048")
        .arg("-verbosity=0")
        .arg("-print_final_stats=1")
        .arg(corpus)
        .arg(seeds(target))
        .limit_s(seconds + 60)
        .complaint();
    match result {
        Ok(()) => println!("{target}: {}", statistics(&said)),
        // The crash, the input and where it is kept.
        Err(_) => eprintln!("{said}"),
    }
    result
}

/// Inputs that are kept with the target, from which each run begins. What it finds besides goes to
/// `fuzz/corpus`.
fn seeds(target: &str) -> PathBuf {
    root().join("fuzz/seeds").join(target)
}

/// The statistics at the end of what libFuzzer says, on one line.
fn statistics(said: &str) -> String {
    let one = |line: &str| {
        let (name, value) = line.strip_prefix("stat::")?.split_once(':')?;
        Some(format!("{} {}", name.replace('_', " "), value.trim()))
    };
    said.lines().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// Builds all of these at once: each core has one to link.
fn build(targets: &[String]) -> Result<(), Failure> {
    let programs: String = targets.iter().map(|target| format!(" --bin {target}")).collect();
    let triple = triple();
    let line =
        format!("cargo +nightly build --release --target {triple} --manifest-path fuzz/Cargo.toml{programs}");
    command::run(&line)
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_TARGET_DIR", root().join("target/fuzz"))
        .status()
}

fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_seeds_and_is_built() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("the targets' manifest");
        assert!(!targets().is_empty());
        for target in targets() {
            let kept = fs::read_dir(seeds(&target)).into_iter().flatten().count();
            assert!(kept > 0, "{target} has no inputs in {}", seeds(&target).display());
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is in no manifest");
        }
    }

    #[test]
    fn statistics_are_one_line() {
        let said = "\"\\377\" # Uses: 61\nstat::number_of_executed_units: 20988\nstat::peak_rss_mb:              408\n";
        assert_eq!(statistics(said), "number of executed units 20988, peak rss mb 408");
        assert_eq!(statistics("==1== ERROR: libFuzzer"), "");
    }
}

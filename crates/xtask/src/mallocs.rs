//! The time of `malloc` with the preloaded library, beside Debian's mimalloc and the system's own.

use std::path::{Path, PathBuf};

use crate::command::{Failure, root, run};
use crate::outcome::Outcome;

const SOURCE: &str = "crates/malloc/benches/mallocs.c";

/// Where Debian's package `libmimalloc2.0` has it, below the folder of its libraries.
const DEBIANS: &str = "libmimalloc.so.2";

/// Each program runs so often with each allocator, in turns; the median counts.
const TURNS: usize = 9;

/// The benchmarks, and what a step of each is.
const SHOWN: [(&str, &str); 3] = [
    ("churn", "free 16 bytes and allocate others"),
    ("others", "allocate, and free by another thread"),
    ("growth", "grow a vector by one half (realloc)"),
];

/// How many times Debian's time ours may take.
const BOUND: f64 = 1.2;

/// Measures and prints; how fast it is never fails.
pub(crate) fn mallocs(target: &Path) -> Outcome {
    let (ours, program) = match build(target) {
        Ok(built) => built,
        Err(failure) => return Outcome::Failed(failure.0),
    };
    let debians =
        run("cc -print-multiarch").output().map(|triple| format!("/usr/lib/{}/{DEBIANS}", triple.trim()));
    let debians = debians.ok().map(PathBuf::from).filter(|library| library.exists());
    let Some(debians) = debians else {
        return Outcome::Skipped(format!("there is no {DEBIANS} (Debian: libmimalloc2.0)"));
    };
    println!("nanoseconds of a step; the median of {TURNS} turns, and the least of 7 repetitions in each\n");
    println!("{:<40}{:>10}{:>10}{:>10}{:>8}", "", "ours", "mimalloc", "system's", "ratio");
    for (name, what) in SHOWN {
        let mut columns = [const { Vec::new() }; 3];
        for _ in 0..TURNS {
            for (column, library) in columns.iter_mut().zip([Some(&ours), Some(&debians), None]) {
                match one(&program, name, library.map(PathBuf::as_path)) {
                    Ok(taken) => column.push(taken),
                    Err(failure) => return Outcome::Failed(failure.0),
                }
            }
        }
        let [ours, debians, systems] = columns.map(median);
        let (ratio, word) = (ours / debians, if ours <= BOUND * debians { "holds" } else { "BROKEN" });
        println!("{what:<40}{ours:>10.1}{debians:>10.1}{systems:>10.1}{ratio:>8.2}  bound {BOUND}: {word}");
    }
    Outcome::Passed
}

/// Builds the library and the program, and gives where they are.
fn build(target: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    run("cargo build --locked --release --package standpipe-malloc").status()?;
    let program = target.join("release/mallocs");
    run("cc -O2 -fno-builtin -pthread").arg(root().join(SOURCE)).arg("-o").arg(&program).status()?;
    Ok((target.join("release/libstandpipe_malloc.so"), program))
}

/// The nanoseconds that one run prints.
fn one(program: &Path, name: &str, library: Option<&Path>) -> Result<f64, Failure> {
    let command = run("").arg(program).arg(name);
    let printed = match library {
        Some(library) => command.env("LD_PRELOAD", library).output()?,
        None => command.output()?,
    };
    printed.trim().parse().map_err(|_| Failure(format!("{name} has printed {printed:?}")))
}

fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

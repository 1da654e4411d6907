//! Calls that a program polls give the processor away where there are more processes than cores.

mod support;

use std::path::PathBuf;

use support::{Job, Programs, STRICT, folder};

/// A program of `tests/polling/`, all of whose processes say that they are done.
fn gives_away(layer: &str) {
    let programs = Programs::new();
    let include = format!("-I{}", folder("tests/polling").display());
    let flags: Vec<&str> = STRICT.iter().copied().chain([include.as_str(), "-fno-pie", "-no-pie"]).collect();
    let program: PathBuf = programs.compile_at(&folder("tests/polling").join(format!("{layer}.c")), &flags);
    let ran = Job::of(2).arg("2").run_well(&program);
    (0..2).for_each(|rank| assert!(ran.says(&format!("node {rank} is done")), "{ran:#?}"));
}

#[test]
fn fm_gives_the_processor_away() {
    gives_away("fm");
}

#[test]
fn gam_gives_the_processor_away() {
    gives_away("gam");
}

#[test]
fn bip_gives_the_processor_away() {
    gives_away("bip");
}

#[test]
fn via_gives_the_processor_away() {
    gives_away("via");
}

#[test]
fn pm_gives_the_processor_away() {
    gives_away("pm");
}

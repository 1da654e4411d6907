//! The checks that the developers' page names, and those that there are.

use std::collections::BTreeSet;
use std::process::Command;

/// Where the checks are explained.
const PAGE: &str = include_str!("../../../docs/DEVELOPING.md");

#[test]
fn every_check_that_is_explained_is_there() {
    let named: BTreeSet<&str> = PAGE
        .split("`cargo xtask ")
        .skip(1)
        .filter_map(|rest| rest.split(|letter: char| letter != '-' && !letter.is_ascii_lowercase()).next())
        .collect();
    assert!(named.len() > 10 && named.contains("real-storms"), "{named:?}");
    for name in named {
        let help = Command::new(env!("CARGO_BIN_EXE_xtask")).args([name, "--help"]).output();
        assert!(help.expect("it starts").status.success(), "no check {name}");
    }
}

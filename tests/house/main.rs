//! The house rules of this repository, as tests over its own sources.
//!
//! Each rule has one test here, which prints one line per finding, and stands in a module that is itself tested
//! against small broken sources.

mod cycles;
mod fences;
mod finding;
mod lengths;
mod names;
mod ratio;
mod source;
mod walls;
mod workspace;

use finding::{Finding, assert_none};
use source::Tree;

fn trees() -> Vec<Tree> {
    workspace::trees(&workspace::packages())
}

/// Every finding of `check` over the workspace, once, even where targets share files.
fn all(check: impl Fn(&Tree) -> Vec<Finding>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = trees().iter().flat_map(check).collect();
    findings.sort_by(|a, b| (&a.file, a.line, &a.what).cmp(&(&b.file, b.line, &b.what)));
    findings.dedup();
    findings
}

#[test]
fn every_source_file_parses_and_is_reached() {
    let packages = workspace::packages();
    let trees = workspace::trees(&packages);
    assert!(trees.len() >= packages.len(), "each package has a target");
    assert_none(&all(|tree| tree.broken.clone()));
    assert_none(&workspace::orphans(&packages, &trees));
}

#[test]
fn crates_depend_only_in_the_directions_of_the_design() {
    assert_none(&walls::check(&workspace::packages()));
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    assert_none(&walls::lints(&workspace::packages()));
}

#[test]
fn no_modules_need_each_other() {
    assert_none(&all(cycles::check));
}

#[test]
fn no_function_is_too_long() {
    assert_none(&all(|tree| lengths::long_functions(&lengths::functions(tree))));
}

#[test]
fn nine_functions_in_ten_are_short() {
    let functions: Vec<_> = trees().iter().flat_map(lengths::functions).collect();
    let (all, short) = lengths::usual(&functions);
    println!("{short} of {all} production functions have at most {} lines", lengths::FN_LINES_USUAL);
    assert_none(&lengths::unusual(&functions));
}

#[test]
fn no_file_is_too_long() {
    assert_none(&all(lengths::long_files));
}

#[test]
fn unsafe_code_stands_behind_the_fences_and_is_argued() {
    assert_none(&all(fences::check));
}

#[test]
fn crates_that_promise_it_forbid_unsafe_code() {
    let packages = workspace::packages();
    assert_none(&fences::forbidding(&packages, &workspace::trees(&packages)));
}

#[test]
fn tests_against_code() {
    let lines = ratio::count(&trees());
    let ratio = lines.tests as f64 / lines.production.max(1) as f64;
    println!("{} lines of tests, {} of production code: {ratio:.2}", lines.tests, lines.production);
    assert!(lines.tests > 0, "this very file is a test");
}

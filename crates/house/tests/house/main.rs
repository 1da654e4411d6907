//! The house rules of this repository, as tests over its own sources.
//!
//! Each rule has one test here, which prints one line per finding, and stands in a module that is itself
//! tested against small broken sources.

mod ceilings;
mod circles;
mod comment_prose;
mod comments;
mod cycles;
mod decorators;
mod fences;
mod fields;
mod finding;
mod graph;
mod guest;
mod lengths;
mod names;
mod pages;
mod places;
mod prose;
mod ratio;
mod source;
mod walls;
mod workspace;

use ceilings::{Ceilings, Count};
use finding::{Finding, assert_none};
use lengths::Function;
use source::{File, Tree};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use workspace::Package;

/// What all checks say about the workspace: parsing it takes longer than judging it, so that is done once.
struct Report {
    broken: Vec<Finding>,
    orphans: Vec<Finding>,
    walls: Vec<Finding>,
    lints: Vec<Finding>,
    cycles: Vec<Finding>,
    decorators: Vec<Finding>,
    comments: Vec<Finding>,
    long_files: Vec<Finding>,
    fences: Vec<Finding>,
    forbidding: Vec<Finding>,
    guest: Vec<Finding>,
    functions: Vec<Function>,
    lines: ratio::Lines,
    /// By rule.
    counts: BTreeMap<&'static str, Vec<Count>>,
    ceilings: Ceilings,
}

static REPORT: LazyLock<Report> = LazyLock::new(|| {
    let packages = workspace::packages();
    let trees = workspace::trees(&packages);
    assert!(packages.len() > 1 && trees.len() >= packages.len(), "each package has a target");
    judge(&packages, &trees)
});

fn judge(packages: &[Package], trees: &[Tree]) -> Report {
    let counts = counts(packages, trees);
    let ceilings = Ceilings::load(counts.iter().map(|(rule, counts)| (*rule, counts.as_slice())));
    Report {
        broken: all(trees, |tree| tree.broken.clone()),
        orphans: workspace::orphans(packages, trees),
        walls: walls::check(packages),
        lints: walls::lints(packages),
        cycles: all(trees, cycles::check),
        decorators: decorators::check(trees),
        comments: all(trees, comments::check),
        long_files: all(trees, lengths::long_files),
        fences: all(trees, fences::check),
        forbidding: fences::forbidding(packages, trees),
        guest: all(trees, guest::check),
        functions: trees.iter().flat_map(lengths::functions).collect(),
        lines: ratio::count(trees),
        counts,
        ceilings,
    }
}

fn counts(packages: &[Package], trees: &[Tree]) -> BTreeMap<&'static str, Vec<Count>> {
    let of = |count: fn(&Tree) -> Vec<Count>| ceilings::once(trees.iter().flat_map(count).collect());
    let pages = pages::load();
    BTreeMap::from([
        ("circles", of(circles::count)),
        ("fields", of(fields::count)),
        ("hard comments", comment_prose::count(packages, trees)),
        ("long pages", pages::long(&pages)),
        ("wide lines", pages::wide(&pages)),
        ("hard sentences", hard_sentences(trees, pages)),
    ])
}

fn hard_sentences(trees: &[Tree], mut read: Vec<File>) -> Vec<Count> {
    read.push(pages::page("CHANGELOG.md".into()));
    let of_code = trees.iter().flat_map(prose::of_code).collect();
    [prose::of_pages(&read), ceilings::once(of_code)].concat()
}

#[track_caller]
fn assert_below_ceilings(rule: &str) {
    assert_none(&REPORT.ceilings.compare(rule, &REPORT.counts[rule]));
}

/// Every finding of `check`, once, even where targets share files.
fn all(trees: &[Tree], check: impl Fn(&Tree) -> Vec<Finding>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = trees.iter().flat_map(check).collect();
    findings.sort_by(|a, b| (&a.file, a.line, &a.what).cmp(&(&b.file, b.line, &b.what)));
    findings.dedup();
    findings
}

#[test]
fn every_source_file_parses() {
    assert_none(&REPORT.broken);
}

#[test]
fn every_source_file_is_reached() {
    assert_none(&REPORT.orphans);
}

#[test]
fn crates_depend_only_in_the_directions_of_the_design() {
    assert_none(&REPORT.walls);
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    assert_none(&REPORT.lints);
}

#[test]
fn no_modules_need_each_other() {
    assert_none(&REPORT.cycles);
}

#[test]
fn no_files_of_a_type_call_each_other() {
    for place in REPORT.counts["circles"].iter().flat_map(|count| &count.places) {
        println!("{}", place.what);
    }
    assert_below_ceilings("circles");
}

#[test]
fn decorators_pass_on_every_call() {
    assert_none(&REPORT.decorators);
}

#[test]
fn a_guest_starts_threads_in_one_place_and_lets_enums_grow() {
    assert_none(&REPORT.guest);
}

#[test]
fn comments_are_as_wide_as_code() {
    assert_none(&REPORT.comments);
}

#[test]
fn no_function_is_too_long() {
    assert_none(&lengths::long_functions(&REPORT.functions));
}

#[test]
fn nine_functions_in_ten_are_short() {
    let (all, short) = lengths::usual(&REPORT.functions);
    println!("{short} of {all} production functions have at most {} lines", lengths::FN_LINES_USUAL);
    assert_none(&lengths::unusual(&REPORT.functions));
}

#[test]
fn no_file_is_too_long() {
    assert_none(&REPORT.long_files);
}

#[test]
fn structs_have_few_fields() {
    assert_below_ceilings("fields");
}

#[test]
fn sentences_can_be_read_at_once() {
    assert_below_ceilings("hard sentences");
}

#[test]
fn sentences_of_comments_can_be_read_at_once() {
    assert_below_ceilings("hard comments");
}

#[test]
fn the_table_of_places_names_what_there_is() {
    assert_none(&places::check(workspace::root(), &pages::page("docs/DEVELOPING.md".into())));
}

#[test]
fn the_page_on_what_goes_between_processes_has_the_versions_that_there_are() {
    assert_none(&places::versions(workspace::root(), &pages::page("docs/WIRE.md".into())));
}

#[test]
fn pages_are_short() {
    assert_below_ceilings("long pages");
}

#[test]
fn pages_are_as_wide_as_code() {
    assert_below_ceilings("wide lines");
}

#[test]
fn unsafe_code_stands_behind_the_fences_and_is_argued() {
    assert_none(&REPORT.fences);
}

#[test]
fn crates_that_promise_it_forbid_unsafe_code() {
    assert_none(&REPORT.forbidding);
}

#[test]
fn tests_against_code() {
    let lines = REPORT.lines;
    let ratio = lines.tests as f64 / lines.production.max(1) as f64;
    println!("{} lines of tests, {} of production code: {ratio:.2}", lines.tests, lines.production);
    assert!(lines.tests > 0, "this very file is a test");
}

/// An orphan would be found: `orphans` looks at the disk, so the only fixture it can have is the disk.
#[test]
fn a_file_that_no_target_reaches_is_found() {
    let packages = workspace::packages();
    let lost = workspace::orphans(&packages, &[]);
    assert!(lost.iter().any(|finding| finding.file == "crates/house/tests/house/main.rs"));
}

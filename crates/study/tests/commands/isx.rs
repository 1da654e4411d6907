//! `standpipe-study isx`, whole: real processes, and every key looked at.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::{assert_explained, good};

/// Runs a small study to its end.
fn study(out: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_standpipe-study"))
        .args(["isx", "--json", "--keys", "5000", "--rounds", "2", "--out"])
        .arg(out)
        .args(more)
        .output()
        .expect("it starts")
}

#[test]
fn jobs_of_all_sizes_sort_and_are_verified() {
    let out = tempfile::tempdir().expect("a directory");
    let json = good(&study(out.path(), &["-n", "3", "--seed", "9"]));
    assert_explained(&json, include_str!("../../../../docs/study-isx.md"));
    let jobs = json["jobs"].as_array().expect("jobs");
    let sizes: Vec<(u64, u64)> =
        jobs.iter().filter_map(|job| Some((job["ranks"].as_u64()?, job["keys"].as_u64()?))).collect();
    assert_eq!(sizes, [(1, 5000), (2, 10_000), (3, 15_000)]);
    for job in jobs {
        let part = |name: &str| job[name].as_f64().unwrap_or_else(|| panic!("{name} in {job}"));
        let parts = ["bucket_seconds", "exchange_seconds", "sort_seconds"].map(part);
        assert!(parts.into_iter().all(|seconds| 0.0 < seconds && seconds <= part("seconds")), "{job}");
        assert!(part("keys_per_second") > 0.0 && job["fault"].is_null());
    }
    assert_eq!((&json["verified"], &json["transport"]), (&true.into(), &"shm".into()));
    let page = fs::read_to_string(out.path().join("report.html")).expect("a report");
    assert_eq!(page.matches("<svg").count(), 2);
    let command = "standpipe-study isx --ranks 3 --keys 5000 --rounds 2 --seed 9";
    assert!(json["command"] == command && page.contains(command));
    assert!(page.contains("Every sort was right"));
}

#[test]
fn a_key_that_changes_on_its_way_fails_the_study() {
    let out = tempfile::tempdir().expect("a directory");
    let output = study(out.path(), &["-n", "2", "--spoil"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the keys are not those that were drawn"), "{said}");
    let kept = fs::read_to_string(out.path().join("report.html")).expect("a report all the same");
    assert!(kept.contains("WRONG: a sort by 1 process"));
}

#[test]
fn over_libfabric_keys_are_sorted_likewise() {
    if let Err(error) = standpipe::network::version() {
        return testbed::skip(&error);
    }
    let out = tempfile::tempdir().expect("a directory");
    let json = good(&study(out.path(), &["-n", "2", "--transport", "ofi:tcp"]));
    assert_eq!((&json["verified"], &json["transport"]), (&true.into(), &"ofi:tcp".into()));
}

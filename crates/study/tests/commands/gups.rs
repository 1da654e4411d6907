//! `standpipe-study gups`, whole: real processes, and every word of their tables looked at.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{assert_explained, good};

/// Runs a small study to its end.
fn study(out: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_standpipe-study"))
        .args(["gups", "--alone", "--json", "--out"])
        .arg(out)
        .args(more)
        .output()
        .expect("it starts")
}

fn assert_right(json: &Value, updates: [u64; 4]) {
    let points = json["points"].as_array().expect("points");
    let largest: Vec<&Value> = points[points.len() - 4..].iter().collect();
    for (point, (way, updates)) in
        largest.iter().zip(["put", "atomic", "message", "batches"].into_iter().zip(updates))
    {
        assert_eq!((&point["way"], &point["updates"]), (&way.into(), &updates.into()), "{point}");
        let (gups, spread) = (point["gups"].as_f64(), &point["gups_spread"]);
        assert!(
            gups.is_some_and(|gups| gups > 0.0) && spread[0].as_f64() <= gups && gups <= spread[1].as_f64()
        );
    }
    assert_eq!(json["errors"], 0);
}

#[test]
fn each_way_updates_tables_of_all_sizes_and_every_word_is_right() {
    let out = tempfile::tempdir().expect("a directory");
    let output = study(out.path(), &["-n", "3", "--table", "64K", "--rounds", "2"]);
    let json = good(&output);
    assert_explained(&json, include_str!("../../../../docs/study-gups.md"));
    assert_right(&json, [32_768, 32_768, 2048, 32_768]);
    assert_eq!(
        (&json["ranks"], &json["transport"], &json["lookahead"]),
        (&3.into(), &"shm".into(), &1024.into())
    );
    let tables: Vec<u64> = json["points"]
        .as_array()
        .expect("points")
        .iter()
        .step_by(4)
        .filter_map(|point| point["table_bytes"].as_u64())
        .collect();
    assert_eq!(tables, [16 << 10, 64 << 10], "none below 8 KiB");
    let page = fs::read_to_string(out.path().join("report.html")).expect("a report");
    assert_eq!(page.matches("<svg").count(), 1);
    let command = json["command"].as_str().expect("a command line");
    assert_eq!(command, "standpipe-study gups --ranks 3 --table 65536 --updates 32768 --rounds 2 --alone");
    assert!(page.contains(command) && page.contains("Every word of every table was what it must be."));
}

#[test]
fn an_update_that_was_not_made_fails_the_study() {
    let out = tempfile::tempdir().expect("a directory");
    let output = study(out.path(), &["--table", "8K", "--rounds", "1", "--spoil"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("words of the tables were wrong"), "{said}");
    let output = study(out.path(), &["--table", "48K"]);
    assert_eq!(output.status.code(), Some(2), "no power of two");
}

#[test]
fn over_libfabric_every_word_is_right() {
    if let Err(error) = standpipe::network::version() {
        return testbed::skip(&error);
    }
    let out = tempfile::tempdir().expect("a directory");
    let more = [
        "--transport",
        "ofi:tcp",
        "--strategy",
        "firehose",
        "--table",
        "8K",
        "--updates",
        "4096",
        "--rounds",
        "1",
    ];
    let json = good(&study(out.path(), &more));
    assert_right(&json, [4096, 4096, 256, 4096]);
    assert_eq!((&json["transport"], &json["strategy"]), (&"ofi:tcp".into(), &"firehose".into()));
}

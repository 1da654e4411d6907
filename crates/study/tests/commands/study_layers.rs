//! `standpipe-study layers` as a user calls it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::good;

fn study(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_standpipe-study"))
        .args(["layers", "--small", "--rounds", "1", "--out"])
        .arg(folder)
        .args(args)
        .output()
        .expect("the command runs")
}

fn names(values: &Value, key: &str) -> BTreeSet<String> {
    let all = values.as_array().expect("a list").iter();
    all.map(|value| value[key].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn every_layer_has_its_figures_beside_the_bare_library() {
    let folder = TempDir::new().expect("there is room");
    let args = ["--transport", "shm", "--sizes", "8,100,64K", "--senders", "2", "--json"];
    let told = good(&study(folder.path(), &args));
    let layers = names(&told["rows"], "layer");
    let mut all = names(&told["features"], "layer");
    // It runs, and no bench measures it yet: the report names it as missing.
    assert!(all.remove("via"));
    all.extend(["bare message", "bare put"].map(str::to_owned));
    assert_eq!(layers, all);
    let rows = told["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 3 * layers.len());
    for row in rows {
        let positive = |key: &str| row[key].as_f64().is_some_and(|value| value > 0.0);
        for key in ["latency_us", "bandwidth_mbps", "bandwidth_both_mbps", "bandwidth_many_mbps", "gap_us"] {
            assert!(positive(key), "{key}: {row}");
        }
        let is_buffered = row["size"].as_u64() < Some(5000);
        for key in ["overhead_send_us", "overhead_receive_us"] {
            assert_eq!(positive(key), is_buffered, "{key}: {row}");
        }
        let copies = ["copies_send", "copies_receive"].map(|key| row[key].as_f64().expect("counted"));
        // On one host some processor moves each byte at least once.
        let least = if row["size"].as_u64() == Some(8) { 0.0 } else { 1.0 };
        assert!(copies[0] + copies[1] >= least, "{row}");
    }
    let text = std::fs::read_to_string(folder.path().join("report.html")).expect("a report");
    assert!(text.contains("Latency by size over shm") && text.contains("What was published"));
    assert_eq!((&told["verified"], &told["emulated"]), (&true.into(), &false.into()));
    // The tables of results come first. The rows of numbers are folded at the end.
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}"));
    let order = ["Features, as in", "What was published", "Latency by size", "All numbers", "Times over shm"];
    assert!(order.map(at).is_sorted(), "{order:?}");
    assert!(text.contains("<summary>Times over shm, in µs</summary>"));
    let is_busy = told["busy"].as_bool().expect("it is known");
    assert_eq!(text.contains("Other programs kept this machine busy"), is_busy);
    assert_eq!(text.contains("class=\"busy\""), is_busy);
}

#[test]
fn features_have_tests_and_published_figures_a_sentence() {
    let folder = TempDir::new().expect("there is room");
    let args = ["--transport", "shm", "--sizes", "8", "--senders", "0", "--layers", "gam", "--json"];
    let told = good(&study(folder.path(), &args));
    assert_eq!(names(&told["rows"], "layer").len(), 3, "the layer that was asked for, and what is bare");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for feature in told["features"].as_array().expect("a list") {
        let test = feature["test"].as_str().expect("a text");
        let (file, name) = test.split_once("::").expect("a file and a function");
        let text = std::fs::read_to_string(root.join(file)).expect("the file is there");
        assert!(text.contains(&format!("fn {name}()")), "{feature}");
        let original = &feature["original"];
        assert!(original["holds"].is_string() && original["source"].is_string(), "{feature}");
    }
    assert_eq!(names(&told["missing"], "layer"), ["VIA", "vmmc-2"].map(str::to_owned).into());
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("a report");
    assert!(page.contains("vmmc-2 (missing here)") && page.contains("then: none (recalled)"));
    assert!(
        page.contains("VIA, the standard that followed them: it runs here, and no bench measures it yet")
    );
    assert_eq!(names(&told["features"], "layer").len(), 5);
    assert_eq!(names(&told["features"], "feature").len(), 11);
    for figure in told["paper"].as_array().expect("a list") {
        for key in ["layer", "what", "published", "source"] {
            assert!(figure[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {figure}");
        }
    }
}

#[test]
fn what_is_not_there_is_refused_before_anything_runs() {
    let folder = TempDir::new().expect("there is room");
    for (args, part) in [
        (&["--layers", "vmmc9"][..], "vmmc9"),
        (&["--sizes", "0"], "0"),
        (&["--sizes", "64M,65M"], "68157440"),
        (&["--transport", "carrier pigeon"], "carrier pigeon"),
    ] {
        let output = study(&folder.path().join("out"), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(part), "{args:?}: {error}");
        assert!(!folder.path().join("out").exists(), "{args:?} left a folder");
    }
}

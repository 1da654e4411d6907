//! The simulated studies from the command line: what their JSON has, and that their reports are there.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

/// Runs a study to its end; gives its JSON and its page.
fn study(words: &[&str], out: &Path) -> (Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_standpipe"))
        .arg("study")
        .args(words)
        .arg("--json")
        .arg("--out")
        .arg(out)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else");
    let kept = fs::read(out.join("result.json")).expect("a result");
    assert_eq!(serde_json::from_slice::<Value>(&kept).expect("JSON"), json);
    (json, fs::read_to_string(out.join("report.html")).expect("a report"))
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn pindown_has_a_row_for_each_hit_ratio_and_the_papers_figures_beside_two() {
    let out = tempfile::tempdir().expect("a directory");
    let (json, page) = study(&["pindown", "--puts", "100"], out.path());
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 21);
    for (row, paper) in [(&rows[0], 78.7), (&rows[20], 108.8)] {
        assert_eq!(number(row, "paper_mb_per_s"), paper);
        assert!(number(row, "deviation_percent").abs() < 2.0, "{row}");
    }
    assert!(rows.windows(2).all(|pair| number(&pair[0], "mb_per_s") < number(&pair[1], "mb_per_s")));
    assert_eq!(page.matches("<svg").count(), 1);
    assert!(page.contains("standpipe study pindown --puts 100") && page.contains("108.8"));
}

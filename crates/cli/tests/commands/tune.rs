//! `standpipe tune` as a user calls it.

use std::process::Command;

use serde_json::Value;

#[test]
fn what_each_way_costs_is_measured_and_the_choices_are_judged() {
    let out = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let output =
        command.args(["tune", "--quick", "--json", "--out"]).arg(out.path()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let lines = told["lines"].as_array().expect("a list");
    let of = |way: &str| lines.iter().find(|line| line["way"] == way).expect("it was measured");
    for way in ["shm: heap, mapped", "shm: private, attach", "shm: private, chunks", "shm: private, stages"] {
        let measured = of(way)["measured"].as_array().expect("a list");
        assert!(
            measured.len() == 2 && measured.iter().all(|point| point[1].as_f64() > Some(0.0)),
            "{measured:?}"
        );
    }
    assert!(of("shm: private, attach")["ns_per_byte"].as_f64() > Some(0.0));
    let choices = told["choices"].as_array().expect("a list");
    let kept =
        choices.iter().find(|choice| choice["first"] == "shm: private, attach").expect("it was judged");
    assert!(kept["taken_from_bytes"].is_null() && kept["setting"] == "STANDPIPE_ATTACH=never");
    let page = std::fs::read_to_string(out.path().join("report.html")).expect("a report");
    assert!(page.contains("<svg") && page.contains("shm: private, stages") && !page.contains("src="));
}

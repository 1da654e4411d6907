//! `standpipe sim` as users run it.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.arg("sim").args(arguments).output().expect("the command was built with this test")
}

#[test]
fn json_says_how_the_storms_went_and_the_same_seeds_go_the_same_way() {
    let arguments = [
        "--nodes",
        "3",
        "--seed",
        "0x10",
        "--seeds",
        "3",
        "--steps",
        "500",
        "--faults",
        "unmap=20,delay",
        "--json",
    ];
    let operations = [(), ()].map(|()| {
        let output = sim(&arguments);
        assert!(output.status.success(), "{output:?}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!((&json["nodes"], &json["seeds"], &json["seed"]), (&3.into(), &3.into(), &16.into()));
        assert_eq!((&json["violations"], &json["failing_seed"]), (&0.into(), &serde_json::Value::Null));
        assert!(json["steps"].as_u64() >= Some(1500) && json["operations_per_second"].as_f64() > Some(0.0));
        assert!(json["pinned_peak_bytes"].as_u64() <= json["pinned_budget_bytes"].as_u64());
        json["operations"].as_u64().expect("a number")
    });
    assert!(operations[0] > 0);
    assert_eq!(operations[0], operations[1]);
}

#[test]
fn a_table_names_what_was_run_and_wrong_arguments_are_refused() {
    let output = sim(&["--steps", "300", "--costs", "myrinet-gm-2003"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("violations"), "{output:?}");
    for wrong in [["--faults", "rain"], ["--nodes", "1"], ["--costs", "no-such-machine"], ["--seed", "x"]] {
        assert!(!sim(&wrong).status.success(), "{wrong:?}");
    }
}

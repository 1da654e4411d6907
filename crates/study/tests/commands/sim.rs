//! `standpipe-study sim` as users run it.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe-study"));
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
        assert!(json["costs"].is_null() && json["version"] == env!("CARGO_PKG_VERSION"));
        assert!(json["steps"].as_u64() >= Some(1500) && json["operations_per_second"].as_f64() > Some(0.0));
        assert!(json["pinned_peak_bytes"].as_u64() <= json["pinned_budget_bytes"].as_u64());
        json["operations"].as_u64().expect("a number")
    });
    assert!(operations[0] > 0);
    assert_eq!(operations[0], operations[1]);
}

/// `standpipe-study sim` where so many KiB may be locked, even for who is privileged.
fn locking_at_most(kib: u64, arguments: &[&str]) -> Output {
    let script = format!("ulimit -l {kib} && exec \"$0\" sim \"$@\"");
    let shell = ["sh", "-c", &script, env!("CARGO_BIN_EXE_standpipe-study")];
    let without = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"];
    let privileged = rustix::process::geteuid().is_root();
    let mut words = without.into_iter().take(if privileged { without.len() } else { 0 }).chain(shell);
    let mut command = Command::new(words.next().expect("the shell, if nothing else"));
    command
        .args(words)
        .args(arguments)
        .output()
        .expect("the shell, and setpriv for root, are on every Debian")
}

#[test]
fn this_machine_is_measured_into_a_file_that_storms_run_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("here.toml");
    let path = file.to_str().expect("letters");
    // As much as a user may lock where nothing was set up for it: 16 pages, the usual ones.
    let output = locking_at_most(64, &["--json", "--measure", path]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let (costs, how) = (&json["costs"], json["how"].as_object().expect("how each was got"));
    let text = std::fs::read_to_string(&file).expect("written");
    for (field, said) in how {
        let said = said.as_str().expect("text");
        let may_be_zero = said.starts_with("[none]") || said.starts_with("[assumed]");
        let value = &costs[field];
        let is_number = value.as_f64().is_some_and(|value| value.is_finite() && (value > 0.0 || may_be_zero));
        assert!(is_number || value.is_boolean(), "{field}: {value}");
        assert!(text.contains(&format!("\n{field} = ")), "{field}: {text}");
    }
    assert_eq!(costs.as_object().map(|costs| costs.len()), Some(1 + how.len()), "all but the name");
    assert_eq!(costs["pinnable_bytes"], 64 << 10);
    assert!(how["register_fixed_ns"].to_string().contains("1, 4 and 16 pages"), "{how:?}");

    let output = sim(&["--costs", path, "--steps", "500", "--seeds", "3", "--faults", "shrink,unmap"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_forbids_measuring_is_said_before_it_takes_time() {
    for (measure, said) in [
        (&["--measure", "/no/such/folder/here.toml"][..], "/no/such/folder/here.toml"),
        (&["--measure", "here.toml", "--seeds", "3"], "cannot be used with"),
    ] {
        let output = sim(measure);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty() && error.contains(said), "{error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("here.toml");
    let output = locking_at_most(0, &["--measure", file.to_str().expect("letters")]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("the limit on locked memory is 0 bytes"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_table_names_what_was_run_and_wrong_arguments_are_refused() {
    let output = sim(&["--steps", "300", "--costs", "myrinet-gm-2003"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("violations"), "{output:?}");
    for said in ["myrinet-gm-2003 (Myrinet/GM, 2003)", "MAXVICTIM", "operations a second", "4 ranks"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let text = String::from_utf8_lossy(&sim(&["--steps", "50"]).stdout).into_owned();
    assert!(text.contains("picked by each seed"), "{text}");
    let output = sim(&["--faults", "reorder=1.5"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(error.contains("reorder=1.5") && error.contains("0 to 1"), "{error}");
    for wrong in [["--faults", "rain"], ["--nodes", "1"], ["--costs", "no-such-machine"], ["--seed", "x"]] {
        assert!(!sim(&wrong).status.success(), "{wrong:?}");
    }
}

//! `standpipe doctor` on the host that runs the tests, whatever it is like.

use std::process::Command;

#[test]
fn doctor_prints_one_json_object_and_tries_a_real_attach() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_standpipe")).args(["doctor", "--json"]).output().expect("it starts");
    let told: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON value, nothing else");
    let list = |name: &str| told[name].as_array().expect("a list");
    let (checks, advice) = (list("checks"), list("advice"));
    let wants_advice = |check: &&serde_json::Value| check["status"] == "warn" || check["status"] == "fail";
    let advised = checks.iter().filter(wants_advice).filter(|check| check["remedy"] != "");
    assert_eq!(advice.len(), advised.count(), "{told}");
    assert!(checks.len() > 10);
    for check in checks {
        for name in ["check", "status", "value", "remedy"] {
            assert!(check[name].is_string(), "{name} in {check}");
        }
        assert!(
            ["ok", "warn", "fail", "info"].contains(&check["status"].as_str().expect("a string")),
            "{check}"
        );
    }
    let find = |name| checks.iter().find(|check| check["check"] == name).expect("a check of that name");
    let attach = find("cross-memory attach");
    assert!(!attach["value"].as_str().expect("a string").starts_with("could not be tried"), "{attach}");
    let works = attach["status"] == "ok";
    assert_eq!(find("path: private memory")["status"] == "ok", works);
    let granted = find("path: granted memory");
    let value = granted["value"].as_str().expect("a string");
    assert_eq!(value.contains("cross-memory attach"), works, "{granted}");
    // A remedy stands wherever some grants go by message.
    assert_eq!(value.contains("messages"), granted["remedy"] != "", "{granted}");
    let failed = checks.iter().any(|check| check["status"] == "fail");
    assert_eq!(output.status.success(), !failed);
}

#[test]
fn doctor_says_which_path_a_grant_takes_and_how_to_change_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let output =
        command.args(["doctor", "--json"]).env("STANDPIPE_ATTACH", "never").output().expect("it starts");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = told["checks"].as_array().expect("a list");
    let granted = checks.iter().find(|check| check["check"] == "path: granted memory").expect("that check");
    assert_eq!(granted["status"], "warn");
    assert!(granted["value"].as_str().is_some_and(|value| value.starts_with("messages")), "{granted}");
    let remedy = granted["remedy"].as_str().expect("a string");
    assert!(remedy.contains("unset STANDPIPE_ATTACH"), "{granted}");
    let advice = told["advice"].as_array().expect("a list");
    assert!(advice.iter().any(|line| line.to_string().contains(remedy)), "{told}");
}

#[test]
fn a_setting_that_stops_every_job_is_a_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let output = command.arg("doctor").env("STANDPIPE_ATTACH", "maybe").output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("STANDPIPE_ATTACH=\"maybe\" is not") && text.contains("unset STANDPIPE_ATTACH"),
        "{text}"
    );
}

#[test]
fn a_job_that_no_node_could_join_is_a_failure_and_a_rendezvous_that_cannot_be_asked_a_warning() {
    for (vars, said, fails) in [
        (&[("RANK", "1"), ("WORLD_SIZE", "2")][..], "MASTER_ADDR is not set", true),
        (&[("SLURM_STEP_NUM_TASKS", "2")], "--mpi=pmix", true),
        (&[("STANDPIPE_JOB", "x")], "STANDPIPE_JOB", true),
        (&[("STANDPIPE_RENDEZVOUS", "a:1")], "STANDPIPE_SECRET", false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        let output =
            command.args(["doctor", "--json"]).envs(vars.iter().copied()).output().expect("it starts");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let (name, status) = if fails { ("job", "fail") } else { ("rendezvous", "warn") };
        let checks = told["checks"].as_array().expect("a list");
        let one = checks.iter().find(|check| check["check"] == name).expect("a check of that name");
        assert_eq!(one["status"], status, "{one}");
        assert!(one["value"].as_str().is_some_and(|value| value.contains(said)), "{one}");
        assert!(!fails || output.status.code() == Some(1), "{told}");
    }
}

#[test]
fn a_provider_that_is_not_there_is_a_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let output = command.arg("doctor").env("STANDPIPE_TRANSPORT", "ofi:pigeon").output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    // Also where there is no libfabric at all.
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("STANDPIPE_TRANSPORT: "), "{text}");
}

#[test]
fn a_setting_that_ranks_would_refuse_is_refused_before_they_start() {
    let run = |args: &[&str], name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        let output = command.args(args).env(name, value).output().expect("it starts");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    for (name, value) in
        [("STANDPIPE_STRATEGY", "nonsense"), ("STANDPIPE_PIN", "0"), ("STANDPIPE_TRANSPORT", "tcp")]
    {
        assert_eq!(
            run(&["perf", "open", "-n", "2", "--json"], name, value),
            (Some(2), String::new()),
            "{name}"
        );
    }
    let (status, text) =
        run(&["perf", "open", "-n", "2", "--transport", "shm", "--json"], "STANDPIPE_TRANSPORT", "tcp");
    assert_eq!((status, text.contains("median_ns")), (Some(0), true), "ranks are told another: {text}");
}

#[test]
fn a_misspelt_setting_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let output = command.args(["doctor", "--json"]).env("STANDPIPE_HEPA", "1G").output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("STANDPIPE_HEPA has no meaning"), "{text}");
}

#[test]
fn the_table_has_no_colours_where_nobody_would_see_them() {
    let output = Command::new(env!("CARGO_BIN_EXE_standpipe")).arg("doctor").output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("path: heap") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_bad_command_line_is_explained_and_fails() {
    let output = Command::new(env!("CARGO_BIN_EXE_standpipe")).arg("docter").output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("'doctor'") && !said.contains("doctor-peer"), "a hint at what was meant: {said}");
}

#[test]
fn a_variable_that_hides_the_provider_is_named() {
    if let Err(error) = standpipe::network::look_for(Some("tcp")) {
        return testbed::skip(&error);
    }
    for (name, value) in [("FI_PROVIDER", "verbs"), ("FI_TCP_IFACE", "eth9")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        command.args(["doctor", "--json"]).env("STANDPIPE_TRANSPORT", "ofi:tcp").env(name, value);
        let output = command.output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("text");
        let failed = output.status.code() == Some(1);
        assert!(!failed || text.contains(&format!("{name}={value}")), "{name}: {text}");
        assert!(failed || name != "FI_PROVIDER", "libfabric heeds it: {text}");
    }
}

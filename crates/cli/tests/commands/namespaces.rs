//! `standpipe` in a network namespace of its own, as containers have them, and beside one.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use standpipe::{Config, Node};

const CHILD: &str = "STANDPIPE_TEST_NAMESPACES_CHILD";

/// A node that nobody launched, in a process of its own, until its standard input ends.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let node = Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node");
    node.address().expect("a node that listens");
    println!("@@");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Runs a program where the network is empty and `lo` is down; `None`, aloud, where that cannot be had.
fn alone(program: &str, args: &[&str]) -> Option<Command> {
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "--"]).args(words);
        command
    };
    match unshare(&["true"]).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Some(unshare(&[&[program], args].concat())),
        Ok(_) => {
            testbed::skip("no network namespace can be made");
            None
        }
        Err(_) => {
            testbed::skip("there is no unshare");
            None
        }
    }
}

fn standpipe(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.args(args).stdin(Stdio::null()).output().expect("the command runs")
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("one object: {said}"))
}

fn check<'a>(told: &'a Value, name: &str) -> &'a Value {
    let checks = told["checks"].as_array().expect("a list");
    checks.iter().find(|check| check["check"] == name).expect("a check of that name")
}

/// Ended and reaped with the test, and what it has started with it.
struct Running(Child, #[expect(dead_code, reason = "nobody likes it closed")] BufReader<ChildStdout>);

impl Running {
    /// Starts a program that writes a line once it is where it is to be.
    fn start(command: &mut Command, sign: &str) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped above"));
        let begun = out.by_ref().lines().map_while(Result::ok).any(|line| line.contains(sign));
        let running = Running(child, out);
        assert!(begun, "it says {sign}");
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A launcher's ranks end with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const REMEDY: &str = "`ip link set lo up`";

#[test]
fn where_loopback_is_down_all_commands_refuse_the_network_for_the_same_reason() {
    if let Err(error) = standpipe::network::look_for(Some("tcp")) {
        return testbed::skip(&error);
    }
    let Some(mut info) = alone(env!("CARGO_BIN_EXE_standpipe"), &["info", "--json"]) else { return };
    let info = json(&info.output().expect("it runs"));
    let ofi = &info["transports"][1];
    let why = ofi["error"].as_str().expect("why not").to_owned();
    assert!(ofi["usable"] == false && why.contains(REMEDY), "{ofi}");
    let providers = ofi["providers"].as_array().expect("a list");
    for tcp in providers
        .iter()
        .filter(|offer| offer["provider"].as_str().is_some_and(|name| name.starts_with("tcp")))
    {
        assert_eq!(tcp["error"], why.as_str());
    }
    let run = ["run", "-n", "2", "--transport", "ofi:tcp", "--", "true"];
    let refused = alone(env!("CARGO_BIN_EXE_standpipe"), &run).expect("as above").output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&why), "{refused:?}");
    let doctor = |transport: &str| {
        let mut doctor = alone(env!("CARGO_BIN_EXE_standpipe"), &["doctor", "--json"]).expect("as above");
        json(&doctor.env("STANDPIPE_TRANSPORT", transport).output().expect("it runs"))
    };
    let told = doctor("");
    let libfabric = check(&told, "libfabric");
    assert!(libfabric["value"].as_str().is_some_and(|value| value.contains(&why)), "{libfabric}");
    assert!(libfabric["remedy"].as_str().is_some_and(|remedy| remedy.contains(REMEDY)), "{libfabric}");
    let told = doctor("ofi:tcp");
    assert!(check(&told, "settings")["remedy"].as_str().is_some_and(|remedy| remedy.contains(REMEDY)));
    for path in ["path: heap", "path: private memory"] {
        assert_eq!(check(&told, path)["value"], "none: ofi:tcp cannot be used here");
    }
}

/// `top` and `doctor` tell of jobs elsewhere: their words, once as text.
fn said_of(pid: u32) -> (String, String) {
    let top = standpipe(&["top", "--openmetrics"]);
    assert!(top.status.success(), "{top:?}");
    let said = String::from_utf8_lossy(&top.stderr);
    let line = said.lines().find(|line| line.contains(&format!("standpipe top {pid}`")));
    let line = line.unwrap_or_else(|| panic!("{pid}: {said}")).to_owned();
    let told = json(&standpipe(&["doctor", "--json"]));
    let checks = told["checks"].as_array().expect("a list");
    let begins = format!("{pid} (");
    let is_of = |check: &&Value| {
        check["check"] == "running node"
            && check["value"].as_str().is_some_and(|value| value.starts_with(&begins))
    };
    let check = checks.iter().find(is_of).unwrap_or_else(|| panic!("{pid}: {told}"));
    (line, check["remedy"].as_str().expect("a sentence").to_owned())
}

#[test]
fn a_job_in_another_network_namespace_is_listed_with_the_way_to_it() {
    let job = ["run", "-n", "3", "--", "sh", "-c", "echo @@; sleep 60; true"];
    let Some(mut command) = alone(env!("CARGO_BIN_EXE_standpipe"), &job) else { return };
    let launcher = Running::start(&mut command, "@@");
    let pid = launcher.0.id();
    let (line, remedy) = said_of(pid);
    let nsenter = format!("nsenter -t {pid} -U --preserve-credentials -n");
    assert!(
        line.contains("3 ranks of ") && line.contains(&format!("(started by {pid}) are in another network")),
        "{line}"
    );
    assert!(line.contains(&format!("`{nsenter} standpipe top {pid}`")), "{line}");
    assert!(remedy.contains(&format!("`{nsenter} standpipe doctor`")), "{remedy}");
    let named = standpipe(&["top", &pid.to_string()]);
    let said = String::from_utf8_lossy(&named.stderr);
    assert!(
        named.status.code() == Some(1) && said.contains(&format!("`{nsenter} standpipe top {pid}`")),
        "{said}"
    );
    let mut there = Command::new("nsenter");
    there.args(nsenter.split(' ').skip(1)).arg(env!("CARGO_BIN_EXE_standpipe"));
    let seen = json(&there.args(["top", &pid.to_string(), "--json"]).output().expect("it runs"));
    assert_eq!((&seen["size"], &seen["launcher_pid"]), (&3.into(), &pid.into()), "the way leads there");
    assert!(
        seen["elsewhere"].as_array().is_none_or(|list| list.iter().all(|one| one["pid"] != pid)),
        "{seen}"
    );
}

#[test]
fn a_node_in_another_network_namespace_is_listed_until_it_ends() {
    let itself = std::env::current_exe().expect("a path");
    let words = ["--exact", "namespaces::child", "--nocapture"];
    let Some(mut command) = alone(itself.to_str().expect("letters"), &words) else { return };
    let node = Running::start(command.env(CHILD, "1"), "@@");
    let pid = node.0.id();
    let (line, _) = said_of(pid);
    assert!(
        line.contains("a node of commands-") && line.contains(&format!("(process {pid}) is in")),
        "{line}"
    );
    drop(node);
    let said = standpipe(&["top", "--openmetrics"]).stderr;
    assert!(!String::from_utf8_lossy(&said).contains(&format!("top {pid}`")), "it is over");
}

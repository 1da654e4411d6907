//! Process numbers that are given out as a test wishes: a pid namespace, which a role of the test program is
//! the first process of.

use std::process::{Child, Command, Output, Stdio};

use crate::support::itself;

/// Where the kernel keeps the number that it gave last in a namespace.
const LAST: &str = "/proc/sys/kernel/ns_last_pid";

/// Runs a role in a namespace of its own, in which every process ends with it, and wants it to end well;
/// `None`, said aloud, where this user may not make any.
#[allow(dead_code, reason = "each test program uses its own part of this")]
#[track_caller]
pub(crate) fn in_namespace(role: &str) -> Option<Output> {
    if !are_given() {
        return None;
    }
    let output = inside(&itself(role)).output().expect("it has just been run");
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{role}: {}\n{}", output.status, texts.concat());
    Some(output)
}

/// How to run this test program as `command` says, in a namespace of its own.
#[allow(dead_code, reason = "each test program uses its own part of this")]
pub(crate) fn inside(command: &Command) -> Command {
    let mut inside = unshare();
    // `/proc/self/exe` would be the command itself.
    inside.arg(std::env::current_exe().expect("this program")).args(command.get_args());
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside
}

/// Starts a process that gets the number `pid`, which is free: in a namespace where nobody else starts any.
#[allow(dead_code, reason = "each test program uses its own part of this")]
pub(crate) fn start_as(pid: u32, command: &mut Command) -> Child {
    std::fs::write(LAST, (pid - 1).to_string()).expect("a namespace of our own");
    let child = command.spawn().expect("it starts");
    assert_eq!(child.id(), pid, "the number is free, and the next one");
    child
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command
}

/// Whether this user may make namespaces. If not, that is said aloud.
pub(crate) fn are_given() -> bool {
    let tried = unshare().args(["sh", "-c", &format!("echo 100 > {LAST}")]).stderr(Stdio::null()).status();
    let are_given = tried.is_ok_and(|status| status.success());
    if !are_given {
        testbed::skip("no pid namespaces (they take root, and the command unshare)");
    }
    are_given
}

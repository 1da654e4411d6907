//! A signal ends a command before it is done: the command says so in a line, has the shell's status, and
//! leaves nothing behind.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_signal_ends_every_command_in_order() {
    let commands = [("perf", 2), ("perf barrier -n 4 --json", 4)];
    testbed::ends_in_order(env!("CARGO_BIN_EXE_standpipe"), &commands);
}

/// Libraries that libfabric loads have handlers of their own, which exit with status 1.
#[test]
fn what_is_ended_while_it_loads_libraries_says_so() {
    for ms in (0..200).step_by(10) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        command.arg("info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("the command was built with this test");
        // Before it minds signals, one ends it as any program.
        while !minds(child.id(), Signal::INT) {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(ms));
        // It may be done.
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        let output = child.wait_with_output().expect("our child");
        let error = String::from_utf8_lossy(&output.stderr);
        let ended = output.status.code() == Some(130) && error.contains("ended by SIGINT");
        assert!(ended || output.status.success(), "after {ms} ms: {:?}: {error}", output.status);
    }
}

/// Whether the process has a handler for a signal, or is none any more.
fn minds(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

//! A signal ends a command before it is done: the command says so in a line, has the shell's status, and
//! leaves nothing behind.

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// Commands that take long, and how many processes each starts at once at least.
const COMMANDS: [(&str, usize); 8] = [
    ("sim --measure here.toml", 0),
    ("sim --seeds 1000000", 0),
    ("kv --compute-us 20000", 4),
    ("kernel cannon -n 4 --size 4000 --record trace", 4),
    ("firehose", 5),
    ("pindown", 0),
    ("scale", 1),
    ("policies", 0),
];

#[test]
fn a_signal_ends_every_command_in_order() {
    testbed::ends_in_order(env!("CARGO_BIN_EXE_standpipe-study"), &COMMANDS);
}

#[test]
fn ignored_signals_stay_ignored() {
    let mut command = Command::new("sh");
    let script = "trap '' INT; exec \"$0\" sim --seeds 300 --steps 1000";
    command.args(["-c", script, env!("CARGO_BIN_EXE_standpipe-study")]).stdout(Stdio::null());
    let child = command.spawn().expect("a shell");
    thread::sleep(Duration::from_millis(100));
    let pid = Pid::from_child(&child);
    // It may be done.
    let _ = kill_process(pid, Signal::INT);
    assert!(child.wait_with_output().expect("our child").status.success());
}

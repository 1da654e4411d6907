//! The examples, as their first lines say to run them: each looks itself whether what it finds is right.

#[path = "support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use standpipe::launch::Launch;
use support::{itself, network, role};

/// The role of a process that runs an example, before its name and number of ranks.
const RUNS: &str = "runs";

/// Not a test: a process that ends by itself, and its example with it.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [RUNS, name, ranks] = words[..] else { panic!("no role {role}") };
    if ranks == ALONE {
        let status = bound(&mut Command::new(example(name))).status().expect("it starts");
        assert!(status.success(), "{status}");
    } else {
        let job = Launch::new(example(name)).ranks(ranks.parse().expect("a number"));
        assert_eq!(job.run().expect("the job starts").status(), 0);
    }
}

/// In place of a number of ranks: the program is not launched.
const ALONE: &str = "alone";

/// Has the process end with this one.
fn bound(command: &mut Command) -> &mut Command {
    vm::spawn::die_with_parent(command);
    command.stdin(Stdio::null())
}

/// Where Cargo puts examples that it builds together with this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a file");
    let folder = test.ancestors().nth(2).expect("tests are built two folders below").join("examples");
    let program = folder.join(name);
    assert!(program.exists(), "{} is not built: cargo build --examples", program.display());
    program
}

/// As [`all_are_right`], over a network, where there is one.
fn all_are_right_over_tcp(name: &str, ranks: u32) {
    if let Some(network) = network() {
        all_are_right(name, ranks, network);
    }
}

fn all_are_right(name: &str, ranks: u32, transport: &str) {
    is_right(name, &ranks.to_string(), transport);
}

fn is_right(name: &str, ranks: &str, transport: &str) {
    let mut command = itself(&format!("{RUNS} {name} {ranks}"));
    let output = bound(command.env("STANDPIPE_TRANSPORT", transport)).output().expect("it starts");
    let [out, err] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success(), "{name}, ranks: {ranks}, over {transport}:\n{out}{err}");
}

#[test]
fn words_go_around_and_numbers_are_handed_out() {
    for name in ["ring", "counter", "ask", "arrays"] {
        all_are_right(name, 3, "shm");
    }
}

/// Launched, and alone, where nobody polls but the library's thread.
#[test]
fn a_task_hears_of_a_handler() {
    for ranks in [1, 3] {
        all_are_right("channel", ranks, "shm");
    }
    all_are_right_over_tcp("channel", 3);
    is_right("channel", ALONE, "shm");
}

#[test]
fn rows_are_exchanged() {
    for ranks in [1, 2, 5] {
        all_are_right("halo", ranks, "shm");
    }
    all_are_right_over_tcp("halo", 3);
}

#[test]
fn weights_are_served() {
    for ranks in [1, 4] {
        all_are_right("parameter_server", ranks, "shm");
    }
    all_are_right_over_tcp("parameter_server", 3);
}

#[test]
fn blocks_are_granted_and_taken_back_from_clients_that_come_and_are_killed() {
    for ranks in ["2", "4", ALONE] {
        is_right("grant_cache", ranks, "shm");
    }
    if let Some(network) = network() {
        ["3", ALONE].into_iter().for_each(|ranks| is_right("grant_cache", ranks, network));
    }
}

#[test]
fn two_libraries_exchange_lists_of_addresses() {
    for transport in ["shm"].into_iter().chain(network()) {
        ["2", ALONE].into_iter().for_each(|ranks| is_right("address_lists", ranks, transport));
    }
}

#[test]
fn tasks_are_stolen() {
    for ranks in [1, 4] {
        all_are_right("work_stealing", ranks, "shm");
    }
    all_are_right_over_tcp("work_stealing", 3);
}

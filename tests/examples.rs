//! The examples, as their first lines say to run them: each looks itself whether what it finds is right.

use std::path::PathBuf;

use fabric::{Fabric, Hints};
use standpipe::launch::Launch;

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
    let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
    if Fabric::load().is_ok_and(|fabric| fabric.providers(&hints).is_ok_and(|all| !all.is_empty())) {
        all_are_right(name, ranks, "ofi:tcp");
    } else {
        testbed::skip("no libfabric with the provider tcp");
    }
}

fn all_are_right(name: &str, ranks: u32, transport: &str) {
    let job = Launch::new(example(name)).ranks(ranks).env("STANDPIPE_TRANSPORT", transport);
    let outcome = job.run().expect("the job starts");
    assert_eq!(outcome.status(), 0, "{name} with {ranks} ranks over {transport}");
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
    let alone = std::process::Command::new(example("channel")).status().expect("it starts");
    assert!(alone.success(), "{alone}");
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
fn tasks_are_stolen() {
    for ranks in [1, 4] {
        all_are_right("work_stealing", ranks, "shm");
    }
    all_are_right_over_tcp("work_stealing", 3);
}

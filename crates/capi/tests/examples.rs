//! The examples of `examples/c`, and the program that the header begins with: built and run as their users
//! would.

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use support::{Programs, STRICT, has_network, here, run_alone, run_well, text};

static PROGRAMS: LazyLock<Programs> = LazyLock::new(Programs::new);

fn example(name: &str) -> PathBuf {
    let source = here("../../examples/c").join(name).with_extension("c");
    let lines = std::fs::read_to_string(&source).expect("the example is there").lines().count();
    assert!(lines < 150, "{name} has {lines} lines");
    PROGRAMS.compile(&source, &STRICT)
}

/// Runs an example in jobs of two and three, over shared memory and a network. Somebody says `line`.
fn runs(name: &str, line: &str) {
    let program = example(name);
    for ranks in [2, 3] {
        let ran = run_well(&program, ranks, &[], &[]);
        assert!(ran.says(line), "{name}: {ran:#?}");
    }
    if has_network() {
        let ran = run_well(&program, 2, &[], &[("STANDPIPE_TRANSPORT", "ofi:tcp")]);
        assert!(ran.says(line), "{name}: {ran:#?}");
    }
}

#[test]
fn ring() {
    runs("ring", "1000 rounds");
}

#[test]
fn halo() {
    runs("halo", "after 100 steps");
}

#[test]
fn work_stealing() {
    runs("work_stealing", "2000 of 2000 tasks");
}

#[test]
fn parameter_server() {
    runs("parameter_server", "0 of 10000 weights are wrong");
}

#[test]
fn kv_epoll() {
    runs("kv_epoll", "pulled 64 blocks, 0 of them wrong");
}

#[test]
fn two_libraries() {
    runs("two_libraries", "counted 3 and logged");
}

#[test]
fn two_processes_that_nobody_launched() {
    let program = example("unlaunched");
    let card = PROGRAMS.folder.path().join("card");
    let mut serve = Command::new(&program);
    serve.arg("serve").arg(&card);
    let served = std::thread::spawn(move || run_alone(&mut serve));
    while !card.exists() && !served.is_finished() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let called = run_alone(Command::new(&program).arg("call").arg(&card));
    let served = served.join().expect("it does not panic");
    assert!(called.status.success(), "{}", text(&called));
    assert!(served.status.success(), "{}", text(&served));
    assert!(text(&served).contains("1048576 of 1048576 bytes came"), "{}", text(&served));
}

#[test]
fn the_headers_first_lines_are_a_whole_program() {
    let header = std::fs::read_to_string(here("include/standpipe.h")).expect("the header is there");
    let program = header.split_once("#endif").expect("it ends").0.split_once('\n').expect("it begins").1;
    assert!(program.lines().count() < 60, "it takes {} lines", program.lines().count());
    let program = PROGRAMS.compile_text("hello.c", program, &STRICT);
    let ran = run_well(&program, 2, &[], &[]);
    assert!(ran.says("0: hello from 1") && ran.says("1: hello from 0"), "{ran:#?}");
    let alone = run_alone(&mut Command::new(&program));
    assert!(text(&alone).contains("0: hello from 0"), "{}", text(&alone));
}

#[test]
fn the_readmes_c_program() {
    let readme = std::fs::read_to_string(here("../../README.md")).expect("it is there");
    let program = readme.split_once("```c\n").expect("it has one").1.split_once("```").expect("it ends").0;
    let program = PROGRAMS.compile_text("readme.c", program, &STRICT);
    for ranks in [2, 4] {
        let ran = run_well(&program, ranks, &[], &[]);
        assert_eq!(ran.lines.iter().filter(|line| line.ends_with("42")).count(), ranks as usize, "{ran:#?}");
    }
}

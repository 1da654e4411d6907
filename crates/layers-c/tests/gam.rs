//! Generic Active Messages, by C programs that are compiled against `am.h` and `gam.h`.

mod support;

use std::path::{Path, PathBuf};

use support::{Job, Programs, STRICT, folder, network, run_alone, text};

/// Linked at an address of its own choosing, and at a fixed one.
const LINKED: [[&str; 2]; 2] = [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]];

fn source(name: &str) -> PathBuf {
    folder("tests/gam").join(name)
}

fn compile(programs: &Programs, name: &str, linked: [&str; 2]) -> PathBuf {
    programs.compile_at(&source(name), &[&STRICT[..], &linked].concat())
}

/// Every process of the program says that this part of it is well.
fn all_well(program: &Path, procs: u32, part: &str, output: &str) {
    for proc in 0..procs {
        let said = format!("{part}: {proc} is well");
        assert!(output.contains(&said), "{program:?} {procs} {part}: process {proc}: {output}");
    }
}

/// Runs a part of a program as so many processes, which it forks itself.
fn forked(program: &Path, procs: u32, part: &str) {
    let output = run_alone(program, &[&procs.to_string(), part]);
    assert!(output.status.success(), "{procs} {part}: {}", text(&output));
    all_well(program, procs, part, &text(&output));
}

/// Runs a part as a job that `standpipe run` has started.
fn launched(program: &Path, job: Job, part: &str) {
    let job = job.arg(part);
    let ran = job.run_well(program);
    all_well(program, job.ranks, part, &format!("{ran:?}"));
}

fn job(procs: u32) -> Job {
    Job::of(procs).arg(procs.to_string())
}

/// Runs a part forked, launched at the same addresses, and linked at a fixed address.
fn everywhere(name: &str, part: &str, sizes: &[u32]) {
    let programs = Programs::new();
    let [anywhere, fixed] = LINKED.map(|linked| compile(&programs, name, linked));
    for procs in sizes {
        forked(&anywhere, *procs, part);
        launched(&anywhere, job(*procs).same_addresses(), part);
        launched(&fixed, job(*procs), part);
    }
    forked(&fixed, sizes[0], part);
}

fn over_tcp(name: &str, part: &str) {
    let Some(transport) = network() else { return };
    let programs = Programs::new();
    let program = compile(&programs, name, LINKED[1]);
    launched(&program, job(2).env("STANDPIPE_TRANSPORT", transport), part);
}

#[test]
fn requests_and_replies_of_all_lengths_carry_their_words() {
    everywhere("calls.c", "words", &[1, 2, 3, 4]);
}

#[test]
fn doubles_come_as_they_were() {
    everywhere("calls.c", "doubles", &[1, 2]);
}

#[test]
fn a_request_to_oneself_runs_in_place() {
    everywhere("calls.c", "oneself", &[1, 2]);
}

#[test]
fn thousands_of_requests_both_ways_have_one_reply_each() {
    everywhere("calls.c", "flood", &[1, 2, 3]);
}

#[test]
fn handlers_that_do_not_reply_give_their_credits_back() {
    everywhere("calls.c", "silent", &[2, 3]);
}

#[test]
fn thirty_requests_leave_at_once_and_the_next_waits() {
    let programs = Programs::new();
    let program = compile(&programs, "calls.c", LINKED[0]);
    let file = program.with_extension("left");
    launched(&program, job(2).same_addresses().env("GAM_TEST_FILE", &file.to_string_lossy()), "credits");
}

#[test]
fn handlers_reply_once_and_do_nothing_else() {
    everywhere("calls.c", "rules", &[1, 2, 3]);
}

#[test]
fn bad_arguments_are_refused_and_cost_nothing() {
    everywhere("calls.c", "bad", &[1, 2]);
}

#[test]
fn am_sleep_runs_handlers_for_its_time() {
    everywhere("calls.c", "sleep", &[2]);
}

#[test]
fn am_dummy_is_a_handler_of_any_kind() {
    everywhere("calls.c", "dummy", &[1, 2]);
}

#[test]
fn what_was_sent_before_am_disable_is_handled() {
    let programs = Programs::new();
    for linked in LINKED {
        let program = compile(&programs, "calls.c", linked);
        for procs in [1, 2, 4] {
            let output = run_alone(&program, &[&procs.to_string(), "drain"]);
            assert!(output.status.success(), "{procs}: {}", text(&output));
        }
    }
}

#[test]
fn stores_and_gets_of_any_shape_arrive_whole() {
    everywhere("memory.c", "shapes", &[1, 2]);
}

#[test]
fn no_bytes_are_a_store_and_a_get_too() {
    everywhere("memory.c", "empty", &[1, 2]);
}

#[test]
fn asynchronous_stores_end_here_once_each() {
    everywhere("memory.c", "async", &[1, 2]);
}

#[test]
fn gets_beyond_the_credits_end_here_once_each() {
    everywhere("memory.c", "gets", &[1, 3]);
}

#[test]
fn a_stores_handler_may_reply() {
    everywhere("memory.c", "reply", &[1, 3]);
}

#[test]
fn an_address_that_the_other_has_not_is_an_error_and_costs_nothing() {
    let programs = Programs::new();
    let program = compile(&programs, "memory.c", LINKED[0]);
    forked(&program, 2, "unmapped");
}

#[test]
fn stores_and_gets_to_oneself_run_in_place() {
    everywhere("memory.c", "oneself", &[1, 2]);
}

#[test]
fn variables_and_functions_have_one_address_in_all_processes() {
    everywhere("memory.c", "addresses", &[1, 2, 4]);
}

#[test]
fn memory_of_before_am_enable_has_one_address_too() {
    let programs = Programs::new();
    for linked in LINKED {
        let program = compile(&programs, "memory.c", linked);
        forked(&program, 4, "heap");
        launched(&program, job(4).same_addresses(), "heap");
    }
}

#[test]
fn requests_go_over_tcp() {
    for part in ["words", "doubles", "flood", "silent", "rules", "bad", "dummy"] {
        over_tcp("calls.c", part);
    }
}

#[test]
fn stores_and_gets_go_over_tcp() {
    for part in ["empty", "async", "gets", "reply", "unmapped", "addresses", "shapes"] {
        over_tcp("memory.c", part);
    }
}

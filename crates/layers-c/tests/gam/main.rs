//! Generic Active Messages, by C programs that are compiled against `am.h` and `gam.h`.

mod berkeley;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use std::process::Stdio;

use support::{Job, Programs, Ran, STRICT, folder, network, run_alone, run_alone_with, text};

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

fn over_a_network(name: &str, part: &str) {
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
    // A network takes fewer until they are received.
    let programs = Programs::new();
    let program = compile(&programs, "calls.c", LINKED[0]);
    let file = |end: &str| program.with_extension(end).to_string_lossy().into_owned();
    let job = job(2).env("GAM_TEST_DEAF", &file("deaf")).env("GAM_TEST_LEFT", &file("left"));
    launched(&program, job.env("STANDPIPE_TRANSPORT", "shm").same_addresses(), "credits");
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
fn requests_of_one_process_come_in_order() {
    everywhere("calls.c", "order", &[1, 3]);
}

#[test]
fn handlers_run_in_the_programs_calls_on_its_thread() {
    everywhere("calls.c", "thread", &[2, 3]);
}

#[test]
fn jobs_run_side_by_side() {
    let programs = Programs::new();
    let program = compile(&programs, "calls.c", LINKED[0]);
    std::thread::scope(|scope| {
        scope.spawn(|| forked(&program, 2, "flood"));
        scope.spawn(|| launched(&program, job(2).same_addresses(), "flood"));
    });
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
    let output = run_alone(&program, &["2", "unmapped"]);
    let said = text(&output);
    assert!(said.contains("peer 1 has no accessible private memory at 0x40, 100 bytes"), "{said}");
    // Where the system forbids to look into another process at once, it shows later.
    match output.status.code() {
        Some(0) => all_well(&program, 2, "unmapped", &said),
        status => assert!(status == Some(1) && said.contains("has failed"), "{said}"),
    }
}

#[test]
fn an_address_that_the_other_has_not_ends_the_program_over_a_network() {
    let Some(transport) = network() else { return };
    let programs = Programs::new();
    let job = job(2).arg("unmapped").env("STANDPIPE_TRANSPORT", transport).keep_going();
    let ran = job.run(&compile(&programs, "memory.c", LINKED[1]));
    let why = "what an earlier call has started has failed: peer";
    assert!(ran.status == 1 && ran.says(why) && ran.says("at 0x40, 100 bytes"), "{ran:?}");
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
fn requests_go_over_a_network() {
    for part in ["words", "doubles", "flood", "silent", "rules", "bad", "dummy"] {
        over_a_network("calls.c", part);
    }
}

#[test]
fn stores_and_gets_go_over_a_network() {
    for part in ["empty", "async", "gets", "reply", "addresses", "shapes"] {
        over_a_network("memory.c", part);
    }
}

#[test]
fn counters_and_semaphores_are_words_that_handlers_change() {
    everywhere("counters.c", "counters", &[1, 2, 3]);
    everywhere("counters.c", "semaphores", &[1, 2, 3]);
}

#[test]
fn variables_say_what_the_calls_do() {
    everywhere("counters.c", "variables", &[1, 2]);
}

/// Runs a part of ends.c as a user would in a shell.
fn ends_as(program: &Path, args: &[&str], status: i32) -> String {
    let output = run_alone(program, args);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {}", text(&output));
    text(&output)
}

fn ends(programs: &Programs) -> PathBuf {
    compile(programs, "ends.c", LINKED[0])
}

#[test]
fn calls_before_and_after_fail_and_nothing_crashes() {
    everywhere("ends.c", "before", &[1, 2]);
    everywhere("ends.c", "after", &[1, 2]);
    let programs = Programs::new();
    let program = ends(&programs);
    let said = ends_as(&program, &["1", "wait before"], 1);
    assert!(said.contains("am_wait_for: called before am_enable"), "{said}");
    let said = ends_as(&program, &["1", "before"], 0);
    assert!(said.contains("standpipe: am_request_0: called before am_enable"), "{said}");
}

#[test]
fn a_second_am_enable_is_refused_and_the_first_stays() {
    everywhere("ends.c", "twice", &[1, 2]);
    let programs = Programs::new();
    let program = ends(&programs);
    let said = ends_as(&program, &["2", "twice"], 0);
    assert!(said.contains("am_enable: the layer is open: a process opens it once"), "{said}");
    let said = ends_as(&program, &["1", "again"], 0);
    assert!(said.contains("am_enable: the layer has been closed: a process opens it once"), "{said}");
}

#[test]
fn numbers_of_processes_that_cannot_be_are_refused() {
    let programs = Programs::new();
    let program = ends(&programs);
    for procs in ["0", "-1", "-2147483648", "1025", "2147483647"] {
        let said = ends_as(&program, &[procs, "none"], 1);
        assert!(said.contains(&format!("am_enable: {procs} processes: a job has 1 to 1024")), "{said}");
    }
    let ran = job(2).same_addresses().run(&program);
    assert_eq!(ran.status, 0, "{ran:?}");
    let ran = Job::of(2).arg("3").same_addresses().run(&program);
    assert!(ran.status == 1 && ran.says("am_enable: 3 processes, and the job has 2"), "{ran:?}");
    let ran = Job::of(3).arg("1").same_addresses().run(&program);
    assert!(ran.status == 1 && ran.says("am_enable: 1 processes, and the job has 3"), "{ran:?}");
}

#[test]
fn a_program_that_lies_elsewhere_in_each_process_is_refused_with_the_remedy() {
    let programs = Programs::new();
    let random = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap_or_default();
    if random.trim() == "0" {
        testbed::skip("programs lie at random addresses: the system places all at the same ones");
        return;
    }
    for name in ["ends.c", "berkeley.c"] {
        let program = compile(&programs, name, LINKED[0]);
        let ran = job(2).arg("none").run(&program);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.says("--same-addresses") && ran.says("-no-pie"), "{ran:?}");
        launched(&compile(&programs, name, LINKED[1]), job(2), "none");
    }
}

#[test]
fn output_of_before_am_enable_appears_once_and_input_is_not_lost() {
    let programs = Programs::new();
    let program = ends(&programs);
    let said = ends_as(&program, &["3", "buffer"], 0);
    assert_eq!(said.matches("before all").count(), 1, "{said}");
    let input = program.with_extension("in");
    std::fs::write(&input, "first\nsecond\nthird\n").expect("there is room");
    let input = std::fs::File::open(input).expect("it was written");
    let output = run_alone_with(&program, &["3", "input"], Stdio::from(input), &[]);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_child_that_fails_makes_the_program_fail() {
    let programs = Programs::new();
    let program = ends(&programs);
    ends_as(&program, &["3", "fails"], 5);
    let said = ends_as(&program, &["3", "fails early"], 1);
    assert!(said.contains("process 2 is lost"), "{said}");
    let said = ends_as(&program, &["3", "crashes"], 1);
    assert!(said.contains("process 2 is lost"), "{said}");
}

#[test]
fn a_program_may_end_without_am_disable() {
    let programs = Programs::new();
    let program = ends(&programs);
    let said = ends_as(&program, &["1", "no end"], 0);
    assert!(said.contains("0 ends"), "{said}");
    let said = ends_as(&program, &["3", "no end"], 0);
    assert!((0..3).all(|proc| said.contains(&format!("{proc} ends"))), "{said}");
    let said = ends_as(&program, &["3", "parent leaves"], 1);
    assert!(said.contains("am_wait_for: process 0 is lost"), "{said}");
    let said = ends_as(&program, &["2", "parent leaves the deaf"], 128 + libc::SIGTERM);
    assert!(all_gone(&said) && said.contains("others that it made have not: it ends them"), "{said}");
    let said = ends_as(&program, &["3", "parent fails"], 7);
    assert!(said.contains("am_wait_for: process 0 is lost"), "{said}");
    let said = ends_as(&program, &["2", "exits in handler"], 1);
    assert!(said.contains("am_wait_for: process 1 is lost"), "{said}");
    ends_as(&program, &["1", "exits in handler"], 7);
}

#[test]
fn children_end_with_their_parent() {
    let programs = Programs::new();
    let output = run_alone(&ends(&programs), &["3", "parent dies"]);
    assert_eq!(output.status.code(), None, "{}", text(&output));
    assert!(all_gone(&text(&output)), "{}", text(&output));
}

#[test]
fn a_child_that_a_process_makes_itself_sleeps_and_ends_as_any_other() {
    everywhere("ends.c", "child", &[2]);
}

#[test]
fn am_disable_leaves_the_launchers_protection_as_it_is() {
    let programs = Programs::new();
    let program = ends(&programs);
    let ran = job(2).arg("death signal").same_addresses().run_well(&program);
    assert!((0..2).all(|proc| ran.says(&format!("death signal of {proc}: 9, then 9"))), "{ran:?}");
    // A child of the program's own may outlive it from then on.
    let said = ends_as(&program, &["2", "death signal"], 0);
    assert!(said.contains("death signal of 0: 0, then 0"), "{said}");
    assert!(said.contains("death signal of 1: 9, then 0"), "{said}");
}

#[test]
fn am_enable_that_cannot_make_all_processes_says_so_and_leaves_none() {
    let programs = Programs::new();
    let program = ends(&programs);
    for (procs, how, why) in [("30", "descriptors", "Too many open files"), ("3", "deaths", "Broken pipe")] {
        let said = ends_as(&program, &[procs, "no forks", how], 1);
        let begins = format!("am_enable: cannot make {procs} processes: ");
        assert!(said.contains(&begins) && said.contains(why), "{said}");
        assert!(said.contains("no child is left"), "{said}");
    }
}

/// Whether the processes that named themselves are gone, or soon.
fn all_gone(said: &str) -> bool {
    let pids = said.lines().filter_map(|line| line.split_once(" is process ")).map(|(_, pid)| pid);
    let pids: Vec<&str> = pids.collect();
    assert!(!pids.is_empty(), "{said}");
    let begun = std::time::Instant::now();
    let is_there = |pid: &&str| Path::new("/proc").join(pid).exists() && !is_zombie(pid);
    while pids.iter().any(is_there) {
        if begun.elapsed().as_secs() > 10 {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    true
}

/// Whether it has ended, and nobody has asked how.
fn is_zombie(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn a_wait_in_a_handler_ends_the_program() {
    let programs = Programs::new();
    let said = ends_as(&ends(&programs), &["1", "waits in handler"], 1);
    assert!(said.contains("am_wait_for"), "{said}");
}

/// The killed one is found lost by the others, or by one of them, whose end the other one finds.
fn says_that_one_is_lost(ran: &Ran) {
    let finds = |rank: u32| {
        let finds = |(by, line): &(u32, String)| *by == rank && line.contains(" is lost");
        ran.lines.iter().any(finds)
    };
    assert!(ran.says("process 1 is lost") && finds(0) && finds(2), "{ran:?}");
}

#[test]
fn a_peer_that_is_killed_ends_all_waits() {
    let programs = Programs::new();
    let program = ends(&programs);
    for how in ["wait", "poll", "sleep", "request", "get", "store", "disable"] {
        let ran = job(3).arg("lost").arg(how).same_addresses().keep_going().run(&program);
        says_that_one_is_lost(&ran);
    }
    says_that_one_is_lost(&job(3).arg("lost in debt").same_addresses().keep_going().run(&program));
    let said = ends_as(&program, &["3", "lost", "wait"], 1);
    assert!(said.contains("process 1 is lost"), "{said}");
    assert!(
        said.contains(
            "standpipe: am_enable: process 1, which this one made, was killed by signal 9 (SIGKILL)"
        ),
        "{said}"
    );
}

#[test]
fn a_peer_that_is_killed_ends_all_waits_over_a_network() {
    let Some(transport) = network() else { return };
    let programs = Programs::new();
    let program = compile(&programs, "ends.c", LINKED[1]);
    for how in ["wait", "request", "disable"] {
        let job = job(3).arg("lost").arg(how).env("STANDPIPE_TRANSPORT", transport).keep_going();
        says_that_one_is_lost(&job.run(&program));
    }
}

#[test]
fn the_stencil_of_stores_computes_what_one_process_does() {
    let programs = Programs::new();
    for linked in LINKED {
        let program = programs.compile("gam_heat.c", &[&STRICT[..], &linked].concat());
        for procs in ["1", "2", "3", "4"] {
            let said = ends_as(&program, &[procs], 0);
            assert!(said.contains("200 steps: mean temperature 6.206672"), "{said}");
        }
        let ran = job(3).same_addresses().run_well(&program);
        assert!(ran.says("3 processes, 200 steps"), "{ran:?}");
    }
}

#[test]
fn the_sort_of_medium_messages_sorts() {
    let programs = Programs::new();
    let program = programs.compile("gam_sort.c", &[&STRICT[..], &LINKED[0]].concat());
    for procs in 1..=4 {
        let ran = Job::of(procs).same_addresses().run_well(&program);
        assert!(ran.says(&format!("{procs} processes, {} keys: sorted", procs * 50_000)), "{ran:?}");
    }
}

#[test]
fn the_programs_compute_the_same_over_a_network() {
    let Some(transport) = network() else { return };
    let programs = Programs::new();
    let [heat, sort] = ["gam_heat.c", "gam_sort.c"].map(|name| programs.compile(name, &LINKED[1]));
    let ran = job(2).env("STANDPIPE_TRANSPORT", transport).run_well(&heat);
    assert!(ran.says("2 processes, 200 steps"), "{ran:?}");
    let ran = job(2).env("STANDPIPE_TRANSPORT", transport).run_well(&sort);
    assert!(ran.says("2 processes, 100000 keys: sorted"), "{ran:?}");
}

#[test]
fn requests_and_replies_of_three_words_allocate_nothing() {
    if cfg!(not(target_env = "gnu")) {
        testbed::skip("counting allocations: the C library has no other name for its allocator");
        return;
    }
    let programs = Programs::new();
    let program = compile(&programs, "allocations.c", LINKED[0]);
    // A network's library has its own.
    let env = [("STANDPIPE_TRANSPORT", "shm")];
    for procs in [1, 2, 3] {
        let output = run_alone_with(&program, &[&procs.to_string(), "allocations"], Stdio::null(), &env);
        assert!(output.status.success(), "{procs}: {}", text(&output));
        all_well(&program, procs, "allocations", &text(&output));
    }
}

#[test]
fn a_process_that_leaves_is_at_no_barrier() {
    let programs = Programs::new();
    let program = programs.compile_text(
        "leaves.c",
        r#"
#include <stdio.h>
#include "gam.h"
int main(void) {
    int met = 0;
    gam_enable();
    if (gam_my_proc() == 0) {
        met = gam_barrier();
        printf("came through: %d\n", met);
    }
    gam_disable();
    return gam_my_proc() != 0 ? 0 : 3;
}
"#,
        &STRICT,
    );
    let ran = Job::of(2).same_addresses().keep_going().run(&program);
    assert!(ran.status == 1 && !ran.says("came through"), "{ran:#?}");
    assert!(ran.says("standpipe: gam_barrier: another process has left"), "{ran:#?}");
    assert!(!ran.says("standpipe: gam_disable"), "{ran:#?}");
}

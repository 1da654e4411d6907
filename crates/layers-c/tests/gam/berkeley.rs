//! The layer in Berkeley's spelling.

use super::support::{Programs, run_alone, text};
use super::{LINKED, compile, forked, job, launched, over_a_network};

/// A part of gam.h's program as jobs: it forks none.
fn berkeley(part: &str, sizes: &[u32]) {
    berkeleys("berkeley.c", part, sizes);
}

fn berkeleys(name: &str, part: &str, sizes: &[u32]) {
    let programs = Programs::new();
    let [anywhere, fixed] = LINKED.map(|linked| compile(&programs, name, linked));
    forked(&anywhere, 1, part);
    for procs in sizes {
        launched(&anywhere, job(*procs).same_addresses(), part);
        launched(&fixed, job(*procs), part);
    }
}

#[test]
fn berkeleys_words_are_ints_and_longs() {
    berkeley("words", &[1, 2, 3]);
}

#[test]
fn berkeleys_double_comes_first() {
    berkeley("doubles", &[2]);
}

#[test]
fn medium_messages_lie_in_a_buffer_of_the_system() {
    berkeley("medium", &[2, 3]);
    berkeley("flood", &[2, 3]);
}

#[test]
fn berkeleys_stores_and_gets_are_those_of_am_h() {
    berkeley("memory", &[2, 3]);
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    berkeley("barrier", &[2, 4]);
}

#[test]
fn berkeleys_handlers_keep_the_same_rules() {
    berkeley("rules", &[2]);
}

#[test]
fn berkeleys_calls_before_and_after_fail_and_nothing_crashes() {
    berkeley("before", &[2]);
    berkeley("after", &[2]);
}

#[test]
fn gam_exit_ends_the_process_with_its_status() {
    berkeley("exit", &[2]);
    let programs = Programs::new();
    let program = compile(&programs, "berkeley.c", LINKED[1]);
    let before = run_alone(&program, &["1", "exit before"]);
    assert!(before.status.success() && before.stderr.is_empty(), "{}", text(&before));
    let ran = job(2).arg("exit badly").keep_going().run(&program);
    assert_eq!(ran.status, 6, "{ran:?}");
    assert!(ran.says("gam_wait: process 0 is lost"), "{ran:?}");
}

#[test]
fn bytes_in_the_systems_buffer_are_the_handlers() {
    berkeleys("myrinet.c", "medium", &[2, 3]);
    berkeleys("myrinet.c", "exit", &[2, 3]);
}

#[test]
fn a_reply_brings_bytes_to_an_address_of_the_requester() {
    berkeleys("myrinet.c", "xfer", &[2, 3]);
}

#[test]
fn a_reply_to_memory_that_is_not_there_ends_the_program() {
    let programs = Programs::new();
    let program = compile(&programs, "myrinet.c", LINKED[1]);
    for what in ["bad", "bad, in a barrier", "bad, as it leaves"] {
        let ran = job(2).arg(what).keep_going().run(&program);
        assert_eq!(ran.status, 1, "{what}: {ran:?}");
        assert!(ran.says("no accessible private memory at 0x10000, 8 bytes"), "{what}: {ran:?}");
        assert!(ran.says("process 1 is lost"), "{what}: {ran:?}");
    }
}

#[test]
fn counters_and_replies_of_bytes_go_over_a_network() {
    for part in ["counters", "semaphores", "variables"] {
        over_a_network("counters.c", part);
    }
    for part in ["medium", "xfer"] {
        over_a_network("myrinet.c", part);
    }
}

#[test]
fn medium_messages_go_over_a_network() {
    for part in ["words", "medium", "flood", "memory", "barrier", "rules"] {
        over_a_network("berkeley.c", part);
    }
}

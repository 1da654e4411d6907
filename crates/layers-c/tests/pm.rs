//! PM from C: messages, contexts, locked memory, and every error that its manual names.

mod support;

use std::path::PathBuf;

use support::{Job, Programs, STRICT};

/// Memory is locked by its addresses.
const ADDRESSES: (&str, &str) = ("STANDPIPE_PM_LOCKS", "addresses");
/// Eight pages of it.
const EIGHT_PAGES: (&str, &str) = ("STANDPIPE_PM_LOCKS", "addresses:32768");

/// Over shared memory nothing registers.
const SHARED: (&str, &str) = ("STANDPIPE_TRANSPORT", "shm");

/// A program of `tests/pm/`, as strictly compiled as the headers are.
fn program(programs: &Programs, name: &str) -> PathBuf {
    let path = support::folder("tests/pm").join(format!("{name}.c"));
    let text = std::fs::read_to_string(&path).expect("the program is there");
    let include = format!("-I{}", support::folder("tests/pm").display());
    let flags: Vec<&str> =
        STRICT.iter().copied().chain(["-D_GNU_SOURCE", "-Wno-unused-variable", &include]).collect();
    programs.compile_text(&format!("{name}.c"), &text, &flags)
}

/// Runs a program of `tests/pm/` with so many processes each time, which must all end well.
fn run(name: &str, ranks: impl IntoIterator<Item = u32>, env: &[(&str, &str)]) {
    let programs = Programs::new();
    let program = program(&programs, name);
    for ranks in ranks {
        job(ranks, env).run_well(&program);
    }
}

fn job(ranks: u32, env: &[(&str, &str)]) -> Job {
    env.iter().fold(Job::of(ranks), |job, (name, value)| job.env(name, value))
}

/// Settings by which a job's processes reach each other over a network, where there is such a thing.
fn network() -> Option<(&'static str, &'static str)> {
    support::network().map(|transport| ("STANDPIPE_TRANSPORT", transport))
}

#[test]
fn the_stencil_is_right() {
    let programs = Programs::new();
    for flags in [&["-fPIE", "-pie"][..], &["-no-pie"]] {
        let program = programs.compile("pm_stencil.c", flags);
        for ranks in 1..=4 {
            let ran = Job::of(ranks).arg("100").arg("50").run_well(&program);
            assert!(ran.says("steps: right"), "{ran:#?}");
        }
    }
}

#[test]
fn the_stencil_is_right_over_a_network() {
    let Some(network) = network() else { return };
    let programs = Programs::new();
    let program = programs.compile("pm_stencil.c", &["-O1"]);
    let ran = job(3, &[network]).arg("2000").arg("30").run_well(&program);
    assert!(ran.says("steps: right"), "{ran:#?}");
}

/// Rounds of 64 KiB, each of which locks a buffer twice; 16 buffers are twice what may be held.
#[test]
fn the_pin_down_cache_is_seen_at_work() {
    let programs = Programs::new();
    let program = programs.compile("pm_mpi.c", &["-O1"]);
    let held = ("STANDPIPE_PM_LOCKS", "addresses:524288");
    let ran = job(2, &[held]).arg("65536").arg("16").run_well(&program);
    for rank in 0..2 {
        for line in [
            "short messages: 0 hits, 0 misses, 0 evictions, right",
            "one buffer: 31 hits, 1 misses, 0 evictions, right",
            // The first is held from before.
            "ever new buffers: 17 hits, 15 misses, 8 evictions, right",
        ] {
            assert!(ran.says(&format!("node {rank}, {line}")), "{line}: {ran:#?}");
        }
    }
    let ran = job(2, &[SHARED]).arg("65536").run_well(&program);
    assert!(ran.says("no memory can be locked here"), "{ran:#?}");
}

#[test]
fn the_pin_down_cache_is_seen_at_work_by_real_pins() {
    let Some(network) = network() else { return };
    let programs = Programs::new();
    let program = programs.compile("pm_mpi.c", &["-O1", "-g"]);
    let pins = [network, ("STANDPIPE_STRATEGY", "firehose"), ("STANDPIPE_PIN", "4M")];
    let ran = job(2, &pins).arg("65536").arg("16").run_well(&program);
    assert!(ran.says("node 0, one buffer: 31 hits, 1 misses, 0 evictions, right"), "{ran:#?}");
    assert!(ran.says("misses") && ran.says("ever new buffers"), "{ran:#?}");
}

#[test]
fn what_is_not_open_is_invalid() {
    run("nothing_open", [1], &[]);
}

#[test]
fn devices_and_contexts_are_opened_attached_and_closed() {
    run("devices", [1], &[]);
}

#[test]
fn buffers_have_their_limits_and_locks() {
    run("buffers", 1..=4, &[]);
}

#[test]
fn buffers_have_their_limits_and_locks_over_a_network() {
    let Some(network) = network() else { return };
    run("buffers", [2], &[network]);
}

#[test]
fn each_pair_and_context_keeps_its_order() {
    run("streams", 1..=4, &[]);
}

#[test]
fn each_pair_and_context_keeps_its_order_over_a_network() {
    let Some(network) = network() else { return };
    run("streams", [3], &[network]);
}

#[test]
fn what_fails_changes_nothing() {
    run("kept", [1, 2], &[]);
}

#[test]
fn pm_that_cannot_be_had_is_told_of_by_the_right_error() {
    let programs = Programs::new();
    let program = program(&programs, "no_open");
    job(1, &[("STANDPIPE_HEAP", "4K")]).arg(libc::ENOMEM.to_string()).run_well(&program);
    let nowhere = ("STANDPIPE_TRANSPORT", "ofi:none_such");
    job(2, &[nowhere]).arg(libc::EIO.to_string()).run_well(&program);
    let no_locks = ("STANDPIPE_PM_LOCKS", "none");
    job(1, &[no_locks]).arg(libc::EINVAL.to_string()).run_well(&program);
}

/// Messages that came while nobody polled are there for the first poll. The Rust test of PM shows that
/// nothing else handles them.
#[test]
fn what_has_come_is_there_for_the_first_poll() {
    run("polling", [1, 3], &[]);
}

/// Two threads with a context each: PM takes their calls one after the other, though it promises nothing.
#[test]
fn calls_of_two_threads_go_one_after_the_other() {
    run("polling", [2], &[]);
}

#[test]
fn locks_are_counted_bounded_and_released_late() {
    run("locks", 1..=2, &[EIGHT_PAGES]);
}

#[test]
fn where_nothing_registers_memory_none_is_locked() {
    run("no_locks", 1..=2, &[SHARED]);
}

#[test]
fn writes_and_reads_need_locks_at_both_ends() {
    run("transfers", 2..=4, &[ADDRESSES]);
}

#[test]
fn writes_and_reads_need_locks_at_both_ends_over_a_network() {
    let Some(network) = network() else { return };
    run("transfers", 2..=3, &[network, ADDRESSES]);
}

#[test]
fn no_more_writes_are_under_way_than_may_be() {
    let Some(network) = network() else { return };
    run("many_writes", [2], &[network, ADDRESSES]);
}

#[test]
fn far_regions_are_looked_up_again_and_transfers_end_with_their_peer() {
    let Some(network) = network() else { return };
    let programs = Programs::new();
    let program = program(&programs, "far");
    let ran = job(2, &[network, ADDRESSES]).keep_going().run(&program);
    assert!(ran.says("all as it should be"), "{ran:#?}");
}

#[test]
fn real_pins_fill_the_budget_and_are_released_late() {
    let Some(network) = network() else { return };
    let registering = ("STANDPIPE_STRATEGY", "firehose");
    run("pins", [2], &[network, registering, ("STANDPIPE_PIN", "4M")]);
    run("transfers", [2], &[network, registering, ("STANDPIPE_PIN", "64M")]);
}

#[test]
fn a_peer_that_is_killed_ends_all_waits() {
    let programs = Programs::new();
    let program = program(&programs, "lost");
    for ranks in 2..=3 {
        let ran = job(ranks, &[ADDRESSES]).keep_going().run(&program);
        for rank in 0..ranks - 1 {
            assert!(ran.says(&format!("node {rank} goes on")), "{ran:#?}");
        }
    }
}

#[test]
fn those_who_leave_in_order_are_no_reset_until_all_have() {
    run("left", 2..=4, &[]);
}

#[test]
fn those_who_leave_in_order_are_no_reset_until_all_have_over_a_network() {
    let Some(network) = network() else { return };
    run("left", [3], &[network]);
}

/// More than the receiver's window, launched by a process that ends: it waits until they are taken.
#[test]
fn what_was_launched_arrives_though_its_sender_ends() {
    let programs = Programs::new();
    let program = program(&programs, "ends");
    let ran = job(3, &[]).arg("late").run_well(&program);
    assert!(!ran.says("pm:"), "{ran:#?}");
    // Both end, and neither takes what the other has launched.
    job(2, &[]).arg("never").run_well(&program);
    let ran = job(2, &[]).arg("dies").keep_going().run(&program);
    assert!(ran.says("messages were launched and not sent"), "{ran:#?}");
}

#[test]
fn score_tells_who_and_where_a_process_is() {
    let programs = Programs::new();
    let source = program(&programs, "environment");
    for ranks in 1..=4 {
        let ran = Job::of(ranks).arg(ranks.to_string()).run_well(&source);
        assert!(ran.says("pm: score_initialize: the composite device is open already"), "{ran:#?}");
    }
    if let Some(network) = network() {
        job(2, &[network]).arg("2").run_well(&source);
    }
}

#[test]
fn a_context_is_inherited_across_exec() {
    let programs = Programs::new();
    let program = program(&programs, "inherit");
    for ranks in 1..=2 {
        Job::of(ranks).arg(ranks.to_string()).run_well(&program);
    }
}

#[test]
fn a_setting_that_is_none_is_refused_in_words() {
    let programs = Programs::new();
    let program = program(&programs, "no_locks");
    for value in ["", "pins", "addresses:", "addresses:-1", "pin:1"] {
        let ran = job(1, &[("STANDPIPE_PM_LOCKS", value)]).run(&program);
        assert_eq!(ran.status, 1, "{value}: {ran:#?}");
        assert!(ran.says("is not pin, addresses or addresses:BYTES"), "{value}: {ran:#?}");
    }
}

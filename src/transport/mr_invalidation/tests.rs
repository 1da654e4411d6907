//! Whole engines whose registrations really pin, and memory that changes at both ends.

#[path = "../../../crates/vm/tests/memory_changes/area.rs"]
pub(crate) mod area;
pub(crate) mod changes;
#[path = "../../../crates/vm/tests/memory_changes/pairs.rs"]
pub(crate) mod pairs;
mod pinning;
#[path = "../../../crates/vm/tests/memory_changes/pins.rs"]
mod pins;
pub(crate) mod removals;
pub(crate) mod rows;
mod spot;

use std::path::Path;
use std::process::Command;

use area::{Area, PAGE};
use changes::{BREAK, STILL};
use engine::Direction;
use pinning::Pair;

use rows::{Ends, NONE, ONLY, all_hold, bytes_of, holds, rounds};
use spot::PAGES;

#[test]
fn memory_that_stays_is_registered_once_and_reached_one_sided() {
    let Some(mut pair) = Pair::new() else { return };
    let places = holds(&mut pair, rounds(), &STILL).expect("it changes nothing");
    let (one_sided, told) = pair.counts();
    // Each place is asked for by one transfer at first; then all are hits. What is told is that places are
    // left.
    assert!(
        one_sided >= u64::from(rounds()) && told <= 3 * u64::from(places),
        "{one_sided} hits, {told} told"
    );
}

#[test]
fn memory_that_has_changed_is_never_mistaken() {
    if Pair::new().is_some() {
        in_a_process_of_its_own(
            "transport::mr_invalidation::tests::memory_that_has_changed_is_never_mistaken",
            || {
                all_hold("pins", || Pair::new().expect("there was one just now"));
            },
        );
    }
}

/// While a removal goes on, another thread changes some of the same memory, and transfers pin what is about
/// to go.
#[test]
fn memory_that_two_threads_change_is_never_mistaken() {
    if Pair::new().is_some() {
        in_a_process_of_its_own(
            "transport::mr_invalidation::tests::memory_that_two_threads_change_is_never_mistaken",
            || {
                removals::all_hold("pins", |_| true, || Pair::new().expect("there was one just now"));
            },
        );
    }
}

/// Rows that need processes of their own: the break, which is the process's, and allocators that programs
/// have in the C library's place.
#[test]
fn the_break_moves_in_a_process_of_its_own() {
    if Pair::new().is_some() {
        alone("transport::mr_invalidation::tests::memory_that_has_changed_is_never_mistaken", BREAK, None);
    }
}

#[test]
fn preloaded_allocators_are_no_different() {
    const FOLDERS: [&str; 4] =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    if Pair::new().is_none() {
        return;
    }
    for name in ["libjemalloc.so.2", "libmimalloc.so.2"] {
        let found = FOLDERS.map(|folder| Path::new(folder).join(name)).into_iter().find(|file| file.exists());
        match found {
            Some(file) => alone(
                "transport::mr_invalidation::tests::memory_that_has_changed_is_never_mistaken",
                "malloc",
                Some(&file),
            ),
            None => testbed::skip(format_args!("there is no {name} here")),
        }
    }
}

/// Set in processes in which one test runs and nothing else.
const ALONE: &str = "STANDPIPE_TEST_ALONE";

/// Runs what a test that holds rows does, where no other test runs beside it: the end of a removal is seen
/// where all other threads sleep, and the C library's memory has parts of other tests' removed.
pub(crate) fn in_a_process_of_its_own(test: &str, body: impl FnOnce()) {
    match std::env::var_os(ALONE) {
        Some(_) => body(),
        None => alone(test, &std::env::var(ONLY).unwrap_or_default(), None),
    }
}

/// Runs a test that holds rows in another process, for the rows whose names begin so, perhaps with a library
/// before all others.
pub(crate) fn alone(test: &str, rows: &str, preloaded: Option<&Path>) {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env(ONLY, rows).env(ALONE, "1");
    if let Some(file) = preloaded {
        child.env("LD_PRELOAD", file);
    }
    let output = child.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{rows}, alone, with {preloaded:?}:\n{said}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let held = said.contains(&format!(": {rows}")) && said.contains(" rounds, ") && !said.contains("ld.so");
    // Only who names rows may name none of these.
    assert!(held || said.contains(NONE) && std::env::var_os(ONLY).is_some());
}

/// It is shared, so that nothing of it is kept, and all goes by message.
#[test]
fn memory_of_files_is_never_registered() {
    let file = rustix::fs::memfd_create("changing", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, PAGES * PAGE).expect("memory");
    let Some(mut pair) = Pair::new() else { return };
    let (here, there) = (Area::new(PAGES), Area::reserved(PAGES));
    there.map(std::os::fd::AsRawFd::as_raw_fd(&file), libc::MAP_SHARED);
    for byte in 1..100 {
        here.fill(byte);
        pair.transfer(Direction::Put, &here, &there);
        assert_eq!(bytes_of(&there), [byte; (PAGES * PAGE) as usize]);
        rustix::fs::ftruncate(&file, 0).expect("it may shrink");
        rustix::fs::ftruncate(&file, PAGES * PAGE).expect("it may grow");
    }
    assert_eq!(pair.counts().0, 0, "nothing is one-sided");
}

/// Where the owner tells of new memory by other channels, and has waited before.
#[test]
fn who_has_waited_for_all_holders_may_tell_by_any_channel() {
    for waits in [true, false] {
        let Some(mut pair) = Pair::new() else { return };
        let (here, there) = (Area::new(PAGES), Area::new(PAGES));
        for byte in 1..30 {
            here.fill(byte);
            pair.put_unasked(&here, &there);
            let is_right = bytes_of(&there) == [byte; (PAGES * PAGE) as usize];
            assert_eq!(is_right, waits || byte == 1, "put {byte}");
            if !is_right {
                break;
            }
            there.map_anew();
            if waits {
                pair.sync();
            }
        }
    }
}

/// If these were not mistaken, no other test here would show anything.
#[test]
fn engines_that_are_not_told_mistake_memory() {
    let Some(mut pair) = Pair::new() else { return };
    pair.be_deaf();
    let (here, there) = (Area::new(PAGES), Area::new(PAGES));
    for byte in [1, 2] {
        here.fill(byte);
        pair.transfer(Direction::Put, &here, &there);
        let is_right = bytes_of(&there) == [byte; (PAGES * PAGE) as usize];
        assert_eq!(is_right, byte == 1, "only what was registered as it is now is found");
        there.map_anew();
        here.map_anew();
    }
}

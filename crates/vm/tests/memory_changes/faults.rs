//! What watching costs in page faults: none.

use vm::Monitor;

use crate::area::{Area, PAGE};

const PAGES: u64 = 256;

fn faults() -> i64 {
    // SAFETY: the structure is written to where it fits; zero is a value of all its fields.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt
    }
}

/// Faults while each page is written.
fn faults_of(area: &Area, first: u64, count: u64) -> i64 {
    let part = Area { addr: area.addr + first * PAGE, len: count * PAGE, is_borrowed: true };
    let before = faults();
    part.fill(1);
    faults() - before
}

#[test]
fn watched_memory_faults_as_often_as_any() {
    let monitor = match Monitor::of_process() {
        Ok(monitor) => monitor,
        Err(error) => return testbed::skip(&error),
    };
    let (watched, plain) = (Area::new(PAGES), Area::new(PAGES));
    for area in [&watched, &plain] {
        // SAFETY: the area is this test's alone, and the advice changes no byte of it.
        assert_eq!(unsafe { libc::madvise(area.start(), area.len(), libc::MADV_NOHUGEPAGE) }, 0);
        faults_of(area, 0, PAGES / 2);
    }
    assert_eq!(monitor.watch(watched.addr, watched.len), Ok(()));
    let (old, new) = (faults_of(&watched, 0, PAGES / 2), faults_of(&watched, PAGES / 2, PAGES / 2));
    let (plain_old, plain_new) = (faults_of(&plain, 0, PAGES / 2), faults_of(&plain, PAGES / 2, PAGES / 2));
    println!("watched: {old} and {new} faults, not watched: {plain_old} and {plain_new}");
    // The code and the stack of the test may fault, a few times.
    assert!(old <= plain_old + 4 && new <= plain_new + 4);
}

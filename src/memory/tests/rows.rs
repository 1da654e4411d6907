//! Ways to change memory that is watched, by name, and what must hold of each at both ends of transfers.

use std::cell::RefCell;

use engine::Direction;

use super::area::{Area, PAGE};
use super::pins::Pins;

/// How often each change is made, unless `STANDPIPE_CHANGE_ROUNDS` says otherwise.
const ROUNDS: u32 = 90;

/// How often at one place, as what is once in doubt may stay so.
const ROUNDS_A_PLACE: u32 = 30;

const PAGES: u64 = 3;

/// Two engines whose memory is this process's.
pub(crate) trait Ends {
    /// The far one tells the near one that it may begin, as whoever changes memory must; then that puts or gets.
    fn transfer(&mut self, direction: Direction, here: &Area, there: &Area);

    /// Transfers that were one-sided at once, and registrations that were given up because of a change.
    fn counts(&mut self) -> (u64, u64);
}

pub(crate) fn rounds() -> u32 {
    std::env::var("STANDPIPE_CHANGE_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"))
}

/// Of a row; a process with many pinned pages takes long to fork, as all of these are copied then.
fn rounds_of(name: &str) -> u32 {
    if name.starts_with("fork") { rounds().div_ceil(5) } else { rounds() }
}

/// Changes the memory of both ends, of one, or of the other, after transfers both ways, and wants the bytes of the time.
/// How many places it did that at; `None`: this kernel cannot.
pub(crate) fn holds(ends: &mut impl Ends, rounds: u32, change: Change) -> Option<u32> {
    let places = rounds.div_ceil(ROUNDS_A_PLACE);
    for place in 0..places {
        let (here, there) = (Area::new(PAGES), Area::new(PAGES));
        for round in place * ROUNDS_A_PLACE..rounds.min((place + 1) * ROUNDS_A_PLACE) {
            let byte = (round % 200) as u8 + 1;
            for (direction, from, to) in [(Direction::Put, &here, &there), (Direction::Get, &there, &here)] {
                from.fill(byte);
                to.fill(0xff);
                ends.transfer(direction, &here, &there);
                let stale = bytes_of(to).iter().position(|found| *found != byte);
                assert_eq!(stale, None, "round {round}, {direction:?}: where a byte of before is");
                let changed = (round % 3 == 1 || change(&here)) && (round % 3 == 2 || change(&there));
                if !changed {
                    return None;
                }
            }
        }
    }
    Some(places)
}

/// The same for every row, over ends that `make` makes.
pub(crate) fn all_hold<E: Ends>(over: &str, mut make: impl FnMut() -> E) {
    for (name, change) in ROWS {
        let mut ends = make();
        let Some(places) = holds(&mut ends, rounds_of(name), change) else {
            eprintln!("skipped: {over}: {name}: this kernel cannot");
            continue;
        };
        let (hits, told) = ends.counts();
        eprintln!("{over}: {name}: {} rounds, {hits} hits, {told} told", rounds_of(name));
        // Of a fork nothing is told, and nothing need be: only that places are left.
        let least = if name.starts_with("fork") { places - 1 } else { places };
        assert!(told >= u64::from(least), "{over}: {name}: {told} told at {places} places");
    }
}

pub(crate) fn bytes_of(area: &Area) -> Vec<u8> {
    // SAFETY: the test has readable memory mapped there, in which nothing but bytes lives, and nobody writes it now.
    unsafe { std::slice::from_raw_parts(area.start().cast::<u8>(), area.len()) }.to_vec()
}

/// Not in the C library's headers of old: `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: i32 = 24;

/// Changes what is mapped in an area, or its bytes, and leaves it mapped. `false`: this kernel cannot.
pub(crate) type Change = fn(&Area) -> bool;

pub(crate) const ROWS: [(&str, Change); 11] = [
    ("munmap", unmapped),
    ("bare munmap", unmapped_by_a_bare_call),
    ("mmap over", mapped_anew),
    ("mremap source", moved_away),
    ("mremap target", moved_onto),
    ("DONTNEED", |area| advised(area, libc::MADV_DONTNEED)),
    ("FREE", |area| advised(area, libc::MADV_FREE)),
    ("DONTNEED_LOCKED", |area| advised(area, DONTNEED_LOCKED)),
    ("process_madvise", advised_by_descriptor),
    ("io_uring madvise", advised_by_io_uring),
    ("fork, then write", forked),
];

fn mapped_anew(area: &Area) -> bool {
    area.map_anew();
    true
}

fn unmapped(area: &Area) -> bool {
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    assert_eq!(unsafe { libc::munmap(area.start(), area.len()) }, 0);
    mapped_anew(area)
}

fn unmapped_by_a_bare_call(area: &Area) -> bool {
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    assert_eq!(unsafe { libc::syscall(libc::SYS_munmap, area.start(), area.len()) }, 0);
    mapped_anew(area)
}

fn moved_away(area: &Area) -> bool {
    remap(area, &Area::reserved(area.len / PAGE));
    mapped_anew(area)
}

fn moved_onto(area: &Area) -> bool {
    let other = Area::new(area.len / PAGE);
    other.fill(0xee);
    remap(&other, area);
    true
}

fn remap(from: &Area, to: &Area) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both areas are this test's alone, and nothing in them is borrowed.
    from.call("mremap", |at, len| unsafe { libc::mremap(at, len, len, flags, to.start()) } as i64);
}

fn advised(area: &Area, advice: i32) -> bool {
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    unsafe { libc::madvise(area.start(), area.len(), advice) == 0 }
}

fn advised_by_descriptor(area: &Area) -> bool {
    let range = libc::iovec { iov_base: area.start(), iov_len: area.len() };
    // SAFETY: a descriptor of this process, closed again; the area is this test's alone, and nothing in it is borrowed.
    unsafe {
        let this = libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) as i32;
        assert!(this >= 0);
        let advice = libc::MADV_DONTNEED;
        let advised = libc::syscall(libc::SYS_process_madvise, this, &raw const range, 1, advice, 0);
        libc::close(this);
        advised >= 0
    }
}

fn advised_by_io_uring(area: &Area) -> bool {
    thread_local! {
        static RING: RefCell<Option<Pins>> = RefCell::new(Pins::new());
    }
    let advice = io_uring::opcode::Madvise::new(area.start(), area.len() as i64, libc::MADV_DONTNEED);
    RING.with_borrow_mut(|ring| ring.as_mut().is_some_and(|ring| ring.run(&advice.build()) >= 0))
}

/// What the parent writes while a child has its pages goes to pages that the child does not see.
fn forked(area: &Area) -> bool {
    // SAFETY: the child makes system calls only and ends by one; the status is written to where it fits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::madvise(area.start(), area.len(), libc::MADV_DONTNEED);
            libc::munmap(area.start(), area.len());
            libc::_exit(0)
        }
        assert!(child > 0);
        area.fill(0xfd);
        let mut status = 0;
        assert_eq!((libc::waitpid(child, &raw mut status, 0), status), (child, 0));
    }
    true
}

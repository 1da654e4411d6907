//! The ways to change memory.

use std::cell::RefCell;
use std::os::fd::AsRawFd;

use super::area::{Area, PAGE};
use super::pins::Pins;
use super::spot::{Backing, Spot, move_the_break};

/// Not in the C library's headers of old: `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: i32 = 24;

/// A way to change memory.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) place: fn() -> Option<Spot>,
    /// Changes what is mapped in a spot, or its bytes, and leaves it mapped. `false`: this kernel cannot.
    pub(crate) change: fn(&mut Spot) -> bool,
    pub(crate) told: Told,
}

/// What is heard of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// At each place, once at least.
    Always,
    /// Of the change nothing, and nothing need be; but of each place, that it is left for the next.
    Between,
    /// That is the C library's business; but registrations are used.
    Perhaps,
    /// Nothing: such memory is never kept registered.
    NotKept,
}

impl Told {
    /// Whether it was so: `hits` transfers found memory registered, `told` registrations were given up.
    pub(crate) fn holds(self, places: u32, hits: u64, told: u64) -> Result<(), String> {
        let least = match self {
            Told::Always => places,
            Told::Between => places - 1,
            Told::Perhaps if hits > 0 => 0,
            Told::Perhaps => return Err("no hits".to_owned()),
            Told::NotKept if hits == 0 => 0,
            Told::NotKept => return Err(format!("{hits} hits")),
        };
        if told < u64::from(least) {
            return Err(format!("{told} told at {places} places"));
        }
        Ok(())
    }
}

/// Of anonymous memory that the test maps.
const fn row(name: &'static str, change: fn(&mut Spot) -> bool) -> Row {
    Row { name, place: Spot::anonymous, change, told: Told::Always }
}

/// The row that needs a process of its own, where nobody else has to do with the break: it is left out unless
/// it alone is wanted.
pub(crate) const BREAK: &str = "brk";

/// Nothing changes.
pub(crate) const STILL: Row = row("still", |_| true);

pub(crate) const ROWS: [Row; 19] = [
    row("munmap", |spot| unmapped(spot)),
    row("bare munmap", |spot| unmapped_by_a_bare_call(spot)),
    row("mmap over", |spot| mapped_anew(spot)),
    row("mremap source", |spot| moved_away(spot)),
    row("mremap target", |spot| moved_onto(spot)),
    row("DONTNEED", |spot| advised(spot, libc::MADV_DONTNEED)),
    row("FREE", |spot| advised(spot, libc::MADV_FREE)),
    row("DONTNEED_LOCKED", |spot| advised(spot, DONTNEED_LOCKED)),
    row("process_madvise", |spot| advised_by_descriptor(spot)),
    row("io_uring madvise", |spot| advised_by_io_uring(spot)),
    Row { told: Told::Between, ..row("fork, then write", |spot| forked(spot)) },
    Row { place: Spot::at_the_break, told: Told::Perhaps, ..row(BREAK, break_moved) },
    Row { place: Spot::on_a_stack, told: Told::Perhaps, ..row("thread's end", thread_ended) },
    Row { place: Spot::of_shared_file, told: Told::NotKept, ..row("file truncated", truncated) },
    Row { place: Spot::of_shared_file, told: Told::NotKept, ..row("file's hole", hole_punched) },
    Row { place: Spot::of_private_file, told: Told::NotKept, ..row("private file truncated", truncated) },
    Row { place: Spot::of_segment, told: Told::NotKept, ..row("shmdt", detached) },
    Row { place: || Spot::allocated(SMALL), told: Told::Perhaps, ..row("malloc", allocated_anew) },
    Row { place: || Spot::allocated(LARGE), told: Told::Perhaps, ..row("malloc, large", allocated_anew) },
];

/// What the C library takes from among other blocks, and what it maps, at first.
const SMALL: usize = 7_000;
const LARGE: usize = 140_000;

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
    // SAFETY: a descriptor of this process, closed again; the area is this test's alone, and nothing in it is
    // borrowed.
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

fn break_moved(_: &mut Spot) -> bool {
    move_the_break()
}

fn thread_ended(spot: &mut Spot) -> bool {
    // The old one ends first, so that the next may have its stack.
    spot.backing = Backing::Anonymous;
    *spot = Spot::on_a_stack().expect("threads have stacks");
    true
}

fn truncated(spot: &mut Spot) -> bool {
    let Backing::File(file) = &spot.backing else { return false };
    file.set_len(0).expect("it may shrink");
    file.set_len(spot.area.len).expect("it may grow");
    true
}

fn hole_punched(spot: &mut Spot) -> bool {
    let Backing::File(file) = &spot.backing else { return false };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes numbers only; what is mapped of the file is not borrowed.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, spot.area.len as i64) == 0 }
}

fn detached(spot: &mut Spot) -> bool {
    // SAFETY: the area is this test's alone, and nothing there is borrowed.
    assert_eq!(unsafe { libc::shmdt(spot.start()) }, 0);
    spot.attach()
}

fn allocated_anew(spot: &mut Spot) -> bool {
    spot.allocate_anew();
    true
}

//! Changes of watched memory.

use std::sync::mpsc;

use crate::area::{Area, PAGE};
use crate::cache::Cache;
use crate::{PAGES, among_transfers, holds, holds_at, rounds};

/// Not in the C library's headers of old: `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: i32 = 24;

#[test]
fn munmap() {
    holds("munmap", |area, _| {
        // SAFETY: the area is this test's alone, and nothing in it is borrowed.
        area.call("munmap", |at, len| unsafe { libc::munmap(at, len) }.into());
        area.map_anew();
    });
}

#[test]
fn munmap_by_a_bare_system_call() {
    holds("bare munmap", |area, _| {
        // SAFETY: the area is this test's alone, and nothing in it is borrowed.
        area.call("munmap", |at, len| unsafe { libc::syscall(libc::SYS_munmap, at, len) });
        area.map_anew();
    });
}

#[test]
fn mapping_over() {
    holds("mmap over", |area, _| area.map_anew());
}

#[test]
fn moving_away() {
    let elsewhere = Area::reserved(PAGES);
    holds("mremap source", |area, _| {
        remap(area, &elsewhere);
        area.map_anew();
    });
}

#[test]
fn moving_onto() {
    let elsewhere = Area::new(PAGES);
    holds("mremap target", |area, _| {
        elsewhere.map_anew();
        elsewhere.fill(0xfe);
        remap(&elsewhere, area);
    });
}

fn remap(from: &Area, to: &Area) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both areas are this test's alone, and nothing in them is borrowed.
    from.call("mremap", |at, len| unsafe { libc::mremap(at, len, len, flags, to.start()) } as i64);
}

#[test]
fn removing_pages() {
    holds("DONTNEED", |area, _| advise(area, libc::MADV_DONTNEED));
}

#[test]
fn freeing_pages() {
    holds("FREE", |area, _| advise(area, libc::MADV_FREE));
}

#[test]
fn removing_locked_pages() {
    let locked = || {
        let area = Area::new(PAGES);
        // SAFETY: the area is this test's alone, and locking changes no byte.
        let done = unsafe { libc::mlock(area.start(), area.len()) };
        (area, done == 0)
    };
    if !locked().1 {
        return testbed::skip("no page can be locked");
    }
    holds_at("DONTNEED_LOCKED", || locked().0, |area, _| advise(area, DONTNEED_LOCKED));
}

fn advise(area: &Area, advice: i32) {
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    area.call("madvise", |at, len| unsafe { libc::madvise(at, len, advice) }.into());
}

#[test]
fn removing_pages_by_process_madvise() {
    // SAFETY: makes a descriptor of this process, and touches no memory of it.
    let this = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
    assert!(this >= 0);
    let by_descriptor = |area: &Area| {
        let range = libc::iovec { iov_base: area.start(), iov_len: area.len() };
        // SAFETY: the area is this test's alone, and nothing in it is borrowed.
        unsafe { libc::syscall(libc::SYS_process_madvise, this, &raw const range, 1, libc::MADV_DONTNEED, 0) }
    };
    if by_descriptor(&Area::new(PAGES)) < 0 {
        return testbed::skip("this kernel removes no pages by process_madvise");
    }
    holds("process_madvise", |area, _| area.call("process_madvise", |_, _| by_descriptor(area)));
}

#[test]
fn removing_pages_by_io_uring() {
    let Some(mut ring) = crate::pins::Pins::new() else { return };
    holds("io_uring madvise", |area, _| {
        let madvise = io_uring::opcode::Madvise::new(area.start(), area.len() as i64, libc::MADV_DONTNEED);
        area.call("io_uring madvise", |_, _| ring.run(&madvise.build()).into());
    });
}

/// The parent's writes after a fork go to pages that the child does not see, and these must be the pinned
/// ones.
#[test]
fn forking_and_writing() {
    holds("fork", |area, cache| {
        let (mut bytes, mut pipe) = ([0; PAGE as usize], [0; 2]);
        // SAFETY: two descriptors are written to where two fit.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the child makes system calls only, and ends by one.
        match unsafe { libc::fork() } {
            0 => child(area, pipe),
            pid => {
                assert!(pid > 0);
                area.fill(0xfd);
                assert!(cache.transfer(area.addr, &mut bytes));
                assert_eq!(bytes, [0xfd; PAGE as usize], "while the child has the pages");
                close(pipe[1]);
                let mut status = 0;
                // SAFETY: the status is written to where it fits, and the child is ours.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                assert_eq!(status, 0, "the child harms nobody, itself included");
                close(pipe[0]);
            }
        }
    });
}

/// Changes what was watched in the parent, which nobody reads of here, when the parent has written.
fn child(area: &Area, pipe: [i32; 2]) -> ! {
    close(pipe[1]);
    // SAFETY: system calls on memory and descriptors of this process, which nobody else uses any more.
    unsafe {
        libc::read(pipe[0], (&raw mut *Box::leak(Box::new(0_u8))).cast(), 1);
        libc::madvise(area.start(), area.len(), libc::MADV_DONTNEED);
        libc::munmap(area.start(), area.len());
        libc::_exit(0)
    }
}

fn close(fd: i32) {
    // SAFETY: the callers' own descriptor, which is not used again.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// Stacks of threads that have ended are emptied, kept, and given to new ones.
#[test]
fn ending_threads() {
    let Some(cache) = Cache::new(true) else { return };
    let area = Area::new(1);
    area.fill(0);
    among_transfers(&cache, &area, || {
        for round in 0..rounds() {
            let byte = (round % 255) as u8 + 1;
            let (ended, ends) = mpsc::channel();
            let transfer = {
                let cache = &cache;
                move || {
                    let bytes = [byte; 3 * PAGE as usize];
                    let mut found = [0; 3 * PAGE as usize];
                    assert!(cache.transfer(std::hint::black_box(&bytes).as_ptr() as u64, &mut found));
                    ended.send(found == bytes).expect("the test waits");
                }
            };
            std::thread::scope(|scope| scope.spawn(transfer).join()).expect("no panic");
            assert!(ends.recv().expect("sent"), "round {round} got a stale byte of a stack");
        }
    });
    println!("ending threads: {:?}", cache.counts());
}

/// The end of the heap of old goes down and up again. Nothing of it but what was added here is touched.
#[test]
fn moving_the_break() {
    const BYTES: u64 = PAGES * PAGE;
    // SAFETY: what lies above the break is nobody's, and the C library bears it when others move the break
    // up.
    let old = unsafe { libc::sbrk((BYTES + PAGE) as isize) } as u64;
    let (first, top) = (old.next_multiple_of(PAGE), old + BYTES + PAGE);
    let mut moved = 0;
    let added = || Area { addr: first, len: BYTES, is_borrowed: true };
    holds_at("brk", added, |area, _| {
        // SAFETY: it is set down and up again only while it is where it was set, so that what goes is the
        // area.
        unsafe {
            if libc::sbrk(0) as u64 == top {
                let down = area.addr as isize - top as isize;
                libc::sbrk(down);
                libc::sbrk(-down);
                moved += 1;
            }
        }
    });
    println!("the break moved {moved} times");
}

/// The kernel moves no range that is watched in part: the program's `realloc` would have to copy.
#[test]
fn blocks_in_mappings_of_their_own_grow_by_moves_though_a_part_was_watched() {
    let Ok(monitor) = vm::Monitor::of_process() else { return testbed::skip("there is no userfaultfd") };
    const BLOCK: usize = 4 << 20;
    for _ in 0..8 {
        let area = Area::new(BLOCK as u64 / PAGE);
        monitor.watch(area.addr + (1 << 20), 3 * PAGE).expect("a part of it is transferred");
        // SAFETY: the area is this test's alone; it goes on at the new address, and is unmapped there.
        unsafe {
            let grown = libc::mremap(area.start(), BLOCK, 2 * BLOCK, libc::MREMAP_MAYMOVE);
            assert_ne!(grown, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            assert_eq!(libc::munmap(grown, 2 * BLOCK), 0);
        }
        std::mem::forget(area);
    }
    // Beyond any threshold of glibc's, so that the block is a mapping.
    let mut block = vec![7_u8; 40 << 20];
    block.shrink_to_fit();
    let time = std::time::Instant::now();
    monitor.watch(block.as_ptr() as u64 + (8 << 20), 64 << 10).expect("a part of it is transferred");
    let (before, at) = (monitor.counters().moved, block.as_ptr());
    block.reserve_exact(40 << 20);
    println!("watched, and grown to {} MiB, in {:?}", block.capacity() >> 20, time.elapsed());
    let is_moved = monitor.counters().moved > before;
    assert!(is_moved || block.as_ptr() == at, "moved, or longer where it is, and not copied");
    assert!(block.iter().all(|byte| *byte == 7));
}

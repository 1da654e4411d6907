//! What is missed: by a cache that does not listen, everything; and what the kernel does not tell.

use vm::Monitor;

use crate::PAGES;
use crate::area::{Area, PAGE};
use crate::cache::Cache;

/// Linux 6.13.
const GUARD_INSTALL: i32 = 102;
const GUARD_REMOVE: i32 = 103;

const OLD: u8 = 0x0d;
const NEW: u8 = 0x4e;

/// What a transfer finds first after the memory was filled, changed and filled again.
fn after(listens: bool, change: impl FnOnce(&Area)) -> Option<u8> {
    let cache = Cache::new(listens)?;
    let area = Area::new(PAGES);
    let mut bytes = [0; PAGE as usize];
    area.fill(OLD);
    assert!(cache.transfer(area.addr, &mut bytes));
    change(&area);
    assert!(cache.transfer(area.addr, &mut bytes));
    Some(bytes[0])
}

/// If this found the new bytes, no other test here would show anything.
#[test]
fn a_cache_that_does_not_listen_gets_stale_bytes() {
    let mapped_over = |area: &Area| {
        area.map_anew();
        area.fill(NEW);
    };
    let removed = |area: &Area| {
        // SAFETY: the area is the test's alone, and nothing in it is borrowed.
        assert_eq!(unsafe { libc::madvise(area.start(), area.len(), libc::MADV_DONTNEED) }, 0);
        area.fill(NEW);
    };
    let Some(stale) = after(false, mapped_over) else { return };
    assert_eq!((stale, after(true, mapped_over)), (OLD, Some(NEW)));
    assert_eq!((after(false, removed), after(true, removed)), (Some(OLD), Some(NEW)));
}

#[test]
fn gap_guards_are_installed_untold_and_stale_bytes_are_read() {
    let mut has_guards = true;
    let found = after(true, |area| {
        for advice in [GUARD_INSTALL, GUARD_REMOVE] {
            // SAFETY: the area is the test's alone, and nothing in it is borrowed.
            has_guards &= unsafe { libc::madvise(area.start(), area.len(), advice) } == 0;
        }
        area.fill(NEW);
    });
    if !has_guards {
        return testbed::skip("this kernel has no guards");
    }
    assert!(found.is_none_or(|byte| byte == OLD), "told by now: mend the list of what is not");
}

#[test]
fn gap_shmat_over_watched_memory_is_untold_and_stale_bytes_are_read() {
    let mut has_segments = true;
    let found = after(true, |area| {
        // SAFETY: a segment of this test's own replaces what is mapped in the area, which is the test's
        // alone.
        unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, area.len(), 0o600);
            has_segments = libc::shmat(id, area.start(), libc::SHM_REMAP) == area.start();
            libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        }
        area.fill(NEW);
    });
    if !has_segments {
        return testbed::skip("no System V shared memory");
    }
    assert!(found.is_none_or(|byte| byte == OLD), "told by now: mend the list of what is not");
}

/// The bytes are still the right ones; only the rights are those of before.
#[test]
fn gap_memory_that_is_protected_is_still_reached() {
    let found = after(true, |area| {
        // SAFETY: the area is the test's alone; nobody touches it but the kernel.
        assert_eq!(unsafe { libc::mprotect(area.start(), area.len(), libc::PROT_NONE) }, 0);
    });
    assert!(found.is_none_or(|byte| byte == OLD));
}

/// Watched memory can be unmapped when nobody watches any more, even while a child has the descriptors of
/// before.
#[test]
fn who_stops_watching_leaves_nothing_watched() {
    // The other tests share this process's monitor, so that it goes only if this test is alone; either way
    // this ends.
    let Ok(monitor) = Monitor::of_process() else { return };
    let area = Area::new(PAGES);
    assert_eq!(monitor.watch(area.addr, area.len), Ok(()));
    // SAFETY: the child makes system calls only, and ends by one.
    let child = unsafe {
        match libc::fork() {
            0 => {
                libc::sleep(100);
                libc::_exit(0)
            }
            child => child,
        }
    };
    drop(monitor);
    area.map_anew();
    // SAFETY: the child is ours; the status is not wanted.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

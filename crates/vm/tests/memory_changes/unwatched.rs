//! Memory that others can change is never kept, however often it is transferred.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use vm::NotWatchable;

use crate::area::{Area, PAGE};
use crate::cache::Cache;
use crate::{PAGES, among_transfers, rounds};

fn file() -> File {
    // SAFETY: the name is a string of this program's; the descriptor that is returned is nobody else's.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"changing".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(PAGES * PAGE).expect("memory");
    file
}

/// Transfers the area, of which nothing may be kept, before and after each change of it.
fn is_not_kept(area: &Area, mut change: impl FnMut(u8)) {
    let Some(cache) = Cache::new(true) else { return };
    let transferred = |byte: u8| {
        let mut bytes = [0; PAGE as usize];
        assert!(cache.transfer(area.addr, &mut bytes));
        assert_eq!(bytes, [byte; PAGE as usize]);
    };
    for round in 0..rounds() {
        let byte = (round % 255) as u8 + 1;
        change(byte);
        transferred(byte);
        transferred(byte);
    }
    assert_eq!(cache.last_refusal(), Some(NotWatchable::Shared));
    assert_eq!(cache.counts(), (0, 0, 2 * u64::from(rounds())));
}

#[test]
fn a_shared_file_that_is_truncated() {
    let (file, area) = (file(), Area::reserved(PAGES));
    area.map(file.as_raw_fd(), libc::MAP_SHARED);
    is_not_kept(&area, |byte| {
        file.set_len(0).expect("it may shrink");
        file.set_len(PAGES * PAGE).expect("it may grow");
        file.write_all_at(&[byte; PAGE as usize], 0).expect("memory");
    });
}

#[test]
fn a_shared_file_that_gets_holes() {
    let (file, area) = (file(), Area::reserved(PAGES));
    area.map(file.as_raw_fd(), libc::MAP_SHARED);
    is_not_kept(&area, |byte| {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes numbers only; what is mapped of the file is not borrowed.
        assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, (PAGES * PAGE) as i64) }, 0);
        area.fill(byte);
    });
}

/// The private copy of a page goes with the file's page.
#[test]
fn a_private_mapping_of_a_file_that_is_truncated() {
    let (file, area) = (file(), Area::reserved(PAGES));
    area.map(file.as_raw_fd(), libc::MAP_PRIVATE);
    is_not_kept(&area, |byte| {
        file.set_len(0).expect("it may shrink");
        file.set_len(PAGES * PAGE).expect("it may grow");
        area.fill(byte);
    });
}

#[test]
fn a_system_v_segment_that_is_detached() {
    let area = Area::reserved(PAGES);
    // SAFETY: makes a segment, and touches no memory of this process.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, area.len(), 0o600) };
    if id < 0 {
        return testbed::skip("no System V shared memory");
    }
    let attach = || {
        // SAFETY: the area is this test's alone, and nothing is mapped there now.
        let at = unsafe { libc::shmat(id, area.start(), 0) };
        assert_eq!(at, area.start());
    };
    attach();
    is_not_kept(&area, |byte| {
        // SAFETY: the area is this test's alone, and nothing there is borrowed.
        assert_eq!(unsafe { libc::shmdt(area.start()) }, 0);
        attach();
        area.fill(byte);
    });
    // SAFETY: detaches and removes this test's own segment, where nothing is borrowed.
    unsafe {
        libc::shmdt(area.start());
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
    }
}

#[test]
fn what_is_not_there_is_not_watched() {
    let Some(cache) = Cache::new(true) else { return };
    let area = Area::new(PAGES);
    area.fill(3);
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    assert_eq!(unsafe { libc::munmap((area.addr + PAGE) as *mut _, PAGE as usize) }, 0);
    let mut bytes = [0; 2 * PAGE as usize];
    assert!(!cache.transfer(area.addr, &mut bytes));
    assert_eq!(cache.last_refusal(), Some(NotWatchable::NotMapped));
    assert!(cache.transfer(area.addr, &mut bytes[..100]) && bytes[..100] == [3; 100]);
    assert_eq!(cache.counts(), (0, 1, 1));
}

/// Two mappings side by side, of which one is a file's: what spans both is not kept, what does not is.
#[test]
fn half_a_file() {
    let Some(cache) = Cache::new(true) else { return };
    let (file, area) = (file(), Area::new(2 * PAGES));
    let half = Area { addr: area.addr + PAGES * PAGE, len: PAGES * PAGE, is_borrowed: true };
    half.map(file.as_raw_fd(), libc::MAP_SHARED);
    among_transfers(&cache, &half, || {
        let mut bytes = [0; 2 * PAGE as usize];
        assert!(cache.transfer(half.addr - PAGE, &mut bytes));
        assert_eq!(cache.last_refusal(), Some(NotWatchable::Shared));
        assert!(cache.transfer(half.addr - PAGE, &mut bytes[..PAGE as usize]));
    });
    assert!(cache.counts().1 >= 1);
}

//! A range of addresses to change what is mapped at.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const PAGE: u64 = 4096;

/// Far below where the kernel puts mappings that ask for no place, and memory of the program's in the
/// sanitizers' plans. (A hole that a change leaves must stay one until it is filled: another test's thread
/// may map something meanwhile.)
static NEXT: AtomicU64 = AtomicU64::new(0x5800_0000_0000);

/// Addresses that nobody else's mappings come to lie at, at first private anonymous memory.
pub(crate) struct Area {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// It is mapped by somebody else, and stays.
    pub(crate) is_borrowed: bool,
}

impl Area {
    pub(crate) fn new(pages: u64) -> Area {
        let area = Area::reserved(pages);
        area.map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        area
    }

    /// Nothing is mapped there.
    pub(crate) fn reserved(pages: u64) -> Area {
        let hint = NEXT.fetch_add((pages * PAGE).next_multiple_of(1 << 24), Ordering::Relaxed);
        let (flags, len) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, (pages * PAGE) as usize);
        // SAFETY: a mapping wherever there is room, and gone again before anybody has heard of it.
        let addr = unsafe {
            let at = libc::mmap(hint as *mut _, len, libc::PROT_NONE, flags, -1, 0);
            assert_eq!(libc::munmap(at, len), 0);
            at as u64
        };
        assert_eq!(addr, hint, "others' mappings lie where only areas should");
        Area { addr, len: pages * PAGE, is_borrowed: false }
    }

    /// Maps something over it.
    pub(crate) fn map(&self, fd: i32, flags: i32) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: these addresses are this test's alone, and no reference to anything there exists.
        let at = unsafe { libc::mmap(self.start(), self.len(), rights, flags | libc::MAP_FIXED, fd, 0) };
        assert_eq!(at, self.start(), "mmap: {}", std::io::Error::last_os_error());
    }

    pub(crate) fn map_anew(&self) {
        self.map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    }

    /// As a program does, not telling anybody: `f` returns 0 or the test fails.
    pub(crate) fn call(&self, what: &str, f: impl FnOnce(*mut libc::c_void, usize) -> i64) {
        let result = f(self.start(), self.len());
        assert!(result >= 0, "{what}: {}", std::io::Error::last_os_error());
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the test has something writable mapped there, in which nothing but bytes lives.
        unsafe { std::ptr::write_bytes(self.start().cast::<u8>(), byte, self.len()) }
    }

    pub(crate) fn start(&self) -> *mut libc::c_void {
        self.addr as *mut _
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if !self.is_borrowed {
            // SAFETY: these addresses are this test's alone, and nothing there is borrowed.
            unsafe { libc::munmap(self.start(), self.len()) };
        }
    }
}

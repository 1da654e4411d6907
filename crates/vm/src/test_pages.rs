//! Pages at known addresses, to be taken away or protected by a test.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

pub(crate) const PAGE: u64 = 4096;

static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);

/// Private anonymous pages, zero at first, unmapped when dropped.
pub(crate) struct Pages {
    base: *mut u8,
    count: usize,
}

impl Pages {
    pub(crate) fn new(count: usize) -> Pages {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = count * PAGE as usize;
        // Far below where the kernel puts mappings by itself, so that what a test unmaps stays unmapped
        // whatever the threads of other tests do.
        let hint = NEXT.fetch_add(bytes.next_multiple_of(1 << 24), Ordering::Relaxed) as *mut _;
        // SAFETY: a fresh mapping; the address is only a hint, so nothing is replaced.
        let base = unsafe { rustix::mm::mmap_anonymous(hint, bytes, protection, MapFlags::PRIVATE) };
        Pages { base: base.expect("memory").cast(), count }
    }

    pub(crate) fn addr(&self, page: usize) -> u64 {
        self.base as u64 + page as u64 * PAGE
    }

    pub(crate) fn forbid(&self, page: usize) {
        self.protect(page, MprotectFlags::empty());
    }

    pub(crate) fn make_read_only(&self, page: usize) {
        self.protect(page, MprotectFlags::READ);
    }

    pub(crate) fn unmap(&self, page: usize) {
        // SAFETY: one of our pages, which the test does not touch any more.
        unsafe { rustix::mm::munmap(self.at(page).cast(), PAGE as usize) }.expect("mapped so far");
    }

    pub(crate) fn fill(&self, page: usize, byte: u8) {
        // SAFETY: one of our pages, which the test has left writable.
        unsafe { ptr::write_bytes(self.at(page), byte, PAGE as usize) };
    }

    /// The byte at an offset from the first page's start.
    pub(crate) fn byte(&self, offset: u64) -> u8 {
        assert!(offset < self.count as u64 * PAGE);
        // SAFETY: inside our pages, which the test has left readable.
        unsafe { ptr::read_volatile(self.base.add(offset as usize)) }
    }

    fn protect(&self, page: usize, protection: MprotectFlags) {
        // SAFETY: one of our pages; no reference into it exists.
        unsafe { rustix::mm::mprotect(self.at(page).cast(), PAGE as usize, protection) }.expect("mapped");
    }

    fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.count);
        self.base.wrapping_add(page * PAGE as usize)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own range, whose addresses nobody else was given, with holes perhaps.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.count * PAGE as usize) };
    }
}

//! Mappings of whole files, of which only what is used can be touched, and only what is ours is dumped.
//!
//! A segment is large and sparse, and some walk through all that a process has mapped: the kernel when it
//! dumps core, and when the program calls `mlockall`. Both would touch every page, and so give memory to each
//! hole, in peers' segments too. So a mapping begins *closed*: without any access, and out of core dumps.
//! `mlockall` leaves it alone whether it is called before or after; `MADV_DONTDUMP` is needed, as the kernel
//! dumps shared memory also where nobody may read it. Pages in use are opened.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use crate::pages::{HUGE_PAGE_BYTES, PAGE_BYTES};

/// Bytes that are opened beyond what is asked for, at most, so that memory in use grows by few calls of the
/// kernel.
const AHEAD_MAX: u64 = 64 << 20;

/// A mapping of a whole file, which is unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// So many of the first bytes are open.
    open: AtomicU64,
    /// Pages that are open from here on are in core dumps.
    dumped_from: u64,
    /// The accesses that pages have which are open.
    rights: MprotectFlags,
}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, shared, without reserving memory for them, and closed. Of what is
    /// opened later, core dumps have what lies at `dumped_from` and beyond, and `rights` say what may be done
    /// with it.
    ///
    /// The caller vouches that the file stays as long as `len`: otherwise a later access is a SIGBUS.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        len: usize,
        dumped_from: u64,
        rights: MprotectFlags,
    ) -> rustix::io::Result<Mapping> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses an unused range, so no memory of ours changes.
        let anywhere = unsafe { rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::empty(), flags, fd, 0) }?;
        let base = room_for_huge_pages(len).map_or(anywhere, |room| {
            let moves = MremapFlags::MAYMOVE;
            // SAFETY: the mapping was made just above, and nobody has had its address. The range is room that
            // was mapped just now for nothing else, and that nobody uses. It is left alone where this fails,
            // as the kernel may have given it up by then.
            unsafe { rustix::mm::mremap_fixed(anywhere, len, len, moves, room) }.unwrap_or(anywhere)
        });
        // SAFETY: the range was mapped just above, and the advice leaves its contents as they are.
        let undumped = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontDump) };
        // Every kernel since 3.4 knows it.
        let _ = undumped;
        let base =
            NonNull::new(base.cast()).expect("the kernel maps nothing at address zero unless asked to");
        Ok(Mapping { base, len, open: AtomicU64::new(0), dumped_from, rights })
    }

    /// The first byte.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes, open or not.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many of the first bytes are open.
    #[inline]
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open.load(Ordering::Acquire).min(self.len as u64)
    }

    /// Opens the first `end` bytes, and some more.
    ///
    /// # Errors
    /// `INVAL` if the mapping has not so many bytes. The kernel's, if it has no memory.
    pub(crate) fn open_to(&self, end: u64) -> rustix::io::Result<()> {
        let before = self.open.load(Ordering::Acquire);
        if end <= before {
            return Ok(());
        }
        if end > self.len as u64 {
            return Err(Errno::INVAL);
        }
        let whole = (self.len as u64).next_multiple_of(PAGE_BYTES);
        let ahead = (end / 4).min(AHEAD_MAX);
        let after = (end + ahead).next_multiple_of(HUGE_PAGE_BYTES).min(whole);
        // Threads may meet here: whatever the order, all that each of them has asked for is open.
        self.open_part(before..after)?;
        self.open.fetch_max(after, Ordering::AcqRel);
        Ok(())
    }

    /// Opens the pages of a range inside the mapping. Where the process has as many mappings as the kernel
    /// allows it opens all of it: one that is open altogether needs no more of them.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    pub(crate) fn open_part(&self, part: Range<u64>) -> rustix::io::Result<()> {
        self.make_accessible(&part).or_else(|_| {
            let whole = 0..self.len as u64;
            self.make_accessible(&whole)?;
            self.open.fetch_max(whole.end, Ordering::AcqRel);
            Ok(())
        })
    }

    fn make_accessible(&self, part: &Range<u64>) -> rustix::io::Result<()> {
        let Some((start, len)) = self.pages_of(part) else { return Ok(()) };
        // SAFETY: the range is this mapping's, which lives, and of whose bytes nobody ever made a reference.
        unsafe { rustix::mm::mprotect(start.cast(), len, self.rights) }?;
        // Where this fails, no dump has these pages, and all else is as it should be.
        self.set_dumped(part.start.max(self.dumped_from)..part.end, true);
        Ok(())
    }

    /// Has core dumps of this process contain the pages of a range, or not. Whether the kernel has done it.
    pub(crate) fn set_dumped(&self, part: Range<u64>, is_dumped: bool) -> bool {
        let Some((start, len)) = self.pages_of(&part) else { return true };
        let advice = if is_dumped { Advice::LinuxDoDump } else { Advice::LinuxDontDump };
        // SAFETY: the range is this mapping's, which lives; the advice leaves its contents as they are.
        unsafe { rustix::mm::madvise(start.cast(), len, advice) }.is_ok()
    }

    /// The pages that a range touches, where it lies in the mapping; `None` where it is empty.
    fn pages_of(&self, part: &Range<u64>) -> Option<(*mut u8, usize)> {
        let whole = (self.len as u64).next_multiple_of(PAGE_BYTES);
        let start = part.start / PAGE_BYTES * PAGE_BYTES;
        let end = part.end.min(whole).next_multiple_of(PAGE_BYTES);
        let len = end.checked_sub(start).filter(|len| *len > 0)? as usize;
        Some((self.base.as_ptr().wrapping_add(start as usize), len))
    }
}

/// Room, mapped for nothing, where a mapping of so many bytes can have huge pages; `None`: it is shorter than
/// one, or there is no such room.
fn room_for_huge_pages(len: usize) -> Option<*mut std::ffi::c_void> {
    let huge = HUGE_PAGE_BYTES as usize;
    let all = len.checked_add(huge).filter(|_| len >= huge)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses an unused range, so no memory of ours changes.
    let start =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), all, ProtFlags::empty(), flags) }.ok()?;
    let before = start.addr().next_multiple_of(huge) - start.addr();
    let len = len.next_multiple_of(PAGE_BYTES as usize);
    let room = start.wrapping_byte_add(before);
    for (part, len) in [(start, before), (room.wrapping_byte_add(len), all - before - len)] {
        if len > 0 {
            // SAFETY: it is an end of the range that was mapped just now, which nobody uses or knows.
            let _ = unsafe { rustix::mm::munmap(part, len) };
        }
    }
    Some(room)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made exactly this mapping and nothing else unmaps it; whatever reaches into it has a
        // share of its owner, or borrows one, so nothing does any more. Failure (impossible for such a range)
        // would only leak.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: a mapping belongs to the process, not to a thread, and `munmap` may run on any thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared one gives its address, and changes what the kernel does with the range, on any thread.
unsafe impl Sync for Mapping {}

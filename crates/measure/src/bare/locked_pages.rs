//! The nearest thing to pinning pages for a card, where there is no card.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use vm::host::page_bytes;

/// Pages of this process that are there, to be locked and unlocked: what comes nearest to pinning them for a
/// card where there is no card.
#[derive(Debug)]
pub struct LockablePages {
    /// Of the mapping, whose first and last page nobody may touch: so it is never one with its neighbours,
    /// and locking splits nothing.
    base: *mut libc::c_void,
    /// Of the pages between those two.
    bytes: usize,
}

impl LockablePages {
    /// So many fresh pages.
    ///
    /// # Errors
    /// If the kernel has no memory for them.
    pub fn new(count: usize) -> Result<LockablePages, Errno> {
        let page = page_bytes();
        let whole = count.checked_add(2).and_then(|count| count.checked_mul(page)).ok_or(Errno::NOMEM)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a fresh mapping wherever the kernel likes, which replaces nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, access, flags) }?;
        let pages = LockablePages { base, bytes: count * page };
        for fence in [base, base.wrapping_byte_add(whole - page)] {
            // SAFETY: the first or last page of the mapping made above, which nothing refers to.
            unsafe { rustix::mm::mprotect(fence, page, MprotectFlags::empty()) }?;
        }
        Ok(pages)
    }

    /// Locks them and unlocks them again. Returns how long each took.
    ///
    /// # Errors
    /// If the kernel refuses: `RLIMIT_MEMLOCK` is too low, most likely.
    pub fn lock_and_unlock(&self) -> Result<(Duration, Duration), Errno> {
        let start = self.base.wrapping_byte_add(page_bytes());
        let begun = Instant::now();
        // SAFETY: the pages lie inside the mapping, which lives as long as the handle; locking changes no
        // byte.
        unsafe { rustix::mm::mlock(start, self.bytes) }?;
        let locked = Instant::now();
        // SAFETY: as for locking; nobody else knows these pages, and so nobody wants them locked.
        unsafe { rustix::mm::munlock(start, self.bytes) }?;
        Ok((locked - begun, locked.elapsed()))
    }
}

impl Drop for LockablePages {
    fn drop(&mut self) {
        let whole = self.bytes + 2 * page_bytes();
        // SAFETY: the whole mapping, which was made in `new` and which nothing refers to any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base, whole) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_locked_and_unlocked_as_often_as_wanted() {
        let pages = LockablePages::new(4).expect("room for four pages");
        for _ in 0..3 {
            match pages.lock_and_unlock() {
                Ok((lock, unlock)) => assert!(lock > Duration::ZERO && unlock > Duration::ZERO),
                Err(refused) => return testbed::skip(format_args!("no page may be locked here: {refused}")),
            }
        }
    }

    #[test]
    fn more_pages_than_there_are_addresses_are_an_error() {
        for count in [usize::MAX, usize::MAX / 4096, usize::MAX / 8192] {
            assert!(LockablePages::new(count).is_err(), "{count}");
        }
    }
}

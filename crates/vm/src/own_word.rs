//! Atomics on words of this process's own memory at addresses that it has granted: nothing where there is no
//! memory, not a signal.
//!
//! The owner has promised that the memory stays. Where it has broken that before, the kernel says so when it
//! is asked. Nobody may break it while a word is at work: the caller sees to that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::fault_safe_copy;

/// Whether there is an aligned word of so many bytes that can be read, or written if it is to be, so far as
/// the kernel [can tell](fault_safe_copy::can_tell).
fn is_word(addr: u64, bytes: u64, written: bool) -> bool {
    addr != 0 && addr.is_multiple_of(bytes) && fault_safe_copy::is_there(addr, bytes, written)
}

/// Reads an aligned word of 4 bytes; also where memory may only be read. `None`: there is none. Any thread.
///
/// # Safety
/// Memory that is mapped there, and may be read, stays so until this returns. Until then this program changes
/// it by atomics alone, or by the kernel's copies.
pub unsafe fn load_u32(addr: u64) -> Option<u32> {
    // SAFETY: the word is mapped and aligned; the caller vouches for the rest.
    is_word(addr, 4, false).then(|| in_order(|| unsafe { word_u32(addr) }.load(Ordering::Relaxed)))
}

/// Reads an aligned word of 8 bytes, likewise.
///
/// # Safety
/// As for [`load_u32`].
pub unsafe fn load_u64(addr: u64) -> Option<u64> {
    // SAFETY: the word is mapped and aligned; the caller vouches for the rest.
    is_word(addr, 8, false).then(|| in_order(|| unsafe { word_u64(addr) }.load(Ordering::Relaxed)))
}

/// Changes an aligned word of 4 bytes as `change` does. `None`: there is none that may be written, and
/// `change` is not called. Any thread.
///
/// # Safety
/// As for [`load_u32`], of memory that may be written. No Rust value other than plain bytes lies there, and
/// no reference is alive that assumes it not to change.
pub unsafe fn change_u32<R>(addr: u64, change: impl FnOnce(&AtomicU32) -> R) -> Option<R> {
    // SAFETY: the word is mapped and aligned; the caller vouches for the rest.
    is_word(addr, 4, true).then(|| change(unsafe { word_u32(addr) }))
}

/// Changes an aligned word of 8 bytes, likewise.
///
/// # Safety
/// As for [`change_u32`].
pub unsafe fn change_u64<R>(addr: u64, change: impl FnOnce(&AtomicU64) -> R) -> Option<R> {
    // SAFETY: the word is mapped and aligned; the caller vouches for the rest.
    is_word(addr, 8, true).then(|| change(unsafe { word_u64(addr) }))
}

/// A load that is relaxed, as memory that can only be read allows no other, in one order with all that is
/// sequentially consistent.
fn in_order<R>(load: impl FnOnce() -> R) -> R {
    fence(Ordering::SeqCst);
    let value = load();
    fence(Ordering::SeqCst);
    value
}

/// # Safety
/// An aligned word is mapped there while this lives, and used as [`load_u32`] says.
unsafe fn word_u32<'a>(addr: u64) -> &'a AtomicU32 {
    // SAFETY: the caller promises that an aligned word is mapped there, for as long as the reference lives.
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(addr as usize)) }
}

/// # Safety
/// As for [`word_u32`].
unsafe fn word_u64<'a>(addr: u64) -> &'a AtomicU64 {
    // SAFETY: the caller promises that an aligned word is mapped there, for as long as the reference lives.
    unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr as usize)) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::test_pages::{PAGE, Pages};

    fn add(addr: u64) -> Option<u64> {
        // SAFETY: test pages, which stay to the test's end and which nothing borrows, or no memory.
        unsafe { change_u64(addr, |word| word.fetch_add(1, Ordering::SeqCst)) }
    }

    fn load(addr: u64) -> Option<u64> {
        // SAFETY: as in `add`: test pages that stay and that nothing borrows, or no memory.
        unsafe { load_u64(addr) }
    }

    #[test]
    fn words_of_both_sizes_are_changed_and_read() {
        let pages = Pages::new(1);
        let at = pages.addr(0) + 64;
        assert_eq!([add(at), add(at), load(at)], [Some(0), Some(1), Some(2)]);
        // SAFETY: as in `add`: test pages that stay and that nothing borrows, or no memory.
        let old = unsafe { change_u32(at + 4, |word| word.swap(7, Ordering::SeqCst)) };
        // SAFETY: as in `add`: test pages that stay and that nothing borrows, or no memory.
        let low = unsafe { load_u32(at) };
        assert_eq!((old, low, load(at)), (Some(0), Some(2), Some(7 << 32 | 2)));
    }

    #[test]
    fn what_is_not_aligned_is_no_word() {
        let pages = Pages::new(1);
        for off in 1..8 {
            assert_eq!((add(pages.addr(0) + off), load(pages.addr(0) + off)), (None, None), "{off}");
        }
        assert_eq!((pages.byte(0), pages.byte(1)), (0, 0));
    }

    #[test]
    fn where_no_memory_is_there_is_no_word() {
        if !fault_safe_copy::can_tell() {
            return testbed::skip("this kernel cannot tell");
        }
        let pages = Pages::new(3);
        pages.fill(0, 9);
        pages.make_read_only(0);
        pages.forbid(1);
        pages.unmap(2);
        let nines = u64::from_ne_bytes([9; 8]);
        assert_eq!((add(pages.addr(0)), load(pages.addr(0) + PAGE - 8)), (None, Some(nines)));
        for addr in [0, 8, pages.addr(1), pages.addr(2), 1 << 63, u64::MAX - 7] {
            assert_eq!((add(addr), load(addr)), (None, None), "{addr:#x}");
        }
    }
}

//! The heap that the program's allocations lie in already, which its first node takes instead of one of its
//! own: a `GlobalHeap`'s, or that of a preloaded `libstandpipe_malloc.so`.
//!
//! That library and the node are linked apart, each with its own copy of this crate. So the node finds the
//! heap by a symbol, whose name has the version of what it leads to.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

pub use crate::heap_face::{Find, ForkCounts, ProgramHeap, SYMBOL};
use crate::segment::{Segment, SegmentError};

/// The memory that the program's allocations share with peers, once a segment has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The address of its first byte in this process. It is the segment's first byte, too, mapped once more.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

/// Makes a segment of what the program's allocator divides, followed by `more` bytes. `None` where the
/// program's allocations lie in no heap of ours, and once a segment has been made.
///
/// # Errors
/// As for [`Segment::create`].
pub fn adopt(more: u64) -> Result<Option<(Segment, Adopted)>, SegmentError> {
    let Some(heap) = find() else { return Ok(None) };
    let fd = (heap.take)();
    if fd < 0 {
        return Ok(None);
    }
    // SAFETY: the heap has this descriptor open, as it says, and keeps it for the life of the process.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let adopted = Adopted { base: heap.base.expose_provenance() as u64, len: heap.len as u64 };
    let segment = match adopted.len.checked_add(more) {
        Some(whole) => Segment::grown(fd, adopted.len, whole),
        None => Err(SegmentError::BadLength { len: more }),
    };
    if segment.is_err() {
        // It is not sealed yet, and another length may do. If the system keeps the bytes, they are sparse.
        let _ = rustix::fs::ftruncate(fd, adopted.len);
        (heap.put_back)();
    }
    Ok(Some((segment?, adopted)))
}

/// From now on no page of the program's allocations is given back to the system: who has registered them must
/// find those that are mapped.
pub fn keep_pages() {
    if let Some(heap) = find() {
        (heap.keep_pages)();
    }
}

/// The heap that the program's allocations lie in.
fn find() -> Option<&'static ProgramHeap> {
    #[cfg(feature = "allocator")]
    if let Some(heap) = crate::global_heap::shown() {
        return Some(heap);
    }
    preloaded()
}

/// The heap of a preloaded `libstandpipe_malloc.so`, if there is one. Any thread.
pub fn preloaded() -> Option<&'static ProgramHeap> {
    // SAFETY: it looks a name up in what is loaded, and runs none of its code.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: a library that exports this name means this type by it: the name has the version.
    let find: Find = unsafe { std::mem::transmute::<*mut c_void, Find>(found) };
    // SAFETY: any thread may call it. It gives null, or a value that lives as long as the process, and is
    // never changed.
    let heap = unsafe { find().as_ref() }?;
    (heap.size >= size_of::<ProgramHeap>()).then_some(heap)
}

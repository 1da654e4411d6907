//! The heap that the program's allocations lie in already, which its first node takes instead of one of its
//! own: a `GlobalHeap`'s, or that of a preloaded `libstandpipe_malloc.so`.
//!
//! That library and the node are linked apart, each with its own copy of this crate. So the node finds the
//! heap by a symbol, whose name has the version of what it leads to.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use crate::segment::{Segment, SegmentError};

/// The symbol by which a preloaded library shows its heap: a [`Find`].
pub const SYMBOL: &std::ffi::CStr = c"standpipe_malloc_heap_v1";

/// What [`SYMBOL`] is: gives the heap, or null where the library has none. Any thread.
pub type Find = unsafe extern "C" fn() -> *const ProgramHeap;

/// A heap as one copy of this crate shows it to another. New fields come at the end, and make `size` larger.
#[repr(C)]
#[derive(Debug)]
pub struct ProgramHeap {
    /// Bytes of this value.
    pub size: usize,
    /// The heap's first byte.
    pub base: *const c_void,
    /// Its bytes.
    pub len: usize,
    /// Takes the heap for a node, and gives its memory file; negative if a node has it, or had it, or it has
    /// no file any more. The descriptor stays the heap's. Any thread.
    pub take: extern "C" fn() -> c_int,
    /// Gives it back, for another node to take: the one that took it was not opened. Any thread.
    pub put_back: extern "C" fn(),
    /// From now on no page of it is given back to the system. Any thread.
    pub keep_pages: extern "C" fn(),
    /// What `fork` has done so far. Any thread.
    pub forks: extern "C" fn() -> ForkCounts,
}

// SAFETY: it is never written once it is made, and any thread may call its functions.
unsafe impl Sync for ProgramHeap {}
// SAFETY: as above; it owns nothing, as the heap stays for the life of the process.
unsafe impl Send for ProgramHeap {}

/// What calls of `fork` have done to a preloaded heap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkCounts {
    /// Forks whose child made a copy of the heap.
    pub copied: u64,
    /// Bytes of these copies.
    pub bytes: u64,
    /// Forks whose child had to end, as it could have no copy.
    pub refused: u64,
    /// Threads that could not be halted while a child copied, by fork: what they wrote may be torn in it.
    pub not_halted: u64,
}

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

//! A heap as the library that has it shows it to a node, which was linked apart from it.

use std::ffi::{c_int, c_void};

/// The symbol by which a preloaded library shows its heap: a [`Find`].
pub const SYMBOL: &std::ffi::CStr = c"standpipe_malloc_heap_v1";

/// The function behind [`SYMBOL`]: it gives the heap, or null where the library has none. Any thread.
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
    /// Counts of what `fork` has done so far. Any thread.
    pub forks: extern "C" fn() -> ForkCounts,
}

// SAFETY: it is never written once it is made, and any thread may call its functions.
unsafe impl Sync for ProgramHeap {}
// SAFETY: as above; it owns nothing, as the heap stays for the life of the process.
unsafe impl Send for ProgramHeap {}

/// Counts of what calls of `fork` have done to a preloaded heap.
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

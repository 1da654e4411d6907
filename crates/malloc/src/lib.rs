//! `libstandpipe_malloc.so`: preloaded, it has all that an unchanged program allocates in the heap that a
//! node's peers map. `docs/MALLOC.md` is its page.
//!
//! It has the C functions that allocate, as the GNU C library documents them, and one symbol by which a node
//! finds the heap. The allocator is mimalloc, in the memory file that `GlobalHeap` has, too.

mod locks;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libmimalloc_sys as mimalloc;
use vm::program_heap::ProgramHeap;

/// Larger sizes and alignments than any address leaves room for.
const SIZE_MAX: usize = isize::MAX as usize;

const PAGE_BYTES: usize = vm::pages::PAGE_BYTES as usize;

/// Sizes up to here have a shorter way in mimalloc: its `MI_SMALL_SIZE_MAX`.
const SMALL_MAX: usize = 128 * size_of::<*const ()>();

/// Mimalloc has the heap. In this crate, where looking is one comparison.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Sees to it that mimalloc has the heap, before anything is allocated.
#[inline(always)]
fn make_ready() {
    #[cold]
    #[inline(never)]
    fn make() {
        vm::global_heap::preload(locks::are_held);
        // SAFETY: the function is there for the program's whole life, and needs no argument.
        unsafe { mimalloc::mi_register_error(Some(on_error), ptr::null_mut()) };
        IS_READY.store(true, Ordering::Release);
    }
    if !IS_READY.load(Ordering::Acquire) {
        make();
    }
}

/// Mimalloc calls it before it gives null: so the short way of `malloc` need not look what came of it.
///
/// # Safety
/// None is needed: it is mimalloc's type of such functions.
unsafe extern "C" fn on_error(error: c_int, _: *mut c_void) {
    if error == libc::ENOMEM || error == libc::EOVERFLOW {
        set_errno(libc::ENOMEM);
    }
}

/// Gives an address that was allocated, or sets the thread's error and gives null.
#[inline]
fn allocated(block: *mut c_void) -> *mut c_void {
    if block.is_null() {
        set_errno(libc::ENOMEM);
    }
    block
}

#[cold]
fn set_errno(errno: c_int) {
    // SAFETY: it gives the address of this thread's own number, which is valid for as long as it lives.
    unsafe { libc::__errno_location().write(errno) };
}

/// Allocates `size` bytes, or gives null with `ENOMEM`. Any thread; it waits for nobody.
// SAFETY: it has the type and the contract of the C library\'s `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    if size <= SMALL_MAX && IS_READY.load(Ordering::Acquire) {
        // SAFETY: mimalloc takes any size that is small, and is ready.
        return unsafe { mimalloc::mi_malloc_small(size) };
    }
    malloc_more(size)
}

/// By the C ABI, as that has no panics to look after.
#[inline(never)]
extern "C" fn malloc_more(size: usize) -> *mut c_void {
    make_ready();
    // SAFETY: mimalloc takes any size, and has the heap by now.
    unsafe { mimalloc::mi_malloc(size) }
}

/// Allocates `count` times `size` bytes, all zero, or gives null with `ENOMEM`. Any thread; it waits for
/// nobody.
// SAFETY: it has the type and the contract of the C library\'s `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    make_ready();
    // SAFETY: mimalloc takes any sizes, and refuses those whose product has no room.
    allocated(unsafe { mimalloc::mi_calloc(count, size) })
}

/// Changes the size of a block, which may move, or gives null with `ENOMEM` and leaves it alone. Of a size of
/// 0 it frees the block and gives null, as the GNU C library does. Any thread; it waits for nobody.
///
/// # Safety
/// The block is null, or one of these functions gave it, and it was not freed.
// SAFETY: it has the type and the contract of the C library\'s `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    make_ready();
    if size == 0 && !block.is_null() {
        // SAFETY: the caller promises that the block is one that mimalloc gave, or null.
        unsafe { mimalloc::mi_free(block) };
        return ptr::null_mut();
    }
    // SAFETY: the caller promises that the block is one that mimalloc gave, or null.
    allocated(unsafe { mimalloc::mi_realloc(block, size) })
}

/// As [`realloc`], to `count` times `size` bytes; null with `ENOMEM` where that is more than there can be.
///
/// # Safety
/// As for [`realloc`].
// SAFETY: it has the type and the contract of the C library\'s `reallocarray`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller promises that the block is one that mimalloc gave, or null.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => allocated(ptr::null_mut()),
    }
}

/// Frees a block; null is nothing. The thread's error stays. Any thread; it waits for nobody.
///
/// # Safety
/// The block is null, or one of these functions gave it, and it was not freed.
// SAFETY: it has the type and the contract of the C library\'s `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller promises that the block is one that mimalloc gave, or null.
    unsafe { mimalloc::mi_free(block) };
}

/// Bytes that may be used of a block, no fewer than were asked for; 0 of null. Any thread.
///
/// # Safety
/// As for [`free`].
// SAFETY: it has the type and the contract of the C library\'s `malloc_usable_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller promises that the block is one that mimalloc gave, or null.
    unsafe { mimalloc::mi_usable_size(block) }
}

/// Allocates at a multiple of `align`, which is a power of two.
#[inline]
fn aligned(align: usize, size: usize) -> *mut c_void {
    make_ready();
    if align > SIZE_MAX / 2 || size > SIZE_MAX {
        return ptr::null_mut();
    }
    // SAFETY: mimalloc takes any size, and the alignment is a power of two.
    unsafe { mimalloc::mi_malloc_aligned(size, align) }
}

/// Allocates at a multiple of `align`, and gives the address by `place`: 0, or else `EINVAL` if `align` is no
/// power of two and multiple of a pointer's size, or `ENOMEM`. Any thread; it waits for nobody.
///
/// # Safety
/// `place` is valid for a pointer to be written.
// SAFETY: it has the type and the contract of the C library\'s `posix_memalign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    let block = aligned(align, size);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller promises that a pointer may be written there.
    unsafe { place.write(block) };
    0
}

/// Allocates at a multiple of `align`, or of the next power of two; null with `EINVAL` if there is none, or
/// with `ENOMEM`. Any thread; it waits for nobody.
// SAFETY: it has the type and the contract of the C library\'s `memalign`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => allocated(aligned(align, size)),
        None => {
            set_errno(libc::EINVAL);
            ptr::null_mut()
        }
    }
}

/// As [`memalign`]. Any thread; it waits for nobody.
// SAFETY: it has the type and the contract of the C library\'s `aligned_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    memalign(align, size)
}

/// Allocates at a page's beginning, or gives null with `ENOMEM`. Any thread; it waits for nobody.
// SAFETY: it has the type and the contract of the C library\'s `valloc`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(PAGE_BYTES, size)
}

/// As [`valloc`], of whole pages.
// SAFETY: it has the type and the contract of the C library\'s `pvalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE_BYTES) {
        Some(size) => memalign(PAGE_BYTES, size),
        None => allocated(ptr::null_mut()),
    }
}

/// The heap, for a node of this process to take; null where the system gave no memory file. Any thread.
// SAFETY: nobody else has a symbol of this name, and its type is the name's.
#[unsafe(no_mangle)]
pub extern "C" fn standpipe_malloc_heap_v1() -> *const ProgramHeap {
    make_ready();
    vm::global_heap::shown().map_or(ptr::null(), ptr::from_ref)
}

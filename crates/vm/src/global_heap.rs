//! The heap as the program's allocator: whatever the program allocates lies in memory that peers map.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libmimalloc_sys as mimalloc;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{Advice, MprotectFlags};

use crate::mapping::Mapping;
use crate::segment::{Segment, SegmentError};

/// An allocator for the whole program, whose memory peers map: set it by `#[global_allocator]`.
///
/// All that the program allocates lies in one memory file, which the first [`Segment`] [adopts](adopt).
/// Allocations that do not fit there, and all where the system gives no such file, come from the system as
/// usual.
///
/// The memory is [mimalloc](https://github.com/microsoft/mimalloc)'s to divide: threads allocate without a
/// lock between them, and pages that nobody uses are given back to the system.
///
/// A process made by a plain `fork` would share the heap with its parent, and both would write into it. It
/// ends at once, with a message; what starts a program by `posix_spawn` or `vfork` works as ever.
/// [`std::process::Command`] does so, unless it is told to call something in the child, to change its user or
/// groups, or to find a program named without a slash by another `PATH` than this process's (which clearing
/// the environment is, too).
#[derive(Debug)]
pub struct GlobalHeap(());

impl GlobalHeap {
    /// The allocator. It takes memory once something is allocated.
    ///
    /// # Safety
    /// Peers may write anywhere in the heap, and so to every value of the program that uses this. None of
    /// them may change a byte that the program assumes not to change, nor make a value invalid for its type.
    /// A job's processes promise it to each other; it must not be used where a peer is not trusted.
    #[allow(clippy::new_without_default)]
    pub const unsafe fn new() -> GlobalHeap {
        GlobalHeap(())
    }
}

// SAFETY: mimalloc keeps the contract of an allocator for any size and alignment that a `Layout` can have.
// The region that it was given is memory that nothing else in this process uses.
unsafe impl GlobalAlloc for GlobalHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        region();
        // SAFETY: the layout's alignment is a power of two, as mimalloc asks.
        unsafe { mimalloc::mi_malloc_aligned(layout.size(), layout.align()).cast() }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        region();
        // SAFETY: the layout's alignment is a power of two, as mimalloc asks.
        unsafe { mimalloc::mi_zalloc_aligned(layout.size(), layout.align()).cast() }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives back a block of this allocator's, once.
        unsafe { mimalloc::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the block is this allocator's, and its alignment a power of two, as the caller says.
        unsafe { mimalloc::mi_realloc_aligned(block.cast(), size, layout.align()).cast() }
    }
}

/// The memory that the allocator divides.
struct Region {
    memory: &'static Memory,
    adopted: AtomicBool,
    /// Pages stay, whoever frees what is on them.
    kept: AtomicBool,
}

static REGION: OnceLock<Option<Region>> = OnceLock::new();

/// A memory file and its mapping, of which the pages are open that the allocator has ever wanted.
struct Memory {
    fd: OwnedFd,
    mapping: Mapping,
    /// Whether core dumps have ever been told to leave pages out that are open.
    has_undumped: AtomicBool,
}

/// The region's, there before the allocator has it.
static MEMORY: OnceLock<Memory> = OnceLock::new();

/// Regions are of whole pieces of this size, as mimalloc divides them.
const REGION_STEP: usize = 32 << 20;

/// Bytes of all regions of a job, at most: each of its processes must have room to map all of them, and as
/// much again.
const REGIONS_MAX: usize = 32 << 40;

/// Where the processes of a job find how many they are.
const JOB_SIZE: &CStr = c"STANDPIPE_SIZE";

/// How many processes the job has; 1 if nobody says.
fn job_size() -> usize {
    // SAFETY: the name ends with a zero byte. This is before the program's first allocation has returned, so
    // that nothing can have begun to change the environment.
    let value = unsafe { libc::getenv(JOB_SIZE.as_ptr()) };
    if value.is_null() {
        return 1;
    }
    // SAFETY: the environment's strings end with a zero byte, and nobody changes them now, as above.
    let value = unsafe { CStr::from_ptr(value) };
    let digits = std::str::from_utf8(value.to_bytes()).ok().and_then(|digits| digits.parse().ok());
    digits.unwrap_or(1).max(1)
}

/// The region, made at the first call. Nothing on the way may allocate.
#[inline]
fn region() -> Option<&'static Region> {
    REGION.get_or_init(Region::make).as_ref()
}

impl Region {
    #[cold]
    fn make() -> Option<Region> {
        let system = rustix::system::sysinfo();
        let half = (system.totalram as usize).checked_mul(system.mem_unit as usize)? / 2;
        let bytes = half.min(REGIONS_MAX / job_size());
        let len = bytes.checked_next_multiple_of(REGION_STEP)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(c"standpipe-global-heap", flags).ok()?;
        rustix::fs::ftruncate(&fd, len as u64).ok()?;
        let mapping = Mapping::new(fd.as_fd(), len, 0, MprotectFlags::READ | MprotectFlags::WRITE).ok()?;
        let start = mapping.base().as_ptr().cast();
        // SAFETY: the range was mapped just now, and the advice leaves its contents as they are.
        let unshared = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontFork) };
        // SAFETY: as above. A kernel without huge pages does not know of them.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxHugepage) };
        let memory = MEMORY.get_or_init(|| Memory { fd, mapping, has_undumped: AtomicBool::new(false) });
        // SAFETY: the handler is a function for the program's whole life, and calls only what a forked child
        // may.
        let told = unsafe { libc::pthread_atfork(None, None, Some(end_forked_child)) };
        if unshared.is_err() || told != 0 {
            return None;
        }
        // SAFETY: the range is mapped, all zero, and writable where `commit` was called for it; nobody else
        // uses it, and it is never unmapped, as its owner is in a `static`.
        unsafe {
            mi_manage_memory(
                start,
                len,
                false,
                false,
                true,
                -1,
                false,
                commit,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        }
        .then(|| Region { memory, adopted: AtomicBool::new(false), kept: AtomicBool::new(false) })
    }
}

/// The memory that the program's allocations share with peers, once a segment has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The address of its first byte in this process. It is the segment's first byte, too, mapped once more.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

/// Whether this program allocates by a [`GlobalHeap`]. Such a process cannot be forked.
pub fn is_used() -> bool {
    REGION.get().is_some_and(Option::is_some)
}

/// Makes a segment of what the program's allocator divides, followed by `more` bytes. `None` where the
/// program has no [`GlobalHeap`], and once a segment has been made.
///
/// # Errors
/// As for [`Segment::create`].
pub fn adopt(more: u64) -> Result<Option<(Segment, Adopted)>, SegmentError> {
    let Some(region) = REGION.get().and_then(Option::as_ref) else { return Ok(None) };
    if region.adopted.swap(true, Ordering::SeqCst) {
        return Ok(None);
    }
    let mapping = &region.memory.mapping;
    let adopted =
        Adopted { base: mapping.base().as_ptr().expose_provenance() as u64, len: mapping.len() as u64 };
    let whole = adopted.len.checked_add(more).ok_or(SegmentError::BadLength { len: more })?;
    let segment = Segment::grown(region.memory.fd.as_fd(), adopted.len, whole);
    if segment.is_err() {
        // It is not sealed yet, and another length may do. If the system keeps the bytes, they are sparse.
        let _ = rustix::fs::ftruncate(&region.memory.fd, adopted.len);
        region.adopted.store(false, Ordering::SeqCst);
    }
    Ok(Some((segment?, adopted)))
}

/// From now on no page of the program's allocations is given back to the system: who has registered them must
/// find those that are mapped.
pub fn keep_pages() {
    if let Some(region) = REGION.get().and_then(Option::as_ref) {
        region.kept.store(true, Ordering::SeqCst);
    }
}

type Commit = unsafe extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool;

// SAFETY: a function of the library that `libmimalloc-sys` contains and does not declare; the signature is
// that of the library's own header.
unsafe extern "C" {
    fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        commit: Commit,
        argument: *mut c_void,
        arena: *mut *mut c_void,
    ) -> bool;
}

/// Callbacks of mimalloc's before it uses pages, and when it has no use for them: then they are given back to
/// the system. It must not allocate.
///
/// # Safety
/// Only mimalloc calls it, with pages of the region, and a place for its answer or none.
unsafe extern "C" fn commit(
    wanted: bool,
    start: *mut c_void,
    len: usize,
    zero: *mut bool,
    _: *mut c_void,
) -> bool {
    let Some(memory) = MEMORY.get() else { return false };
    let at = (start.addr() - memory.mapping.base().addr().get()) as u64;
    let part = at..at + len as u64;
    if wanted && !memory.open(part.clone()) {
        return false;
    }
    // While it is being made nothing is given back.
    let Some(region) = REGION.get().and_then(Option::as_ref) else { return wanted };
    if !zero.is_null() {
        // SAFETY: the caller's promise: mimalloc gives a place for its answer, or none.
        unsafe { zero.write(false) };
    }
    if wanted || region.kept.load(Ordering::SeqCst) {
        return wanted;
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched =
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&memory.fd, flags, at, len as u64)).is_ok();
    if punched {
        memory.leave_out(part);
    }
    punched
}

impl Memory {
    /// Makes pages usable, and has core dumps contain them. Whether they are.
    fn open(&self, part: Range<u64>) -> bool {
        let is_open = self.mapping.open_to(part.end).is_ok();
        if is_open && self.has_undumped.load(Ordering::SeqCst) {
            let step = REGION_STEP as u64;
            let end = part.end.next_multiple_of(step).min(self.mapping.open_bytes());
            self.mapping.set_dumped(part.start / step * step..end, true);
        }
        is_open
    }

    /// Has core dumps leave out pages that were given back to the system: whole steps, so that the range
    /// falls into few mappings.
    fn leave_out(&self, part: Range<u64>) {
        let step = REGION_STEP as u64;
        let steps = part.start.next_multiple_of(step)..part.end / step * step;
        if steps.start < steps.end {
            self.has_undumped.store(true, Ordering::SeqCst);
            self.mapping.set_dumped(steps, false);
        }
    }
}

/// Ends a process made by a plain `fork`, in which the heap is not mapped: whatever it touched next would
/// kill it without a word.
///
/// # Safety
/// Only the system's library calls it, in a child that has just been forked.
unsafe extern "C" fn end_forked_child() {
    // The region was not to be had after all, and memory comes from the system: it was forked as any other.
    if !is_used() {
        return;
    }
    let said = b"standpipe: a process whose allocator is standpipe's heap was forked. The child would write into its parent's \
                 memory, and ends. Start programs by posix_spawn or vfork, as std::process::Command does \
                 without pre_exec, uid, gid, groups, and another PATH for a program named without a slash.\n";
    // SAFETY: the standard error's number, whether open or not; nothing is closed.
    let err = unsafe { std::os::fd::BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(err, said);
    // SAFETY: it ends the process at once, and runs nothing of it.
    unsafe { libc::_exit(71) }
}

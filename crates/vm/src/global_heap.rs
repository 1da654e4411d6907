//! The heap as the program's allocator: whatever the program allocates lies in memory that peers map.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libmimalloc_sys as mimalloc;

use crate::fork_copy;
use crate::heap_face::ProgramHeap;
use crate::heap_file::{self, GiveBack, HeapFile};

/// An allocator for the whole program, whose memory peers map: set it by `#[global_allocator]`.
///
/// All that the program allocates lies in one memory file, which the first node
/// [adopts](crate::program_heap::adopt). Allocations that do not fit there, and all where the system gives no
/// such file, come from the system as usual.
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
        region(Kind::Chosen);
        // SAFETY: the layout's alignment is a power of two, as mimalloc asks.
        unsafe { mimalloc::mi_malloc_aligned(layout.size(), layout.align()).cast() }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        region(Kind::Chosen);
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
    file: &'static HeapFile,
    shown: ProgramHeap,
    kind: Kind,
    adopted: AtomicBool,
    /// Pages stay, whoever frees what is on them.
    kept: AtomicBool,
}

/// Whose allocator this is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Of a Rust program, which chose it.
    Chosen,
    /// Of a program that knows nothing of it. The function: may a thread have a lock of mimalloc's?
    Preloaded(fn() -> bool),
}

static REGION: OnceLock<Option<Region>> = OnceLock::new();

/// The region's, there before the allocator has it.
static FILE: OnceLock<HeapFile> = OnceLock::new();

/// Regions are of whole pieces of this size, as mimalloc divides them.
const REGION_STEP: usize = heap_file::STEP;

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
fn region(kind: Kind) -> Option<&'static Region> {
    REGION.get_or_init(|| Region::make(kind)).as_ref()
}

/// Makes the heap of a preloaded library, if there is none yet: before anything is allocated by mimalloc. Its
/// children made by `fork` get copies. Any thread. Allocates nothing. `are_locks_held` says whether a thread
/// may have a lock of mimalloc's; it must not allocate either.
#[inline]
pub fn preload(are_locks_held: fn() -> bool) {
    region(Kind::Preloaded(are_locks_held));
}

impl Region {
    #[cold]
    fn make(kind: Kind) -> Option<Region> {
        let system = rustix::system::sysinfo();
        let half = (system.totalram as usize).checked_mul(system.mem_unit as usize)? / 2;
        let bytes = half.min(REGIONS_MAX / job_size());
        let made = HeapFile::make(bytes.checked_next_multiple_of(REGION_STEP)?)?;
        let file = FILE.get_or_init(|| made);
        let is_told = match kind {
            // SAFETY: the handler is a function for the program's whole life, and calls only what a forked
            // child may.
            Kind::Chosen => unsafe { libc::pthread_atfork(None, None, Some(end_forked_child)) == 0 },
            Kind::Preloaded(are_locks_held) => fork_copy::watch(file, are_locks_held),
        };
        if !is_told {
            return None;
        }
        // SAFETY: the range is mapped, all zero, and writable where `commit` was called for it; nobody else
        // uses it, and it is never unmapped, as its owner is in a `static`.
        unsafe {
            mi_manage_memory(
                file.base().cast(),
                file.len(),
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
        .then(|| Region::over(file, kind))
    }

    fn over(file: &'static HeapFile, kind: Kind) -> Region {
        let shown = ProgramHeap {
            size: size_of::<ProgramHeap>(),
            base: file.base().cast(),
            len: file.len(),
            take,
            put_back,
            keep_pages,
            forks: fork_copy::counts,
        };
        Region { file, shown, kind, adopted: AtomicBool::new(false), kept: AtomicBool::new(false) }
    }
}

/// Whether this program allocates by a [`GlobalHeap`]. Such a process cannot be forked.
pub fn is_used() -> bool {
    REGION.get().is_some_and(Option::is_some)
}

/// The heap, for a node to take.
pub fn shown() -> Option<&'static ProgramHeap> {
    REGION.get().and_then(Option::as_ref).map(|region| &region.shown)
}

extern "C" fn take() -> c_int {
    let Some(region) = REGION.get().and_then(Option::as_ref) else { return -1 };
    let Some(fd) = region.file.fd() else { return -1 };
    if region.adopted.swap(true, Ordering::SeqCst) { -1 } else { fd.as_raw_fd() }
}

extern "C" fn put_back() {
    if let Some(region) = REGION.get().and_then(Option::as_ref) {
        region.adopted.store(false, Ordering::SeqCst);
    }
}

extern "C" fn keep_pages() {
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
    let Some(file) = FILE.get() else { return false };
    let at = (start.addr() - file.addresses().start) as u64;
    let part = at..at + len as u64;
    if wanted && !file.open(part.clone()) {
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
    file.give_back(
        part,
        match region.kind {
            Kind::Chosen => GiveBack::ByFile,
            Kind::Preloaded(_) => GiveBack::ByAddress,
        },
    )
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

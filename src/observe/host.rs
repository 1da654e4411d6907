//! What this host allows: the facts behind `standpipe doctor`, for tools that explain to users why a path was
//! taken.
//!
//! Each call asks the system afresh; any thread may call.

pub use vm::CmaError;
pub use vm::cma::probe as probe_attach;
pub use vm::host::{
    Limit, Seccomp, ShmemHugePages, Userfaultfd, address_space, allow_tracer, bind_to_core, core_numbers,
    cores, cpu_time, dev_shm_bytes, file_size, kernel_release, locks_anything, memlock, memory_bytes,
    monotonic_ns, open_files, pinned_by, ptrace_scope, seccomp, shmem_huge_pages, traces_anyone, try_watch,
    userfaultfd, verbs_devices,
};
pub use vm::membarrier::register as register_membarrier;

pub use crate::base::environment::variable;

use vm::{Segment, SegmentError};

/// Tries to make the kind of memory that heaps are made of: a sealed, anonymous file.
///
/// # Errors
/// What the kernel refused; no job can be opened then.
pub fn try_segment() -> Result<(), SegmentError> {
    Segment::create("standpipe-doctor", 1 << 16).map(drop)
}

/// Calls `start`, which starts a thread: that takes no signal but its own faults. Signals that the calling
/// thread is sent meanwhile wait.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    vm::threads::without_signals(start)
}

/// What the control group of this process, as a container has one, allows all of its processes together;
/// `None` where it limits nothing. What goes beyond ends one of them.
pub fn memory_limit() -> Option<u64> {
    crate::base::control_group::memory_limit()
}

//! Facts about this host behind `standpipe doctor`, for tools that explain to users why a path was taken.
//!
//! Each call asks the system afresh; any thread may call.

pub use vm::CmaError;
pub use vm::cma::probe as probe_attach;
pub use vm::host::{
    Limit, Seccomp, ShmemHugePages, Userfaultfd, address_space, allow_tracer, bind_to_core, core_numbers,
    cores, cpu_time, dev_shm_bytes, file_size, has_loopback, kernel_release, locks_anything, memlock,
    memory_bytes, monotonic_ns, open_files, pinned_by, ptrace_scope, seccomp, shmem_huge_pages,
    traces_anyone, try_watch, userfaultfd, verbs_devices,
};
pub use vm::membarrier::register as register_membarrier;

pub use crate::base::environment::variable;

use std::io;
use std::os::unix::fs::MetadataExt as _;

use vm::program_heap::{ForkCounts, preloaded};

use vm::monitor::THREAD as MONITOR_THREAD;
use vm::robust::Held;
use vm::{Segment, SegmentError};

/// The heap that all memory of this program's `malloc` lies in, where `libstandpipe_malloc.so` is preloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreloadedMalloc {
    /// Bytes that it may grow to.
    pub bytes: u64,
    /// Forks whose child has copied it.
    pub copied: u64,
    /// Bytes that these children have copied.
    pub copied_bytes: u64,
    /// Forks whose child has ended, as it could have no copy.
    pub refused: u64,
    /// Threads that could not be halted while a child copied, counted for each fork.
    pub not_halted: u64,
}

/// The preloaded heap of this program, and what `fork` has done to it; `None` where no library is preloaded.
/// Any thread; it waits for nobody.
pub fn preloaded_malloc() -> Option<PreloadedMalloc> {
    let heap = preloaded()?;
    let ForkCounts { copied, bytes, refused, not_halted } = (heap.forks)();
    Some(PreloadedMalloc { bytes: heap.len as u64, copied, copied_bytes: bytes, refused, not_halted })
}

/// Tries to make the kind of memory that heaps are made of: a sealed, anonymous file.
///
/// # Errors
/// The call that the kernel refused; no job can be opened then.
pub fn try_segment() -> Result<(), SegmentError> {
    Segment::create("standpipe-doctor", 1 << 16).map(drop)
}

/// Tries to make the kind of memory in which a node shows its grants to peers of this host: they read it, and
/// the kernel refuses them to write.
///
/// # Errors
/// The call that the kernel refused, as one before 5.1 does. Peers then reach granted memory by message.
pub fn try_grant_table() -> Result<(), SegmentError> {
    Segment::create_own("standpipe-doctor", 1 << 16).map(drop)
}

/// Tries to have the kernel mark a word when this process ends, so that peers of this host can tell. It takes
/// a thread, which has ended when this returns.
///
/// # Errors
/// The memory or the call that the kernel refused. Peers then reach private memory by message.
pub fn try_end_mark() -> io::Result<()> {
    let segment = Segment::create("standpipe-doctor", 1 << 12).map_err(io::Error::other)?;
    Held::new(segment.memory(), 0).map(drop)
}

/// Calls `start`, which starts a thread: that takes no signal but its own faults. Signals that the calling
/// thread is sent meanwhile wait.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    vm::threads::without_signals(start)
}

/// The memory that the control group of this process, as a container has one, allows all of its processes
/// together; `None` where it limits nothing. The kernel ends one of them for memory beyond.
pub fn memory_limit() -> Option<u64> {
    crate::base::control_group::memory_limit()
}

/// This user's processes in which several copies of the library watch memory, each with how many: as of two
/// plugins that were each built with it. Memory that one of them watches, the others register for each
/// operation anew, over networks that register.
pub fn copies() -> Vec<(u32, usize)> {
    let uid = rustix::process::geteuid().as_raw();
    let is_own = |path: &std::path::Path| std::fs::metadata(path).is_ok_and(|data| data.uid() == uid);
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.map(|entry| entry.path()).filter(|path| is_own(path));
    let copies = processes.filter_map(|path| {
        let pid = path.file_name()?.to_str()?.parse().ok()?;
        let threads = std::fs::read_dir(path.join("task")).ok()?.flatten();
        let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).ok();
        let monitors = threads.filter_map(name).filter(|name| name.trim_end() == MONITOR_THREAD).count();
        (monitors > 1).then_some((pid, monitors))
    });
    copies.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_two_copies_is_found() {
        let (Ok(_one), Ok(_other)) = (vm::Monitor::of_process(), vm::Monitor::another()) else {
            return testbed::skip("no monitor of memory");
        };
        let own = std::process::id();
        let found = || copies().into_iter().find(|(pid, _)| *pid == own);
        // A thread gives itself its name.
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while found().is_none() && std::time::Instant::now() < give_up {
            std::thread::yield_now();
        }
        assert!(found().is_some_and(|(_, count)| count >= 2), "{:?}", found());
    }
}

//! The memory that the program's allocator divides: a sparse memory file, and its mapping.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::mapping::Mapping;

/// Core dumps take pages in, or leave them out, by whole pieces of this size: mimalloc divides memory by it.
pub(crate) const STEP: usize = 32 << 20;

/// From this descriptor on programs hardly choose numbers themselves, as shells do for redirections.
const FD_MIN: i32 = 700;

/// Where less is used, a copy takes ordinary pages: filling a huge one with zeros would take longer.
const HUGE_FROM: u64 = 4 << 20;

/// A memory file and its mapping, of which the pages are open that the allocator has ever wanted. No child
/// made by `fork` has the mapping, unless it [makes a copy](HeapFile::copy_here).
pub(crate) struct HeapFile {
    fd: OwnedFd,
    /// By which the file is told from another that got the descriptor's number.
    inode: u64,
    mapping: Mapping,
    /// Whether core dumps have ever been told to leave pages out that are open.
    has_undumped: AtomicBool,
    /// This process is a child that has a copy, and the file is its parent's.
    is_copy: AtomicBool,
}

impl HeapFile {
    /// A file of so many bytes, all of them zero, and none open. Allocates nothing.
    pub(crate) fn make(len: usize) -> Option<HeapFile> {
        // The kernel ends the process that makes a file longer than this: see setrlimit(2).
        let longest = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if longest.is_some_and(|longest| len as u64 > longest) {
            return None;
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(c"standpipe-global-heap", flags).ok()?;
        let fd = rustix::io::fcntl_dupfd_cloexec(&fd, FD_MIN).unwrap_or(fd);
        rustix::fs::ftruncate(&fd, len as u64).ok()?;
        let inode = rustix::fs::fstat(&fd).ok()?.st_ino;
        let mapping = Mapping::new(fd.as_fd(), len, 0, MprotectFlags::READ | MprotectFlags::WRITE).ok()?;
        let start = mapping.base().as_ptr().cast();
        // SAFETY: the range was mapped just now, and the advice leaves its contents as they are.
        unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontFork) }.ok()?;
        // SAFETY: as above. A kernel without huge pages does not know of them.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxHugepage) };
        let (has_undumped, is_copy) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(HeapFile { fd, inode, mapping, has_undumped, is_copy })
    }

    /// The file, unless the program has closed its descriptor, or this is a child's copy.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let is_there = || rustix::fs::fstat(&self.fd).is_ok_and(|status| status.st_ino == self.inode);
        (!self.is_copy() && is_there()).then(|| self.fd.as_fd())
    }

    /// The addresses of this process at which the heap lies.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.base().addr();
        start..start + self.len()
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base().as_ptr()
    }

    /// Bytes, open or not.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether this process has a copy of its parent's heap.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy.load(Ordering::SeqCst)
    }

    /// Bytes of memory that the file takes; `None` without its descriptor.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let status = rustix::fs::fstat(self.fd()?).ok()?;
        Some(u64::try_from(status.st_blocks).unwrap_or(0) * 512)
    }

    /// Makes pages usable, and has core dumps contain them. Whether they are.
    pub(crate) fn open(&self, part: Range<u64>) -> bool {
        let is_open = self.mapping.open_to(part.end).is_ok();
        if is_open && self.has_undumped.load(Ordering::SeqCst) {
            let step = STEP as u64;
            let end = part.end.next_multiple_of(step).min(self.mapping.open_bytes());
            self.mapping.set_dumped(part.start / step * step..end, true);
        }
        is_open
    }

    /// Gives pages that nobody uses back to the system. Whether it has taken them.
    pub(crate) fn give_back(&self, part: Range<u64>, by: GiveBack) -> bool {
        let len = part.end - part.start;
        let start = self.base().wrapping_add(part.start as usize).cast();
        let advise = |advice| {
            // SAFETY: the pages lie in our mapping, and the caller vouches that nobody uses them. Nobody ever
            // makes a reference to bytes there.
            unsafe { rustix::mm::madvise(start, len as usize, advice) }
        };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let given = rustix::io::retry_on_intr(|| match by {
            _ if self.is_copy() => advise(Advice::LinuxDontNeed),
            GiveBack::ByFile => rustix::fs::fallocate(&self.fd, flags, part.start, len),
            GiveBack::ByAddress => advise(Advice::LinuxRemove),
        });
        if given.is_ok() {
            self.leave_out(part);
        }
        given.is_ok()
    }

    /// Has core dumps leave out pages that were given back to the system: whole steps, so that the range
    /// falls into few mappings.
    fn leave_out(&self, part: Range<u64>) {
        let step = STEP as u64;
        let steps = part.start.next_multiple_of(step)..part.end / step * step;
        if steps.start < steps.end {
            self.has_undumped.store(true, Ordering::SeqCst);
            self.mapping.set_dumped(steps, false);
        }
    }

    /// Puts a private copy of the file's pages where the heap lies in the parent. It calls nothing that a
    /// handler of signals may not.
    ///
    /// # Errors
    /// The kernel's, where there is no memory, or no descriptor of the file any more.
    ///
    /// # Safety
    /// This process is a child that `fork` has just made, where nothing is mapped at these addresses.
    pub(crate) unsafe fn copy_here(&self, resident: u64) -> rustix::io::Result<()> {
        let fd = self.fd().ok_or(Errno::BADF)?;
        let (start, len) = (self.base().cast(), self.len());
        let open = self.mapping.open_bytes();
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: nothing is mapped there in a child, as the caller says. Accesses are of raw pointers only.
        unsafe {
            rustix::mm::mmap_anonymous(start, len, ProtFlags::empty(), flags)?;
            rustix::mm::mprotect(start, open as usize, MprotectFlags::READ | MprotectFlags::WRITE)?;
            if resident >= HUGE_FROM {
                // A kernel without huge pages does not know of them.
                let _ = rustix::mm::madvise(start, open as usize, Advice::LinuxHugepage);
            }
        }
        let mut at = 0;
        while let Some(run) = next_data(fd, at..open)? {
            // SAFETY: the run lies in pages that were made writable above, and that nobody else knows yet.
            unsafe { read_exactly(fd, self.base(), run.clone()) }?;
            at = run.end;
        }
        self.is_copy.store(true, Ordering::SeqCst);
        // SAFETY: this process never uses the number again, as `is_copy` says, and never drops its owner.
        unsafe { rustix::io::close(std::os::fd::AsRawFd::as_raw_fd(&self.fd)) };
        Ok(())
    }
}

/// By which call pages are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveBack {
    /// By the file's descriptor: also pages that the program has locked.
    ByFile,
    /// By their address, for programs that know nothing of the descriptor and may close it.
    ByAddress,
}

/// The next run of bytes in that range for which the file has memory.
fn next_data(fd: BorrowedFd<'_>, part: Range<u64>) -> rustix::io::Result<Option<Range<u64>>> {
    if part.is_empty() {
        return Ok(None);
    }
    let start = match rustix::fs::seek(fd, SeekFrom::Data(part.start)) {
        Ok(start) if start < part.end => start,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let end = rustix::fs::seek(fd, SeekFrom::Hole(start))?;
    Ok(Some(start..end.min(part.end)))
}

/// Reads bytes of the file to the same distance behind `base`.
///
/// # Safety
/// There is memory of zeros to write, which nobody else uses.
unsafe fn read_exactly(fd: BorrowedFd<'_>, base: *mut u8, mut run: Range<u64>) -> rustix::io::Result<()> {
    while !run.is_empty() {
        let len = usize::try_from(run.end - run.start).unwrap_or(usize::MAX).min(1 << 30);
        let to = ptr::slice_from_raw_parts_mut(base.wrapping_add(run.start as usize), len);
        // SAFETY: the caller's promise; zeros, as they are there, are valid bytes.
        let to: &mut [u8] = unsafe { &mut *to };
        match rustix::io::pread(fd, to, run.start) {
            Ok(0) => return Err(Errno::IO),
            Ok(read) => run.start += read as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in a child made by `fork`, and gives its status. It must allocate nothing.
    fn in_a_child(run: impl FnOnce() -> bool) -> i32 {
        let mut status = 0;
        // SAFETY: the child makes no call that another thread's locks could hold up, and ends at once; the
        // parent waits for its own child, and has it written to a word of this frame.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(!run())),
                child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
            }
        }
        status
    }

    fn byte(heap: &HeapFile, at: usize) -> *mut u8 {
        heap.base().wrapping_add(at)
    }

    #[test]
    fn a_child_has_a_copy_of_its_own_or_nothing() {
        let heap = HeapFile::make(STEP).expect("a memory file");
        assert!(heap.open(0..1 << 20) && heap.fd().is_some() && !heap.is_copy());
        let places = [0, 5000, 500_000];
        for at in places {
            // SAFETY: the pages are open, and nobody else writes there.
            unsafe { byte(&heap, at).write(7) };
        }
        let resident = heap.resident_bytes().expect("it is open");
        assert_eq!(resident % 4096, 0);
        // SAFETY: it only looks what is mapped there, as all else in the child.
        let is_mapped = |at: usize| unsafe {
            libc::msync(byte(&heap, at / 4096 * 4096).cast(), 4096, libc::MS_ASYNC) == 0
        };
        assert!(is_mapped(0));
        assert_eq!(in_a_child(|| !is_mapped(0) && !is_mapped(500_000)), 0, "nothing is mapped");
        let copies = || {
            // SAFETY: this is a child, in which nothing is mapped there; then it has pages of its own.
            unsafe {
                heap.copy_here(resident).is_ok()
                    && heap.is_copy()
                    && heap.fd().is_none()
                    && places.iter().all(|at| byte(&heap, *at).read() == 7)
                    && byte(&heap, 1).read() == 0
                    && {
                        byte(&heap, 0).write(8);
                        heap.give_back(4096..8192, GiveBack::ByFile) && byte(&heap, 5000).read() == 0
                    }
            }
        };
        assert_eq!(in_a_child(copies), 0);
        // SAFETY: the pages are open, and stay so; nobody writes there meanwhile.
        let here = |at: usize| unsafe { byte(&heap, at).read() };
        assert_eq!(places.map(here), [7; 3], "the parent's are as they were");
        assert!(heap.give_back(4096..8192, GiveBack::ByAddress));
        assert_eq!(here(5000), 0);
    }
}

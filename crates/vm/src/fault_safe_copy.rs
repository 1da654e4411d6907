//! Access to this process's own memory at addresses that a peer names: an error where there is nothing, not a
//! signal.
//!
//! When cross-memory attach is forbidden, a peer asks us by message to read or write for it. Touching such an
//! address ourselves could kill us; instead the kernel copies between it and a scratch file, and says EFAULT.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::Advice;

/// How much goes through the scratch file at a time: two copies, of which the second finds the bytes in the
/// cache.
const SCRATCH_BYTES: usize = 128 << 10;

/// Copies to and from raw addresses of this process. Any thread may use it; they take turns.
#[derive(Debug)]
pub struct CheckedCopy {
    scratch: Mutex<OwnedFd>,
}

/// Memory of this process that is not there, or not with the rights needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {addr:#x} cannot be accessed: {errno}")]
pub struct LocalFault {
    /// Address of the first byte that was not copied.
    pub addr: u64,
    /// How many bytes were left to copy from there on.
    pub len: u64,
    /// The kernel's error: EFAULT, but for a kernel out of memory.
    pub errno: Errno,
}

impl CheckedCopy {
    /// Makes the scratch file (128 KiB).
    ///
    /// # Errors
    /// The kernel's error when it refuses to make it.
    pub fn new() -> Result<CheckedCopy, Errno> {
        let scratch = rustix::fs::memfd_create("standpipe-scratch", MemfdFlags::CLOEXEC)?;
        // All of it now, so that a copy cannot fail later for want of memory.
        // On Linux 6.1 any signal that is handled interrupts it.
        let reserve = || rustix::fs::fallocate(&scratch, FallocateFlags::empty(), 0, SCRATCH_BYTES as u64);
        rustix::io::retry_on_intr(reserve)?;
        Ok(CheckedCopy { scratch: Mutex::new(scratch) })
    }

    /// Fills `bytes` from address `addr` of this process.
    ///
    /// # Errors
    /// [`LocalFault`]; then some of `bytes` may have been filled.
    pub fn read(&self, addr: u64, bytes: &mut [u8]) -> Result<(), LocalFault> {
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < bytes.len() {
            let left = bytes.len() - done;
            let from = addr.wrapping_add(done as u64);
            let chunk = left.min(SCRATCH_BYTES);
            // SAFETY: the kernel checks the address and reads what is readable there, without any access by
            // our code.
            let copied = unsafe { libc::pwrite(scratch.as_raw_fd(), from as *const libc::c_void, chunk, 0) };
            let copied = progress(copied, from, left)?;
            rustix::io::pread(&*scratch, &mut bytes[done..done + copied], 0).map_err(|errno| LocalFault {
                addr: from,
                len: left as u64,
                errno,
            })?;
            done += copied;
        }
        Ok(())
    }

    /// Writes `bytes` to address `addr` of this process.
    ///
    /// # Errors
    /// [`LocalFault`]; then some of them may have been written.
    ///
    /// # Safety
    /// All that is mapped in the range must be memory that the caller may write. No Rust reference to it is
    /// alive that assumes otherwise, and no Rust value other than plain bytes lives there. Addresses where
    /// nothing is mapped, or nothing writable, are allowed.
    pub unsafe fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), LocalFault> {
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < bytes.len() {
            let left = bytes.len() - done;
            let to = addr.wrapping_add(done as u64);
            let chunk = &bytes[done..done + left.min(SCRATCH_BYTES)];
            let staged = rustix::io::pwrite(&*scratch, chunk, 0).map_err(|errno| LocalFault {
                addr: to,
                len: left as u64,
                errno,
            })?;
            // SAFETY: the kernel checks the address and writes what is writable there; the caller vouches
            // that this memory may be written.
            let copied = unsafe { libc::pread(scratch.as_raw_fd(), to as *mut libc::c_void, staged, 0) };
            done += progress(copied, to, left)?;
        }
        Ok(())
    }
}

/// Copies `len` bytes from address `addr` of this process to offset `at` of a file, which has room for them.
/// Any thread.
///
/// # Errors
/// [`LocalFault`]; then some of them may have been copied.
pub fn copy_to(file: BorrowedFd<'_>, at: u64, addr: u64, len: u64) -> Result<(), LocalFault> {
    let mut done = 0;
    while done < len {
        let (from, left) = (addr.wrapping_add(done), (len - done) as usize);
        // SAFETY: the kernel checks the address and reads what is readable there, without any access by our
        // code.
        let copied = unsafe {
            libc::pwrite(file.as_raw_fd(), from as *const libc::c_void, left, (at + done) as libc::off_t)
        };
        done += progress(copied, from, left)? as u64;
    }
    Ok(())
}

/// Copies `len` bytes from offset `at` of a file to address `addr` of this process. Any thread.
///
/// # Errors
/// [`LocalFault`], also where the file ends before; then some of them may have been copied.
///
/// # Safety
/// As for [`CheckedCopy::write`].
pub unsafe fn copy_from(file: BorrowedFd<'_>, at: u64, addr: u64, len: u64) -> Result<(), LocalFault> {
    let mut done = 0;
    while done < len {
        let (to, left) = (addr.wrapping_add(done), (len - done) as usize);
        // SAFETY: the kernel checks the address and writes what is writable there; the caller vouches that
        // this memory may be written.
        let copied = unsafe {
            libc::pread(file.as_raw_fd(), to as *mut libc::c_void, left, (at + done) as libc::off_t)
        };
        done += progress(copied, to, left)? as u64;
    }
    Ok(())
}

/// Makes sure that `len` bytes from `addr` on can be read and written, as pinning them would: pages that
/// nobody has touched yet are there afterwards. No byte changes. Any thread.
///
/// # Errors
/// [`LocalFault`] for the whole range, if part of it is not mapped or may not be written, or the kernel
/// cannot tell (before Linux 5.14).
pub fn make_present(addr: u64, len: u64) -> Result<(), LocalFault> {
    let page = crate::host::page_bytes() as u64;
    let start = addr - addr % page;
    let end = addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(page));
    let fault = |errno| LocalFault { addr, len, errno };
    let bytes = usize::try_from(end.ok_or(fault(Errno::FAULT))? - start).map_err(|_| fault(Errno::FAULT))?;
    // SAFETY: this advice changes no byte and removes no page: the kernel checks the range and does to its
    // pages what a write would that stores what is there already.
    let made = unsafe { rustix::mm::madvise(start as *mut _, bytes, Advice::LinuxPopulateWrite) };
    made.map_err(fault)
}

/// Whether `len` bytes from `addr` on can be read, or written if they are to be, so far as the kernel tells.
/// Pages that nobody has touched yet are there afterwards, and no byte changes. Before Linux 5.14 it cannot
/// tell, and the answer is yes. Memory of devices is not there: cross-memory attach does not reach it,
/// either. Any thread.
pub fn is_there(addr: u64, len: u64, written: bool) -> bool {
    let page = crate::host::page_bytes() as u64;
    let start = addr - addr % page;
    let Some(end) = addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(page)) else {
        return false;
    };
    let advice = if written { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: this advice changes no byte and removes no page: the kernel checks the range and does to its
    // pages what an access would.
    let populated = unsafe { rustix::mm::madvise(start as *mut _, (end - start) as usize, advice) };
    match populated {
        Ok(()) => true,
        // Either the kernel does not know the advice, or the pages may not be accessed so.
        Err(Errno::INVAL) => !knows_populate(),
        Err(_) => false,
    }
}

/// Whether [`is_there`] can tell (since Linux 5.14).
pub fn can_tell() -> bool {
    knows_populate()
}

/// Whether the kernel knows the advice that [`is_there`] gives it (since Linux 5.14).
fn knows_populate() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let here = std::ptr::from_ref(&KNOWN).addr();
        let page = crate::host::page_bytes();
        let start = (here - here % page) as *mut _;
        // SAFETY: as in `is_there`; the page is one of this program's variables, which may be read.
        unsafe { rustix::mm::madvise(start, page, Advice::LinuxPopulateRead) }.is_ok()
    })
}

/// How many bytes a system call copied, none being a fault at `addr`.
fn progress(copied: isize, addr: u64, left: usize) -> Result<usize, LocalFault> {
    let errno = match usize::try_from(copied) {
        Ok(0) => Errno::FAULT,
        Ok(copied) => return Ok(copied),
        Err(_) => Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::FAULT),
    };
    Err(LocalFault { addr, len: left as u64, errno })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::test_pages::{PAGE, Pages};

    fn copier() -> CheckedCopy {
        CheckedCopy::new().expect("a scratch file")
    }

    #[test]
    fn memory_is_there_where_it_may_be_used() {
        let pages = Pages::new(4);
        pages.make_read_only(1);
        pages.forbid(2);
        pages.unmap(3);
        let is = |page| [false, true].map(|written| is_there(pages.addr(page) + 5, PAGE - 5, written));
        assert_eq!(is(0), [true, true]);
        if knows_populate() {
            assert_eq!([is(1), is(2)], [[true, false], [false, false]]);
        }
        assert_eq!(is(3), [false, false]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let pages = Pages::new(100);
        let bytes: Vec<u8> = (0..300_000).map(|i| (i * 7 % 251) as u8).collect();
        // SAFETY: the range lies within `pages`, which are mapped and writable to the test's end, and nothing
        // borrows.
        unsafe { copier().write(pages.addr(0) + 5, &bytes) }.unwrap();
        let mut back = vec![0; bytes.len()];
        copier().read(pages.addr(0) + 5, &mut back).unwrap();
        assert!(back == bytes);
        assert_eq!(pages.byte(0), 0);
        copier().read(0, &mut []).unwrap();
    }

    #[test]
    fn what_is_not_there_is_a_fault() {
        let pages = Pages::new(3);
        pages.forbid(1);
        pages.unmap(2);
        for addr in [0, 8, pages.addr(1), pages.addr(2), u64::MAX - 3, 1 << 63] {
            let fault = LocalFault { addr, len: 8, errno: Errno::FAULT };
            assert_eq!(copier().read(addr, &mut [0; 8]), Err(fault));
            // SAFETY: no byte of these ranges is writable, so there is no object that the call could alter.
            assert_eq!(unsafe { copier().write(addr, &[0; 8]) }, Err(fault));
        }
    }

    #[test]
    fn read_only_memory_is_read_and_not_written() {
        let pages = Pages::new(1);
        pages.fill(0, 9);
        pages.make_read_only(0);
        let mut bytes = [0; 16];
        copier().read(pages.addr(0), &mut bytes).unwrap();
        assert_eq!(bytes, [9; 16]);
        // SAFETY: the page is read-only until the test's end, so there is no object that the call could
        // alter.
        let result = unsafe { copier().write(pages.addr(0), &[1; 16]) };
        assert_eq!(result, Err(LocalFault { addr: pages.addr(0), len: 16, errno: Errno::FAULT }));
    }

    #[test]
    fn a_range_that_leaves_the_mapping_names_the_first_byte_missing() {
        let pages = Pages::new(2);
        pages.fill(0, 3);
        pages.unmap(1);
        let fault = LocalFault { addr: pages.addr(1), len: 90, errno: Errno::FAULT };
        let mut bytes = [0; 100];
        assert_eq!(copier().read(pages.addr(1) - 10, &mut bytes), Err(fault));
        assert_eq!(bytes[..10], [3; 10]);
        // SAFETY: what is mapped of it are test pages that nothing borrows.
        assert_eq!(unsafe { copier().write(pages.addr(1) - 10, &[4; 100]) }, Err(fault));
        assert_eq!(pages.byte(PAGE - 1), 4);
    }

    #[test]
    fn files_are_copied_to_and_from() {
        let pages = Pages::new(4);
        pages.fill(0, 7);
        pages.unmap(3);
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("a file");
        copy_to(file.as_fd(), 100, pages.addr(0) + 10, 5000).unwrap();
        // SAFETY: the range lies within test pages that nothing borrows, or is not mapped.
        let back = |at, addr, len| unsafe { copy_from(file.as_fd(), at, addr, len) };
        assert_eq!(back(100, pages.addr(1), 4086), Ok(()));
        assert_eq!((pages.byte(PAGE), pages.byte(PAGE + 4085), pages.byte(PAGE + 4086)), (7, 7, 0));
        let fault = |addr, len| Err(LocalFault { addr, len, errno: Errno::FAULT });
        assert_eq!(copy_to(file.as_fd(), 0, pages.addr(3) - 10, 30), fault(pages.addr(3), 20));
        assert_eq!(back(0, pages.addr(3) - 10, 30), fault(pages.addr(3), 20));
        assert_eq!(copy_to(file.as_fd(), 0, u64::MAX - 3, 8), fault(u64::MAX - 3, 8));
        assert_eq!(back(5090, pages.addr(2), 20), fault(pages.addr(2) + 10, 10), "the file ends before");
    }

    #[test]
    fn only_what_may_be_written_can_be_made_present() {
        let pages = Pages::new(5);
        pages.fill(0, 9);
        match make_present(pages.addr(0), PAGE) {
            Err(LocalFault { errno: Errno::INVAL, .. }) => {
                return testbed::skip("this kernel cannot tell");
            }
            made => assert_eq!(made, Ok(())),
        }
        assert_eq!(make_present(pages.addr(0) + 100, 2 * PAGE), Ok(()), "three pages, two of them untouched");
        assert_eq!((pages.byte(0), pages.byte(PAGE)), (9, 0), "no byte has changed");
        pages.make_read_only(2);
        pages.forbid(3);
        pages.unmap(4);
        for bad in 2..5 {
            assert!(make_present(pages.addr(bad), 8).is_err(), "page {bad}");
            assert!(make_present(pages.addr(bad - 1), 2 * PAGE).is_err(), "as far as page {bad}");
        }
        assert!(make_present(u64::MAX - 10, 100).is_err());
    }

    /// On Linux 6.1 each signal interrupts fallocate, also where its handler wants calls to go on.
    #[test]
    fn a_storm_of_signals_keeps_nobody_from_making_one() {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: plain data, of which all zeros is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler does nothing, and no other test uses this signal.
        assert_eq!(unsafe { libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()) }, 0);
        // SAFETY: the call takes nothing and only gives the number of the calling thread.
        let (process, thread) = (std::process::id(), unsafe { libc::gettid() });
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // SAFETY: the thread lives until this one has ended, and handles the signal.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
                }
            });
            let made = (0..500).try_for_each(|_| CheckedCopy::new().map(drop));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            made.expect("no signal is a failure");
        });
    }

    #[test]
    fn threads_take_turns() {
        let copier = copier();
        std::thread::scope(|scope| {
            for fill in 1..4 {
                let copier = &copier;
                scope.spawn(move || {
                    let source = vec![fill; 4096];
                    let mut bytes = vec![0; 4096];
                    for _ in 0..500 {
                        copier.read(source.as_ptr() as u64, &mut bytes).unwrap();
                        assert!(bytes.iter().all(|b| *b == fill));
                    }
                });
            }
        });
    }
}

//! Another process's memory by a descriptor: `/proc/PID/mem`.
//!
//! A descriptor means the memory that it was opened for, and nothing else. When that process has ended, or
//! executed another program, nothing can be written by it any more, whoever has the process's number by then.
//! It costs more than cross-memory attach: the kernel copies each page twice.
//!
//! The kernel lets a debugger write by this file to memory that its process may only read. So before each
//! write the kernel is asked whether the process itself may write there, by `/proc/PID/maps`.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, pread};

use crate::cma::{CmaError, Iov};

/// `PROCMAP_QUERY`, since Linux 6.11: `_IOWR('f', 17, struct procmap_query)`.
const QUERY: libc::c_ulong =
    3 << 30 | (size_of::<Query>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 17;
const QUERY_WRITABLE: u64 = 2;

/// The kernel's `struct procmap_query`.
#[derive(Default)]
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    rest: [u64; 8],
}

const _: () = assert!(size_of::<Query>() == 104);

/// Another process's memory, to be written.
#[derive(Debug)]
pub struct ProcMem {
    memory: File,
    maps: File,
}

impl ProcMem {
    /// Opens the memory of process `pid`, once it is known to be of the process meant: it has the number
    /// `nonce` at `addr_of_nonce`, as that said by other means.
    ///
    /// # Errors
    /// [`CmaError::Stranger`] if the number differs; [`CmaError::Gone`], [`CmaError::Denied`], or
    /// [`CmaError::Os`] where there are no file descriptors.
    pub fn open(pid: u32, addr_of_nonce: u64, nonce: u64) -> Result<ProcMem, CmaError> {
        let open = |name: &str, flags| {
            let path = format!("/proc/{pid}/{name}");
            let file = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
            file.map(File::from).map_err(refused)
        };
        // In this order: where another program is executed between the two, its memory does not have the
        // number.
        let maps = open("maps", OFlags::RDONLY)?;
        let memory = open("mem", OFlags::RDWR)?;
        let mut found = [0; 8];
        match pread(&memory, &mut found, addr_of_nonce) {
            Ok(8) if u64::from_ne_bytes(found) == nonce => Ok(ProcMem { memory, maps }),
            Ok(0) => Err(CmaError::Gone),
            Ok(_) | Err(Errno::IO) => Err(CmaError::Stranger),
            Err(errno) => Err(refused(errno)),
        }
    }

    /// Writes the `local` pieces of this process to the `remote` pieces of that one, as
    /// [`write_to`](crate::cma::write_to) does. It takes two system calls for each piece, or part of one,
    /// that has one length on both sides. No allocation, since Linux 6.11.
    ///
    /// # Errors
    /// As for [`write_to`](crate::cma::write_to).
    ///
    /// # Safety
    /// No part of the local pieces may be written by this process during the call. The other process must
    /// expect the write.
    pub unsafe fn write(&self, remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
        let bytes = |pieces: &[Iov]| pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.len));
        if bytes(remote) != bytes(local) {
            return Err(CmaError::Mismatch { remote: bytes(remote), local: bytes(local) });
        }
        let (mut theirs, mut ours) = (remote.iter(), local.iter());
        let (mut there, mut here) = (Iov::default(), Iov::default());
        let mut done = 0;
        loop {
            while there.len == 0 {
                let Some(next) = theirs.next() else { return Ok(()) };
                there = *next;
            }
            while here.len == 0 {
                here = *ours.next().expect("as many bytes as there");
            }
            let part = Iov { addr: there.addr, len: there.len.min(here.len).min(1 << 30) };
            // SAFETY: this part of a local piece is under the caller's promise.
            let written = unsafe { self.write_part(part, here.addr, done) }?;
            done += written;
            for piece in [&mut there, &mut here] {
                *piece = Iov { addr: piece.addr + written, len: piece.len - written };
            }
        }
    }

    /// Writes some of what is at `from` in this process to a part of that one's memory, and says how much.
    ///
    /// # Safety
    /// As for [`ProcMem::write`], of as many bytes at `from`.
    unsafe fn write_part(&self, part: Iov, from: u64, done: u64) -> Result<u64, CmaError> {
        let fault = CmaError::Fault { addr: part.addr, len: part.len, done };
        let len = self.writable(part)?.ok_or(fault)?;
        let (fd, from_ptr) = (self.memory.as_raw_fd(), std::ptr::with_exposed_provenance(from as usize));
        // SAFETY: the caller vouches for the bytes, and the kernel checks that they can be read.
        let rc = unsafe { libc::pwrite64(fd, from_ptr, len as usize, part.addr as libc::off64_t) };
        match u64::try_from(rc) {
            Ok(0) => Err(CmaError::Gone),
            Ok(written) => Ok(written),
            Err(_) => Err(match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::IO) | None => fault,
                Some(Errno::FAULT) => CmaError::LocalFault { addr: from, len: part.len, done },
                Some(errno) => refused(errno),
            }),
        }
    }

    /// How many bytes from a part's first on its process may write itself; `None` if not even that one.
    fn writable(&self, part: Iov) -> Result<Option<u64>, CmaError> {
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, flags: QUERY_WRITABLE, addr: part.addr, ..Query::default() };
        // SAFETY: the kernel reads and writes the structure, whose size it is told, while it is borrowed
        // here.
        let rc = unsafe { libc::ioctl(self.maps.as_raw_fd(), QUERY, &raw mut query) };
        let end = match rc {
            0 => Some(query.end),
            _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::NOENT) => None,
                Some(Errno::NOTTY) => self.writable_by_text(part.addr)?,
                Some(errno) => return Err(refused(errno)),
                None => None,
            },
        };
        Ok(end.map(|end| part.len.min(end - part.addr)))
    }

    /// The end of the mapping in which an address lies, if the process may write there: on kernels that have
    /// it in text only.
    #[cold]
    fn writable_by_text(&self, addr: u64) -> Result<Option<u64>, CmaError> {
        let (mut text, mut chunk) = (Vec::new(), [0; 16 << 10]);
        loop {
            match pread(&self.maps, &mut chunk, text.len() as u64) {
                Ok(0) if text.is_empty() => return Err(CmaError::Gone),
                Ok(0) => return Ok(writable_in(&String::from_utf8_lossy(&text), addr)),
                Ok(bytes) => text.extend_from_slice(&chunk[..bytes]),
                Err(errno) => return Err(refused(errno)),
            }
        }
    }
}

/// The end of the mapping in which an address lies, if these lines of `maps` say that it may be written.
fn writable_in(maps: &str, addr: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        (start <= addr && addr < end && rest.as_bytes().get(1) == Some(&b'w')).then_some(end)
    })
}

fn refused(errno: Errno) -> CmaError {
    match errno {
        Errno::SRCH | Errno::NOENT => CmaError::Gone,
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => CmaError::Denied { errno },
        errno => CmaError::Os { errno },
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::test_pages::{PAGE, Pages};

    fn own() -> (ProcMem, Box<u64>) {
        let nonce = Box::new(0x1234_5678_9abc_def0);
        let addr = std::ptr::from_ref(&*nonce).expose_provenance() as u64;
        (ProcMem::open(std::process::id(), addr, *nonce).expect("our own memory"), nonce)
    }

    fn write(memory: &ProcMem, remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
        // SAFETY: the tests name their own test pages, which nothing borrows, on both sides.
        unsafe { memory.write(remote, local) }
    }

    #[test]
    fn pieces_of_different_lengths_are_written() {
        let ((memory, _nonce), there, here) = (own(), Pages::new(2), Pages::new(2));
        here.fill(0, 7);
        here.fill(1, 9);
        let remote = [Iov { addr: there.addr(0) + 10, len: 5 }, Iov { addr: there.addr(1) + 1, len: 4 }];
        let local = [Iov { addr: here.addr(0), len: 3 }, Iov::default(), Iov { addr: here.addr(1), len: 6 }];
        write(&memory, &remote, &local).expect("all is there");
        let byte = |at| there.byte(at);
        assert_eq!([9, 10, 12, 13, 14, 15].map(byte), [0, 7, 7, 9, 9, 0]);
        assert_eq!([PAGE, PAGE + 1, PAGE + 4, PAGE + 5].map(byte), [0, 9, 9, 0]);
        here.fill(0, 8);
        let short = write(&memory, &remote, &local[..1]);
        assert_eq!(short, Err(CmaError::Mismatch { remote: 9, local: 3 }));
        let long = write(&memory, &remote[..1], &local);
        assert_eq!(
            (long, byte(10)),
            (Err(CmaError::Mismatch { remote: 5, local: 9 }), 7),
            "nothing is written"
        );
    }

    #[test]
    fn what_its_process_may_not_write_is_a_fault_and_keeps_its_bytes() {
        let ((memory, _nonce), there, here) = (own(), Pages::new(3), Pages::new(1));
        there.make_read_only(1);
        here.fill(0, 7);
        let (remote, local) =
            ([Iov { addr: there.addr(1) - 8, len: 16 }], [Iov { addr: here.addr(0), len: 16 }]);
        let fault = CmaError::Fault { addr: there.addr(1), len: 8, done: 8 };
        assert_eq!(write(&memory, &remote, &local), Err(fault));
        assert_eq!([PAGE - 1, PAGE].map(|at| there.byte(at)), [7, 0]);
        there.unmap(2);
        let gone = [Iov { addr: there.addr(2), len: 16 }];
        assert!(matches!(write(&memory, &gone, &local), Err(CmaError::Fault { done: 0, .. })));
        let nowhere = [Iov { addr: there.addr(2), len: 16 }];
        let back = [Iov { addr: there.addr(0), len: 16 }];
        assert!(matches!(write(&memory, &back, &nowhere), Err(CmaError::LocalFault { done: 0, .. })));
    }

    #[test]
    fn another_process_is_told_by_its_memory_and_text_says_what_the_call_does() {
        let (memory, nonce) = own();
        let addr = std::ptr::from_ref(&*nonce).expose_provenance() as u64;
        let (me, other) = (std::process::id(), *nonce + 1);
        assert_eq!(ProcMem::open(me, addr, other).map(|_| ()), Err(CmaError::Stranger));
        // Memory beside it that may be written too can be one mapping with it.
        let there = Pages::new(2);
        there.make_read_only(1);
        let part = Iov { addr: there.addr(0) + 1, len: PAGE };
        assert_eq!(memory.writable(part), Ok(Some(PAGE - 1)));
        assert_eq!(memory.writable_by_text(part.addr), Ok(Some(there.addr(1))));
        let lines = "1000-2000 r--p 0\n2000-3000 rw-p 0 /a b\n";
        assert_eq!(
            [0x1fff, 0x2000, 0x2fff, 0x3000].map(|addr| writable_in(lines, addr)),
            [None, Some(0x3000), Some(0x3000), None]
        );
    }
}

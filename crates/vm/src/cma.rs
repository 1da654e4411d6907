//! Cross-memory attach: the kernel copies between this process and another one, which takes no part in it.
//!
//! The kernel promises little: a call that could not go on returns the bytes it has copied, or an error if
//! there are none, and neither says whose address was bad. So a call that fell short is continued at the next
//! byte. When not even that can be copied, a second call that touches this process's memory only finds out
//! which side's address it is.

use libc::pid_t;
use rustix::io::Errno;

/// The most pieces that one call takes, on either side.
pub const IOV_MAX: usize = 1024;

/// More bytes than any address space has; the kernel refuses lists of more.
const BYTES_MAX: u64 = i64::MAX as u64;

/// A run of bytes in some process's address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Iov {
    /// Address of its first byte.
    pub addr: u64,
    /// Its length in bytes; zero is allowed.
    pub len: u64,
}

const _: () =
    assert!(size_of::<Iov>() == size_of::<libc::iovec>() && align_of::<Iov>() == align_of::<libc::iovec>());

/// Why a transfer did not complete. Bytes before the one that failed may have been transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CmaError {
    /// The other process has no such memory, or not with the rights needed.
    #[error("{len} bytes at {addr:#x} of the other process cannot be accessed ({done} bytes done before)")]
    Fault {
        /// Address of the remote piece that failed, as the caller gave it.
        addr: u64,
        /// That piece's length in bytes.
        len: u64,
        /// Bytes of the whole list that were transferred before the failure.
        done: u64,
    },
    /// This process has no such memory, or not with the rights needed.
    #[error("{len} bytes at {addr:#x} of this process cannot be accessed ({done} bytes done before)")]
    LocalFault {
        /// Address of the local piece that failed, as the caller gave it.
        addr: u64,
        /// That piece's length in bytes.
        len: u64,
        /// Bytes of the whole list that were transferred before the failure.
        done: u64,
    },
    /// There is no such process, or it is ending.
    #[error("the process is gone")]
    Gone,
    /// This process may not access that one's memory.
    #[error("cross-memory attach is not allowed: {errno}")]
    Denied {
        /// The kernel's error: EPERM, EACCES, or ENOSYS.
        errno: Errno,
    },
    /// The two lists differ in length.
    #[error("{remote} bytes there, {local} here")]
    Mismatch {
        /// Bytes in the remote list.
        remote: u64,
        /// Bytes in the local list.
        local: u64,
    },
    /// The memory probed says that this is not the process we mean.
    #[error("another process has this number here")]
    Stranger,
    /// The kernel failed for another reason.
    #[error("cross-memory attach failed: {errno}")]
    Os {
        /// The kernel's error.
        errno: Errno,
    },
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// Reads the `remote` pieces of process `pid` into the `local` pieces of this one, in order. The pieces on
/// the two sides need not have the same lengths, but as many bytes in all. One system call if neither list is
/// longer than [`IOV_MAX`] and the whole below 2 GiB; no allocation.
///
/// # Errors
/// [`CmaError`]; the local pieces then hold anything.
///
/// # Safety
/// The local pieces must be memory of this process that the caller may write for the whole of the call.
/// Nothing else in this process reads or writes it meanwhile, and no Rust value other than plain bytes lives
/// there. Addresses where nothing is mapped are allowed, and give [`CmaError::LocalFault`].
#[inline]
pub unsafe fn read_from(pid: u32, remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
    // SAFETY: the caller vouches for the local pieces, for as long as this call takes; that is all a read
    // asks.
    unsafe { transfer(Direction::Read, pid, remote, local) }
}

/// Writes the `local` pieces of this process to the `remote` pieces of process `pid`, in order; for the rest
/// like [`read_from`].
///
/// # Errors
/// [`CmaError`]; the remote pieces then hold anything.
///
/// # Safety
/// No part of the local pieces may be written by this process during the call. If `pid` is this process, the
/// remote pieces are under the contract of [`read_from`]. Another process must expect the write: what lies
/// there is its program's affair, as it is for any memory that this program may alter through a debugger's
/// rights.
#[inline]
pub unsafe fn write_to(pid: u32, remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
    // SAFETY: the caller vouches for the pieces on both sides, for as long as this call takes.
    unsafe { transfer(Direction::Write, pid, remote, local) }
}

/// Finds out whether this process may use cross-memory attach with `pid`, and whether that is the process
/// meant: whether it has the number `nonce` at `addr_of_nonce`, as it said by other means.
///
/// # Errors
/// [`CmaError::Stranger`] if the number differs; others as for [`read_from`].
pub fn probe(pid: u32, addr_of_nonce: u64, nonce: u64) -> Result<(), CmaError> {
    let mut found = 0_u64;
    let remote = [Iov { addr: addr_of_nonce, len: 8 }];
    let local = [Iov { addr: (&raw mut found) as u64, len: 8 }];
    // SAFETY: eight bytes of a local variable that nothing else uses.
    unsafe { read_from(pid, &remote, &local) }?;
    if found == nonce { Ok(()) } else { Err(CmaError::Stranger) }
}

/// # Safety
/// As for [`read_from`] or [`write_to`], by `direction`.
#[inline]
unsafe fn transfer(direction: Direction, pid: u32, remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
    let total = bytes_in(remote);
    if total != bytes_in(local) {
        return Err(CmaError::Mismatch { remote: total, local: bytes_in(local) });
    }
    if total > BYTES_MAX {
        return Err(CmaError::Os { errno: Errno::INVAL });
    }
    let mut done = 0;
    if remote.len() <= IOV_MAX && local.len() <= IOV_MAX {
        // SAFETY: these are the caller's own lists, whole and in its own direction, so its contract covers
        // them.
        match unsafe { call(direction, pid, remote, local) } {
            Ok(copied) if copied == total => return Ok(()),
            Ok(copied) => done = copied,
            Err(Errno::FAULT) => {}
            Err(errno) => return Err(refused(errno)),
        }
    }
    let rest =
        Rest { direction, pid, remote: Cursor::new(remote, done), local: Cursor::new(local, done), done };
    // SAFETY: the cursors only walk the caller's lists, in its own direction, so its contract covers what is
    // left.
    unsafe { rest.finish() }
}

/// Bytes in a list; more than [`BYTES_MAX`] if the sum does not fit.
#[inline]
fn bytes_in(pieces: &[Iov]) -> u64 {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.len))
}

/// One system call: how many bytes it copied, or why none.
///
/// # Safety
/// As for [`read_from`] or [`write_to`], by `direction`.
#[inline]
unsafe fn call(direction: Direction, pid: u32, remote: &[Iov], local: &[Iov]) -> Result<u64, Errno> {
    let pid = pid as pid_t;
    let (there, here) = (remote.as_ptr().cast(), local.as_ptr().cast());
    let (pieces_there, pieces_here) = (remote.len() as libc::c_ulong, local.len() as libc::c_ulong);
    // SAFETY: the two lists are borrowed slices of what is an iovec by layout (asserted above), of the
    // lengths given. The caller vouches for the memory that they point to, or it is the other process's; the
    // kernel checks every address.
    let copied = unsafe {
        match direction {
            Direction::Read => libc::process_vm_readv(pid, here, pieces_here, there, pieces_there, 0),
            Direction::Write => libc::process_vm_writev(pid, here, pieces_here, there, pieces_there, 0),
        }
    };
    u64::try_from(copied).map_err(|_| last_errno())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn refused(errno: Errno) -> CmaError {
    match errno {
        Errno::SRCH => CmaError::Gone,
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => CmaError::Denied { errno },
        errno => CmaError::Os { errno },
    }
}

/// The rest of a transfer that one call did not complete.
struct Rest<'a> {
    direction: Direction,
    pid: u32,
    remote: Cursor<'a>,
    local: Cursor<'a>,
    done: u64,
}

impl Rest<'_> {
    /// # Safety
    /// As for [`read_from`] or [`write_to`], by direction.
    #[cold]
    unsafe fn finish(mut self) -> Result<(), CmaError> {
        let (mut there, mut here) = ([Iov::default(); IOV_MAX], [Iov::default(); IOV_MAX]);
        let mut batch = IOV_MAX;
        while self.remote.current().is_some() {
            let remote = self.remote.fill(&mut there[..batch]);
            let local = self.local.fill(&mut here[..batch]);
            // SAFETY: parts of the caller's pieces, under the caller's contract.
            match unsafe { call(self.direction, self.pid, remote, local) } {
                Ok(copied) if copied > 0 => {
                    self.done += copied;
                    self.remote.advance(copied);
                    self.local.advance(copied);
                }
                // The bad address may be anywhere in the list, so go on by single pieces, up to it.
                Ok(_) | Err(Errno::FAULT) if batch > 1 => batch = 1,
                // SAFETY: `fault` asks for the contract under which we were called; the lists are still the
                // same.
                Ok(_) | Err(Errno::FAULT) => return Err(unsafe { self.fault() }),
                Err(errno) => return Err(refused(errno)),
            }
        }
        Ok(())
    }

    /// Whose address the next byte's is that could not be copied. The local end is to blame only where the
    /// kernel cannot copy that byte to where this process needs it: to itself for a read, which changes
    /// nothing. The other process may have changed its memory since the call that failed, so a look at it
    /// would prove nothing.
    ///
    /// # Safety
    /// As for [`read_from`] or [`write_to`], by direction.
    unsafe fn fault(&self) -> CmaError {
        let (Some(there), Some(here)) = (self.remote.current(), self.local.current()) else {
            unreachable!("both lists have as many bytes, and a call for the next one has just failed");
        };
        let mut byte = 0_u8;
        let source = [Iov { addr: here.next, len: 1 }];
        let target = match self.direction {
            Direction::Read => source,
            Direction::Write => [Iov { addr: (&raw mut byte) as u64, len: 1 }],
        };
        // SAFETY: reads one byte of a local piece, into a local variable or into that byte itself, which the
        // caller may write and nobody else uses meanwhile.
        let local = match unsafe { call(Direction::Read, std::process::id(), &source, &target) } {
            Ok(copied) => copied == 0,
            Err(Errno::FAULT) => true,
            Err(errno) => return refused(errno),
        };
        let done = self.done;
        if local {
            CmaError::LocalFault { addr: here.piece.addr, len: here.piece.len, done }
        } else {
            CmaError::Fault { addr: there.piece.addr, len: there.piece.len, done }
        }
    }
}

/// A place in a list of pieces.
struct Cursor<'a> {
    pieces: &'a [Iov],
    /// Bytes of the first piece that are done.
    within: u64,
}

/// A piece that is not done, and the address of its next byte.
struct Current {
    piece: Iov,
    next: u64,
}

impl<'a> Cursor<'a> {
    fn new(pieces: &'a [Iov], done: u64) -> Cursor<'a> {
        let mut cursor = Cursor { pieces, within: 0 };
        cursor.advance(done);
        cursor
    }

    /// The piece of the next byte; `None` at the end.
    fn current(&self) -> Option<Current> {
        let piece = *self.pieces.first()?;
        Some(Current { piece, next: piece.addr.wrapping_add(self.within) })
    }

    /// Goes on by `bytes`, and past empty pieces.
    fn advance(&mut self, bytes: u64) {
        self.within += bytes;
        while let [first, rest @ ..] = self.pieces
            && first.len <= self.within
        {
            self.within -= first.len;
            self.pieces = rest;
        }
    }

    /// Copies what is left of the list into `batch`, as far as it goes.
    fn fill<'b>(&self, batch: &'b mut [Iov]) -> &'b [Iov] {
        let count = self.pieces.len().min(batch.len());
        batch[..count].copy_from_slice(&self.pieces[..count]);
        if let Some(first) = batch[..count].first_mut() {
            first.addr = first.addr.wrapping_add(self.within);
            first.len -= self.within;
        }
        &batch[..count]
    }
}

#[cfg(all(test, not(miri)))]
#[path = "cma_tests.rs"]
mod tests;

//! The system calls of userfaultfd that tell of changed mappings, and none of those that handle faults.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};

/// For faults of user code only, of which there are none either: so that no privilege is needed (Linux 5.11).
const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xaa;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
/// Pages can be write-protected: no page ever is, but a mapping must be watched for something.
const WRITE_PROTECT: u64 = 1 << 0;
const MODE_WRITE_PROTECT: u64 = 1 << 1;

const NEW: Opcode = opcode::none(0xaa, 0x00);
const HANDSHAKE: Opcode = opcode::read_write::<Handshake>(0xaa, 0x3f);
const REGISTER: Opcode = opcode::read_write::<Register>(0xaa, 0x00);
const UNREGISTER: Opcode = opcode::read::<Range>(0xaa, 0x01);

#[repr(C)]
struct Handshake {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

/// A message as the kernel writes it.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Message {
    event: u8,
    reserved: [u8; 7],
    words: [u64; 3],
}

/// The news of a message, in addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The mapping is gone: unmapped, mapped over, or moved away.
    Unmap { start: u64, end: u64 },
    /// The pages are about to go: whoever removes them goes on when this is read.
    Remove { start: u64, end: u64 },
    /// The pages are mapped elsewhere.
    Remap { from: u64, to: u64, len: u64 },
    /// Nothing that was asked for.
    Other,
}

impl Message {
    pub(super) fn event(&self) -> Event {
        let [first, second, third] = self.words;
        match self.event {
            0x14 => Event::Remap { from: first, to: second, len: third },
            0x15 => Event::Remove { start: first, end: second },
            0x16 => Event::Unmap { start: first, end: second },
            _ => Event::Other,
        }
    }
}

/// A userfaultfd that is told of changes.
pub(super) struct Uffd(OwnedFd);

impl Uffd {
    /// Opens one, by the system call or else by the device, which a filter of system calls does not know.
    ///
    /// # Errors
    /// The kernel's error: EPERM and ENOSYS where it is forbidden, EINVAL where it is too old.
    pub(super) fn open() -> Result<Uffd, Errno> {
        let uffd = Uffd(by_call().or_else(|error| by_device().map_err(|_| error))?);
        let features = EVENT_UNMAP | EVENT_REMOVE | EVENT_REMAP;
        let mut handshake = Handshake { api: API, features, ioctls: 0 };
        // SAFETY: the request's structure, which lives and is ours alone for the call.
        called(unsafe { libc::ioctl(uffd.0.as_raw_fd(), HANDSHAKE.into(), &raw mut handshake) })?;
        if handshake.features & WRITE_PROTECT == 0 { Err(Errno::OPNOTSUPP) } else { Ok(uffd) }
    }

    /// Has changes of the mappings in the range told. No page of them ever faults for it.
    ///
    /// # Errors
    /// EINVAL for mappings that cannot be watched or none, EBUSY for those that another userfaultfd watches.
    pub(super) fn register(&self, start: u64, end: u64) -> Result<(), Errno> {
        let range = Range { start, len: end - start };
        let mut register = Register { range, mode: MODE_WRITE_PROTECT, ioctls: 0 };
        // SAFETY: the request's structure, which lives and is ours alone for the call. Nothing but this
        // process's bookkeeping of the mappings changes: no byte, and no page.
        called(unsafe { libc::ioctl(self.0.as_raw_fd(), REGISTER.into(), &raw mut register) })
    }

    /// Has no changes of the mappings in the range told any more.
    ///
    /// # Errors
    /// As for [`Uffd::register`].
    pub(super) fn unregister(&self, start: u64, end: u64) -> Result<(), Errno> {
        let mut range = Range { start, len: end - start };
        // SAFETY: the request's structure, which lives and is ours alone for the call; as for `register`.
        called(unsafe { libc::ioctl(self.0.as_raw_fd(), UNREGISTER.into(), &raw mut range) })
    }

    /// Reads messages that there are, without waiting; each lets go on whoever caused it. Returns how many.
    pub(super) fn read(&self, messages: &mut [Message]) -> usize {
        let read = rustix::io::read(&self.0, bytemuck::cast_slice_mut::<Message, u8>(messages));
        read.unwrap_or(0) / size_of::<Message>()
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn by_call() -> Result<OwnedFd, Errno> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: userfaultfd takes flags and touches no memory of ours.
    let call = |flags: libc::c_int| unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    // Kernels before 5.11 do not know the mode.
    owned(call(flags | USER_MODE_ONLY)).or_else(|error| owned(call(flags)).map_err(|_| error))
}

fn by_device() -> Result<OwnedFd, Errno> {
    use rustix::fs::{Mode, OFlags};
    let device = rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the request takes flags and touches no memory of ours.
    owned(unsafe { libc::ioctl(device.as_raw_fd(), NEW.into(), libc::O_CLOEXEC | libc::O_NONBLOCK) }.into())
}

fn owned(fd: libc::c_long) -> Result<OwnedFd, Errno> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just given us this descriptor, so nobody else owns it, and it is open.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last_errno()),
    }
}

fn called(result: libc::c_int) -> Result<(), Errno> {
    if result < 0 { Err(last_errno()) } else { Ok(()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

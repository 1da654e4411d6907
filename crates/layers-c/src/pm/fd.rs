//! A context as a descriptor, which another program may inherit: a small file that names the channel.

use std::ffi::c_int;
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;

use layers::pm::CHANNELS_MAX;

/// What such a file begins with; the channel follows in one byte.
const MARK: &[u8; 15] = b"standpipe pm 1\n";

/// Makes a descriptor, which stays open across `exec`.
pub(super) fn make(channel: usize) -> std::io::Result<c_int> {
    // SAFETY: the name is a text that ends with a zero byte, and is only read.
    let fd = unsafe { libc::memfd_create(c"pm context".as_ptr(), 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the system has just given this descriptor, and nobody else knows of it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(MARK)?;
    file.write_all(&[u8::try_from(channel).unwrap_or(u8::MAX)])?;
    Ok(file.into_raw_fd())
}

/// The channel that a descriptor names, if it is such a one. The descriptor stays the program's.
pub(super) fn read(fd: c_int) -> Option<usize> {
    if fd < 0 {
        return None;
    }
    // SAFETY: a number that is no open descriptor's gives an error when it is read; it is never closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let mut bytes = [0; MARK.len() + 1];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (mark, channel) = bytes.split_at(MARK.len());
    let channel = usize::from(channel[0]);
    (mark == MARK && channel < CHANNELS_MAX).then_some(channel)
}

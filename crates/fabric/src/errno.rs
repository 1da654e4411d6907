//! libfabric's error numbers, by name.

use crate::library::error_text;
use std::fmt;

/// An error number of libfabric: one of the system's below 256, one of its own from there on. Always
/// positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// Makes the constants and the table of names.
macro_rules! errnos {
    ($($(#[$meta:meta])* $name:ident = $value:expr;)*) => {
        impl Errno {
            $($(#[$meta])* pub const $name: Errno = Errno($value);)*
        }

        const NAMES: &[(i32, &str)] = &[$(($value, stringify!($name)),)*];
    };
}

errnos! {
    /// Not permitted.
    EPERM = libc::EPERM;
    /// Nothing of that name or key is there.
    ENOENT = libc::ENOENT;
    /// Interrupted by a signal.
    EINTR = libc::EINTR;
    /// Input or output failed.
    EIO = libc::EIO;
    /// The argument list is too long.
    E2BIG = libc::E2BIG;
    /// Bad descriptor.
    EBADF = libc::EBADF;
    /// Nothing now, or no room now: try again after progress.
    EAGAIN = libc::EAGAIN;
    /// Out of memory, or over the limit of what may be pinned.
    ENOMEM = libc::ENOMEM;
    /// Access is denied; also what some providers say of a bad key.
    EACCES = libc::EACCES;
    /// Bad address.
    EFAULT = libc::EFAULT;
    /// Still in use.
    EBUSY = libc::EBUSY;
    /// No such device.
    ENODEV = libc::ENODEV;
    /// Invalid argument.
    EINVAL = libc::EINVAL;
    /// Too many open files.
    EMFILE = libc::EMFILE;
    /// No space left.
    ENOSPC = libc::ENOSPC;
    /// The connection was closed while data were still to be sent.
    EPIPE = libc::EPIPE;
    /// Not implemented by this provider.
    ENOSYS = libc::ENOSYS;
    /// No message of the desired type.
    ENOMSG = libc::ENOMSG;
    /// Nothing matches what was asked for.
    ENODATA = libc::ENODATA;
    /// Too large for its type.
    EOVERFLOW = libc::EOVERFLOW;
    /// The message is too long.
    EMSGSIZE = libc::EMSGSIZE;
    /// No such option.
    ENOPROTOOPT = libc::ENOPROTOOPT;
    /// Not supported by this object.
    EOPNOTSUPP = libc::EOPNOTSUPP;
    /// The address is in use.
    EADDRINUSE = libc::EADDRINUSE;
    /// No such address here.
    EADDRNOTAVAIL = libc::EADDRNOTAVAIL;
    /// The network is down.
    ENETDOWN = libc::ENETDOWN;
    /// The network cannot be reached.
    ENETUNREACH = libc::ENETUNREACH;
    /// The connection was broken off on this side.
    ECONNABORTED = libc::ECONNABORTED;
    /// The peer broke off the connection.
    ECONNRESET = libc::ECONNRESET;
    /// No buffers left.
    ENOBUFS = libc::ENOBUFS;
    /// Connected already.
    EISCONN = libc::EISCONN;
    /// Not connected, or no more.
    ENOTCONN = libc::ENOTCONN;
    /// The endpoint is shut down.
    ESHUTDOWN = libc::ESHUTDOWN;
    /// The time is up.
    ETIMEDOUT = libc::ETIMEDOUT;
    /// Nobody listens there.
    ECONNREFUSED = libc::ECONNREFUSED;
    /// The host is down.
    EHOSTDOWN = libc::EHOSTDOWN;
    /// No way to that host.
    EHOSTUNREACH = libc::EHOSTUNREACH;
    /// Under way already.
    EALREADY = libc::EALREADY;
    /// Under way.
    EINPROGRESS = libc::EINPROGRESS;
    /// The peer reported an error of its side.
    EREMOTEIO = libc::EREMOTEIO;
    /// Canceled: by the caller, or because the connection went.
    ECANCELED = libc::ECANCELED;
    /// The peer rejected the key.
    EKEYREJECTED = libc::EKEYREJECTED;
    /// Unspecified.
    EOTHER = 256;
    /// The buffer given is too small.
    ETOOSMALL = 257;
    /// Not permitted in the object's state.
    EOPBADSTATE = 258;
    /// An error entry waits to be read.
    EAVAIL = 259;
    /// Flags that are not supported.
    EBADFLAGS = 260;
    /// An event queue is missing.
    ENOEQ = 261;
    /// Objects of different domains.
    EDOMAIN = 262;
    /// A completion queue is missing.
    ENOCQ = 263;
    /// A checksum did not match.
    ECRC = 264;
    /// A message was longer than the buffer that received it.
    ETRUNC = 265;
    /// The key asked for is not available.
    ENOKEY = 266;
    /// An address vector is missing.
    ENOAV = 267;
    /// A queue ran over.
    EOVERRUN = 268;
    /// The peer had no buffer to receive into.
    ENORX = 269;
}

impl Errno {
    /// The error that a function of the library returned, as a negative number.
    pub(crate) fn returned(negative: i64) -> Errno {
        Errno(i32::try_from(negative.unsigned_abs()).unwrap_or(i32::MAX))
    }

    /// The error that an entry of a completion queue names, as a positive number.
    pub(crate) fn of_entry(number: i32) -> Errno {
        Errno(number.saturating_abs())
    }

    /// The number.
    pub fn number(self) -> i32 {
        self.0
    }

    /// The name in libfabric's headers without its `FI_`, such as `EAGAIN` or `ETRUNC`; `None` for numbers
    /// that this crate does not know.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "FI_{name} ({})", self.0)?,
            None => write!(f, "error {}", self.0)?,
        }
        error_text(self.0).map_or(Ok(()), |text| write!(f, ": {text}"))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "FI_{name}"),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_names() {
        assert_eq!(Errno::returned(-11), Errno::EAGAIN);
        assert_eq!(format!("{:?}", Errno::returned(-265)), "FI_ETRUNC");
        assert!(Errno::of_entry(259).to_string().starts_with("FI_EAVAIL (259)"));
        assert!(Errno::of_entry(4242).to_string().starts_with("error 4242"));
        assert_eq!(Errno::returned(i64::MIN).number(), i32::MAX);
    }
}

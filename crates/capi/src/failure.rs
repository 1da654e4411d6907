//! Failures of all calls of the library: each a code, words and values.

use std::ffi::c_int;

use standpipe::{
    CloseError, Code, ConfigError, ConnectError, DirectoryError, Error, GrantError, HeapError, Memory,
    OpenError, PinError, Rights, rendezvous,
};

/// No one peer.
pub(crate) const NO_PEER: u32 = u32::MAX;

/// A status as C sees it.
pub(crate) const fn status(code: Code) -> c_int {
    -(code.number() as c_int)
}

/// A failure with its values, as `sp_last_error` tells it.
#[derive(Clone)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
    pub(crate) peer: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) given: u64,
    pub(crate) expected: u64,
    pub(crate) memory: u32,
    pub(crate) rights: u32,
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure {
            code,
            text: text.into(),
            peer: NO_PEER,
            addr: 0,
            len: 0,
            given: 0,
            expected: 0,
            memory: 0,
            rights: 0,
        }
    }

    /// An argument that the call does not take.
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Code::Argument, text)
    }

    /// A number that is none of those that an argument may be.
    pub(crate) fn value(what: &str, given: i64, range: &str) -> Failure {
        Failure { given: given as u64, ..Failure::argument(format!("{what} is {given}, and may be {range}")) }
    }

    /// Room that is too small.
    pub(crate) fn room(given: usize, expected: usize) -> Failure {
        let text = format!("the room has {given} bytes, and {expected} are needed");
        Failure { given: given as u64, expected: expected as u64, ..Failure::new(Code::Length, text) }
    }
}

/// Bits of the rights, as C sees them.
pub(crate) fn rights_bits(rights: Rights) -> u32 {
    match rights {
        Rights::Read => 1,
        Rights::Write => 2,
        Rights::ReadWrite => 3,
    }
}

/// The number of a memory, as C sees it.
fn memory_number(memory: Memory) -> u32 {
    match memory {
        Memory::Heap => 1,
        Memory::Granted => 3,
        _ => 0,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let plain = Failure::new(error.code(), error.to_string());
        match error {
            Error::PeerLost { peer }
            | Error::Timeout { peer, .. }
            | Error::Cancelled { peer }
            | Error::NotConnected { peer }
            | Error::HandlersDiffer { peer, .. }
            | Error::NoSuchHandler { peer, .. }
            | Error::Protocol { peer, .. }
            | Error::Team { peer, .. } => Failure { peer, ..plain },
            Error::Fault { peer, memory, addr, len } => {
                Failure { peer, memory: memory_number(memory), addr, len, ..plain }
            }
            Error::NotExposed { peer, addr, len, rights } => {
                Failure { peer, addr, len, rights: rights_bits(rights), ..plain }
            }
            Error::Revoked { peer, offset, len, .. } => {
                Failure { peer, memory: memory_number(Memory::Granted), addr: offset, len, ..plain }
            }
            Error::NotGranted { peer, rights, offset, len, .. } => {
                let (memory, rights) = (memory_number(Memory::Granted), rights_bits(rights));
                Failure { peer, memory, rights, addr: offset, len, ..plain }
            }
            Error::LocalFault { addr, len } => Failure { addr, len, ..plain },
            Error::NoSuchPeer { peer, size } => Failure { peer, expected: size.into(), ..plain },
            Error::NoSuchRoot { root, size } => {
                Failure { given: root.into(), expected: size.into(), ..plain }
            }
            Error::Length { given, expected, .. } => Failure { given, expected, ..plain },
            Error::PayloadTooLong { given, most } => Failure { given, expected: most, ..plain },
            Error::QueueFull { capacity } => Failure { expected: capacity, ..plain },
            Error::PayloadsKept { most } | Error::HandlersFull { most } | Error::TeamsFull { most } => {
                Failure { expected: most, ..plain }
            }
            Error::Unaligned { peer, offset, size } => {
                Failure { peer, memory: memory_number(Memory::Heap), addr: offset, len: size, ..plain }
            }
            Error::Overlap { start, end } => Failure { given: start, expected: end, ..plain },
            Error::Elsewhere { peer, expected } => {
                Failure { peer, given: peer.into(), expected: expected.into(), ..plain }
            }
            Error::PartOfElement { given, each, .. } => Failure { given, expected: each, ..plain },
            Error::Versions { peer, ours, theirs, .. } => {
                Failure { peer, given: theirs.into(), expected: ours.into(), ..plain }
            }
            _ => plain,
        }
    }
}

/// Errors of which the text says all.
macro_rules! by_text {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::new(error.code(), error.to_string())
            }
        })*
    };
}

by_text!(
    ConfigError,
    ConnectError,
    DirectoryError,
    HeapError,
    OpenError,
    PinError,
    rendezvous::RendezvousError
);

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Failure {
        match error {
            CloseError::Refused(inner) | CloseError::Undone(inner) => {
                let text = CloseError::Undone(inner.clone()).to_string();
                Failure { text, ..Failure::from(inner) }
            }
            other => Failure::new(other.code(), other.to_string()),
        }
    }
}

impl From<GrantError> for Failure {
    fn from(error: GrantError) -> Failure {
        let plain = Failure::new(error.code(), error.to_string());
        match error {
            GrantError::StillInUse { peer, .. } => Failure { peer, ..plain },
            _ => plain,
        }
    }
}

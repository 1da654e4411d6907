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

/// A failure's values, as `sp_last_error` tells them.
#[derive(Clone)]
pub(crate) struct Values {
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

impl Values {
    fn new(code: Code, text: impl Into<String>) -> Values {
        Values {
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
}

/// A failure, as small as a status where there is none.
#[derive(Clone)]
pub(crate) struct Failure(Box<Values>);

impl std::ops::Deref for Failure {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.0
    }
}

impl<E> From<E> for Failure
where
    Values: From<E>,
{
    #[cold]
    fn from(error: E) -> Failure {
        Failure(Box::new(Values::from(error)))
    }
}

impl Failure {
    #[cold]
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure(Box::new(Values::new(code, text)))
    }

    /// An argument that the call does not take.
    #[cold]
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Code::Argument, text)
    }

    /// A number that is none of those that an argument may be.
    #[cold]
    pub(crate) fn value(what: &str, given: i64, range: &str) -> Failure {
        let text = format!("{what} is {given}, and may be {range}");
        Failure(Box::new(Values { given: given as u64, ..Values::new(Code::Argument, text) }))
    }

    /// Room that is too small.
    #[cold]
    pub(crate) fn room(given: usize, expected: usize) -> Failure {
        let text = format!("the room has {given} bytes, and {expected} are needed");
        let (given, expected) = (given as u64, expected as u64);
        Failure(Box::new(Values { given, expected, ..Values::new(Code::Length, text) }))
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

impl From<Error> for Values {
    fn from(error: Error) -> Values {
        let plain = Values::new(error.code(), error.to_string());
        match error {
            Error::PeerLost { peer }
            | Error::Timeout { peer, .. }
            | Error::Cancelled { peer }
            | Error::NotConnected { peer }
            | Error::HandlersDiffer { peer, .. }
            | Error::NoSuchHandler { peer, .. }
            | Error::Protocol { peer, .. }
            | Error::Team { peer, .. } => Values { peer, ..plain },
            Error::Fault { peer, memory, addr, len } => {
                Values { peer, memory: memory_number(memory), addr, len, ..plain }
            }
            Error::NotExposed { peer, addr, len, rights } => {
                Values { peer, addr, len, rights: rights_bits(rights), ..plain }
            }
            Error::Revoked { peer, offset, len, .. } => {
                Values { peer, memory: memory_number(Memory::Granted), addr: offset, len, ..plain }
            }
            Error::NotGranted { peer, rights, offset, len, .. } => {
                let (memory, rights) = (memory_number(Memory::Granted), rights_bits(rights));
                Values { peer, memory, rights, addr: offset, len, ..plain }
            }
            Error::LocalFault { addr, len } => Values { addr, len, ..plain },
            Error::NoSuchPeer { peer, size } => Values { peer, expected: size.into(), ..plain },
            Error::NoSuchRoot { root, size } => Values { given: root.into(), expected: size.into(), ..plain },
            Error::Length { given, expected, .. } => Values { given, expected, ..plain },
            Error::PayloadTooLong { given, most } => Values { given, expected: most, ..plain },
            Error::QueueFull { capacity } => Values { expected: capacity, ..plain },
            Error::PayloadsKept { most } | Error::HandlersFull { most } | Error::TeamsFull { most } => {
                Values { expected: most, ..plain }
            }
            Error::Unaligned { peer, offset, size } => {
                Values { peer, memory: memory_number(Memory::Heap), addr: offset, len: size, ..plain }
            }
            Error::Overlap { start, end } => Values { given: start, expected: end, ..plain },
            Error::Elsewhere { peer, expected } => {
                Values { peer, given: peer.into(), expected: expected.into(), ..plain }
            }
            Error::PartOfElement { given, each, .. } => Values { given, expected: each, ..plain },
            Error::Versions { peer, ours, theirs, .. } => {
                Values { peer, given: theirs.into(), expected: ours.into(), ..plain }
            }
            _ => plain,
        }
    }
}

/// Errors of which the text says all.
macro_rules! by_text {
    ($($error:ty),*) => {
        $(impl From<$error> for Values {
            fn from(error: $error) -> Values {
                Values::new(error.code(), error.to_string())
            }
        })*
    };
}

by_text!(ConfigError, ConnectError, HeapError, OpenError, PinError, rendezvous::RendezvousError);

impl From<DirectoryError> for Values {
    fn from(error: DirectoryError) -> Values {
        let plain = Values::new(error.code(), error.to_string());
        match error {
            DirectoryError::Name { len } | DirectoryError::Value { len } => {
                Values { given: len as u64, ..plain }
            }
            DirectoryError::Taken { by: peer, .. } | DirectoryError::Full { rank: peer, .. } => {
                Values { peer, ..plain }
            }
            _ => plain,
        }
    }
}

impl From<CloseError> for Values {
    fn from(error: CloseError) -> Values {
        let text = error.to_string();
        match error {
            CloseError::Refused(inner) | CloseError::Undone(inner) => Values { text, ..Values::from(inner) },
            other => Values::new(other.code(), text),
        }
    }
}

impl From<GrantError> for Values {
    fn from(error: GrantError) -> Values {
        let plain = Values::new(error.code(), error.to_string());
        match error {
            GrantError::StillInUse { peer, .. } => Values { peer, ..plain },
            _ => plain,
        }
    }
}

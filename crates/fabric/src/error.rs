//! Errors that show at once; those that show later are [`Failure`](crate::Failure)s.

use crate::errno::Errno;

/// Why a call did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The library, or the provider, refused.
    #[error("{call} failed: {errno}")]
    Call {
        /// The function of libfabric that failed, by the name it has in C.
        call: &'static str,
        /// The returned number.
        errno: Errno,
    },
    /// The provider does not have the function, or was not asked for what it belongs to.
    #[error("this provider has no {call}")]
    Absent {
        /// The function of libfabric, by the name it has in C.
        call: &'static str,
    },
    /// More bytes, or more pieces, than the provider takes.
    #[error("{call} takes at most {max}, not {len}")]
    TooMuch {
        /// The function of libfabric, by the name it has in C.
        call: &'static str,
        /// Bytes or pieces given.
        len: usize,
        /// Bytes or pieces that are allowed.
        max: usize,
    },
    /// No such peer: it was never added, or has been removed.
    #[error("peer {index} is not in the address vector")]
    NoPeer {
        /// Its number.
        index: u32,
    },
    /// No such registration: it has been closed.
    #[error("registration {index} is closed")]
    NoRegion {
        /// Its number.
        index: u32,
    },
    /// No such auxiliary endpoint: it has been closed.
    #[error("auxiliary endpoint {index} is closed")]
    NoAuxEndpoint {
        /// Its number.
        index: u32,
    },
    /// No more auxiliary endpoints: so many could not be closed when they should, and keep their connections
    /// and buffers until the process ends.
    #[error("{left} auxiliary endpoints could not be closed")]
    AuxEndpointsLeft {
        /// How many.
        left: usize,
    },
    /// An endpoint was left open, as its provider would kill the process. Nobody polls it, and it touches
    /// nothing.
    #[error("it is left open, as this provider cannot close an endpoint with reads under way")]
    LeftOpen,
    /// The provider made nothing of an address of a peer.
    #[error("{len} bytes are no address that this provider understands")]
    BadAddress {
        /// How many bytes were given.
        len: usize,
    },
    /// A text with a zero byte in it.
    #[error("{what} has a zero byte in it")]
    BadText {
        /// The purpose of the text.
        what: &'static str,
    },
    /// A completion arrived of an operation that nobody posted: the provider is broken, or its queue is
    /// shared.
    #[error("a completion of an operation that nobody posted")]
    Stray,
}

/// Turns what a function of the library returned into a result.
pub(crate) fn check(call: &'static str, returned: i64) -> Result<i64, Error> {
    if returned < 0 { Err(Error::Call { call, errno: Errno::returned(returned) }) } else { Ok(returned) }
}

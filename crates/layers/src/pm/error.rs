//! Why a call of PM does not do what it was called for.

/// An error that a call ends with: each is one of the `errno` values that PM's manual names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PmError {
    /// `ENOBUFS`: no send buffer is free, no message has come, or as many transfers are under way as may be.
    #[error("no buffer is free, or no message has come")]
    NoBuffers,
    /// `EINVAL`: a node, length, handle or other argument that cannot be.
    #[error("an argument is out of its range")]
    Invalid,
    /// `EBUSY`: the context is locked by an earlier call; of a test of completion, not yet.
    #[error("the context is locked, or what was started is not done")]
    Busy,
    /// `EIO`: nothing was received that could be released; a message was damaged; the system refused.
    #[error("nothing was received, or what was received is damaged")]
    Io,
    /// `EPIPE`: a peer is lost, or all have left.
    #[error("a peer is lost, or all peers have left")]
    Reset,
    /// `ENOSPC`: the budget of memory to be locked is used up.
    #[error("no more memory can be locked")]
    NoSpace,
    /// `ENOSYS`: nothing registers memory here, so that none can be locked, written or read.
    #[error("memory cannot be locked here")]
    NotOffered,
    /// `ENOENT`: that memory was not locked.
    #[error("that memory is not locked")]
    NotLocked,
}

/// PM's error for one of the transport's.
pub(super) fn of_transport(error: &standpipe::Error) -> PmError {
    use standpipe::Error;
    match error {
        Error::PeerLost { .. } | Error::Timeout { .. } => PmError::Reset,
        Error::Fault { .. } | Error::LocalFault { .. } | Error::NotExposed { .. } => PmError::Invalid,
        Error::PayloadsKept { .. } => PmError::NoBuffers,
        _ => PmError::Io,
    }
}

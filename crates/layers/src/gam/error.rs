//! The errors of calls of Generic Active Messages, and their reasons.

use standpipe::Rank;

/// Why a call was refused, or could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GamError {
    /// There is no such process.
    #[error("there is no process {dest}: the processes are 0 to {}", procs - 1)]
    NoSuchProcess {
        /// The number given.
        dest: i64,
        /// How many processes there are.
        procs: u32,
    },
    /// The address is of no function that all processes have there.
    #[error(
        "{function:#x} is no function that all processes have at that address; where nothing is to run, pass am_dummy"
    )]
    NotAFunction {
        /// The address.
        function: u64,
    },
    /// More bytes than one call moves, or a negative number of them.
    #[error("{bytes} bytes: this call moves 0 to {most}, and the program cuts what is longer")]
    Size {
        /// Bytes asked for.
        bytes: i64,
        /// The most.
        most: usize,
    },
    /// More words than a message has.
    #[error("{words} words: a message has at most 4")]
    Words {
        /// Words given.
        words: usize,
    },
    /// A handler may only reply.
    #[error("{call} in a handler: a request's handler may reply, once, and nothing else")]
    InHandler {
        /// The call.
        call: &'static str,
    },
    /// Only the handler of a request may reply, and only to its sender.
    #[error("a reply to {dest}: only the handler of a request from {dest} may send it")]
    NoReplyDue {
        /// Whom the reply was for.
        dest: i64,
    },
    /// The request has been replied to.
    #[error("a second reply to {dest}: a request is replied to once")]
    Replied {
        /// Whom the reply was for.
        dest: Rank,
    },
    /// A process is gone.
    #[error("process {peer} is lost")]
    Lost {
        /// Which.
        peer: Rank,
    },
    /// Another process has left (`am_disable`), and comes to no barrier.
    #[error("another process has left, and comes to no barrier")]
    Left,
    /// A transfer that an earlier call started, or a request that its receiver refused, has failed: what
    /// waits for its handler would wait for ever.
    #[error("what an earlier call has started has failed: {0}")]
    Failed(standpipe::Error),
    /// The library below says no.
    #[error("{0}")]
    Node(standpipe::Error),
}

impl GamError {
    /// Of what an earlier call has started.
    pub(super) fn late(error: standpipe::Error) -> GamError {
        match error {
            standpipe::Error::PeerLost { peer } => GamError::Lost { peer },
            error => GamError::Failed(error),
        }
    }
}

impl From<standpipe::Error> for GamError {
    fn from(error: standpipe::Error) -> GamError {
        match error {
            standpipe::Error::PeerLost { peer } => GamError::Lost { peer },
            error => GamError::Node(error),
        }
    }
}

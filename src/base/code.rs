//! One number and name for each kind of error, whichever type it comes in. They do not change when messages
//! and variants do: for faces in other languages, for logs and for tests.

use std::fmt;
use std::io::ErrorKind;

/// A row a code: its variant, number, name, the standard library's kind of error that is closest, and when it
/// is given.
macro_rules! codes {
    ($($code:ident = $number:literal, $name:literal, $kind:ident, $meaning:literal;)*) => {
        /// The kind of error. Numbers and names never change, and none is used again; new kinds come with new
        /// ones. The error type of every call has a method `code`, and becomes a [`std::io::Error`] of the
        /// kind that the code has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Code {
            $(#[doc = $meaning] $code = $number,)*
        }

        impl Code {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            /// Its name: lower case, with hyphens.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$code => $name),* }
            }

            /// When it is given.
            pub const fn meaning(self) -> &'static str {
                match self { $(Code::$code => $meaning),* }
            }

            /// The standard library's kind of the like.
            pub const fn io_kind(self) -> ErrorKind {
                match self { $(Code::$code => ErrorKind::$kind),* }
            }
        }
    };
}

codes! {
    PeerLost = 1, "peer-lost", ConnectionAborted, "The peer's process is gone, or has left.";
    Timeout = 2, "timeout", TimedOut, "The caller's time has passed; the same call may succeed later.";
    Closed = 3, "closed", BrokenPipe, "This node has closed.";
    Forked = 4, "forked", Unsupported, "This process is a child made by `fork`, the node its parent's.";
    InHandler = 5, "in-handler", Deadlock, "The call may wait, and a handler must not.";
    Fault = 6, "fault", InvalidInput, "The peer has no accessible memory there.";
    NotExposed = 7, "not-exposed", PermissionDenied, "The peer does not expose that memory, or not for that.";
    LocalFault = 8, "local-fault", InvalidInput, "The operation's own local memory is not accessible.";
    NoSuchPeer = 9, "no-such-peer", NotFound, "There is no peer of that number, or member of the team.";
    Length = 10, "length", InvalidInput, "Two lengths differ that must not, or one is more than there can be.";
    Unaligned = 11, "unaligned", InvalidInput, "An atomic's word does not lie at a multiple of its size.";
    Overlap = 12, "overlap", InvalidInput, "Blocks that are written lie over one another.";
    Elsewhere = 13, "elsewhere", InvalidInput, "Memory of another rank or node was named than it has to be.";
    NoReplyDue = 14, "no-reply-due", InvalidInput, "A handler replied twice, or to a reply.";
    HandlersDiffer = 15, "handlers-differ", InvalidData, "The peer has another handler of the same number.";
    Protocol = 16, "protocol", InvalidData, "The other side sent, or shares, what no correct one does.";
    TeamOver = 17, "team-over", ConnectionAborted, "The team's collectives are over.";
    Unreachable = 18, "unreachable", HostUnreachable, "No way to the peer could be used.";
    NoRoom = 19, "no-room", QuotaExceeded, "A table, heap or budget is full.";
    NoMemory = 20, "no-memory", OutOfMemory, "The system has no memory for it.";
    Setting = 21, "setting", InvalidInput, "A setting's value cannot be used.";
    Name = 22, "name", InvalidInput, "A name or value is not as long as one may be, or is no name.";
    Taken = 23, "taken", AlreadyExists, "Somebody else has that name or place.";
    Address = 24, "address", InvalidInput, "The bytes are no node's address, or one that cannot be called.";
    NotListening = 25, "not-listening", AddrNotAvailable, "The node listens nowhere, or cannot listen where it is to.";
    InJob = 26, "in-job", Unsupported, "A launched job's node has no peers from outside.";
    NoNetwork = 27, "no-network", NetworkDown, "There is no network to be had, or none that can do it.";
    Refused = 28, "refused", ConnectionRefused, "The other side does not want this process.";
    Join = 29, "join", NotConnected, "This process could not join its job.";
    NotFound = 30, "not-found", NotFound, "There is no such program or file.";
    Denied = 31, "denied", PermissionDenied, "The system, or another user's process, does not allow it.";
    System = 32, "system", Other, "The system refused something else.";
    Failed = 33, "failed", Other, "Something that had been started before has failed.";
    Cancelled = 34, "cancelled", Other, "The program gave the operation up.";
    NotConnected = 35, "not-connected", NotConnected, "There has been no contact with the peer, which a call that never waits needs.";
    NoSuchHandler = 36, "no-such-handler", NotFound, "The peer has no such handler.";
    NotOffered = 37, "not-offered", Unsupported, "The node has nothing of the kind.";
    NoSuchOperation = 38, "no-such-operation", Unsupported, "There is no such operation on values of that type.";
    Panicked = 39, "panicked", Other, "A function of the program's panicked while the library ran it.";
    Revoked = 40, "revoked", NotFound, "There is no such grant: it was revoked, or never was.";
    InUse = 41, "in-use", ResourceBusy, "Somebody still uses it.";
    Argument = 42, "argument", InvalidInput, "An argument is none that the call takes.";
    Interrupted = 43, "interrupted", Interrupted, "The program's own hook ended the wait.";
}

impl Code {
    /// Its number, from 1.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code of a number; `None`: this version knows none.
    pub fn from_number(number: u16) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.number() == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes errors of a type, which has a `code`, errors of the standard library's that hold them.
macro_rules! into_io_error {
    ($($error:ty),*) => {
        $(impl From<$error> for std::io::Error {
            /// An error of the kind that the [code](crate::Code) has. The error itself is inside it, for
            /// `get_ref` and `downcast`.
            fn from(error: $error) -> std::io::Error {
                std::io::Error::new(error.code().io_kind(), error)
            }
        })*
    };
}
pub(crate) use into_io_error;

/// The code of an error of the system's.
pub(crate) fn of_system(error: &std::io::Error) -> Code {
    match error.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::PermissionDenied => Code::Denied,
        ErrorKind::TimedOut => Code::Timeout,
        ErrorKind::OutOfMemory => Code::NoMemory,
        _ => Code::System,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is never to change: whoever breaks this breaks programs.
    const FROZEN: &str = "1 peer-lost 2 timeout 3 closed 4 forked 5 in-handler 6 fault 7 not-exposed 8 local-fault \
        9 no-such-peer 10 length 11 unaligned 12 overlap 13 elsewhere 14 no-reply-due 15 handlers-differ 16 protocol \
        17 team-over 18 unreachable 19 no-room 20 no-memory 21 setting 22 name 23 taken 24 address 25 not-listening \
        26 in-job 27 no-network 28 refused 29 join 30 not-found 31 denied 32 system 33 failed 34 cancelled \
        35 not-connected 36 no-such-handler 37 not-offered 38 no-such-operation 39 panicked 40 revoked 41 in-use \
        42 argument 43 interrupted";

    #[test]
    fn numbers_and_names_are_as_they_ever_were() {
        let all: Vec<String> = Code::ALL.iter().map(|code| format!("{} {code}", code.number())).collect();
        assert!(all.join(" ").starts_with(FROZEN), "{}", all.join(" "));
        assert!(Code::ALL.iter().all(|code| Code::from_number(code.number()) == Some(*code)));
        assert!(Code::from_number(0).is_none() && Code::from_number(u16::MAX).is_none());
    }

    #[test]
    fn an_error_goes_through_the_standard_librarys_and_back() {
        let error = crate::Error::PeerLost { peer: 3 };
        let io = std::io::Error::from(error.clone());
        assert_eq!((io.kind(), io.to_string()), (ErrorKind::ConnectionAborted, error.to_string()));
        assert_eq!(io.downcast::<crate::Error>().expect("it is inside"), error);
    }
}

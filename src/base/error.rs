//! The errors of operations: one enum for everything that talks to a peer, carrying peer, address and length.

use std::fmt;

use engine::collective::{ElementType, Reduction};
use engine::{AtomicOp, GrantId, MemId, OpError, Place, Rank, Rights, WordType};
use vm::SegmentError;

use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::until::{UnmetSignal, in_words};

/// The fault of a segment, and what to do about it where this process's limits do not allow it.
pub(crate) fn with_remedy(error: &SegmentError) -> String {
    match error {
        SegmentError::Lockable { .. } => format!(
            "{error}; allow more (ulimit -l), set STANDPIPE_HEAP or STANDPIPE_PEERS to less, or call mlockall later. \
             MCL_ONFAULT keeps memory free, but all that is mapped counts all the same (docs/FOOTPRINT.md)"
        ),
        error if error.is_for_size() => format!(
            "{error}; set STANDPIPE_HEAP to less, or allow this process more address space (ulimit -v) or more \
             mappings (sysctl vm.max_map_count)"
        ),
        error => error.to_string(),
    }
}

debug_is_display!(Error);

/// Which memory of a process an address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Memory {
    /// The process's heap; addresses are offsets in it.
    Heap,
    /// The process's whole address space; addresses are virtual addresses there.
    Private,
    /// The memory of one of its grants; addresses are offsets in that.
    Granted,
}

impl Memory {
    pub(crate) const fn of(mem: MemId) -> Memory {
        match mem {
            MemId::Space => Memory::Private,
            MemId::Heap | MemId::Control => Memory::Heap,
            MemId::Grant(_) => Memory::Granted,
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Memory::Heap => "heap",
            Memory::Private => "private",
            Memory::Granted => "granted",
        })
    }
}

/// Why an operation did not complete. `Debug` shows what `Display` does, so that an error that `main`
/// returns, or that ends `expect`, is readable.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer's process is gone, or has left the job.
    #[error("peer {peer} is lost")]
    PeerLost {
        /// The peer.
        peer: Rank,
    },
    /// The peer has no accessible memory there. The peer itself is unharmed.
    #[error("peer {peer} has no accessible {memory} memory at {addr:#x}, {len} bytes")]
    Fault {
        /// The peer.
        peer: Rank,
        /// Which of its memories.
        memory: Memory,
        /// Where the inaccessible part begins, as closely as the path taken can tell.
        addr: u64,
        /// Bytes of the transfer's part that begins there.
        len: u64,
    },
    /// The peer does not expose that private memory, or not with those rights. The peer is unharmed; parts of
    /// the transfer may have been done.
    #[error("peer {peer} does not expose its memory at {addr:#x}, {len} bytes, for {}", in_words_of(rights))]
    NotExposed {
        /// The peer.
        peer: Rank,
        /// Where the part of the transfer begins that was refused.
        addr: u64,
        /// Bytes of that part.
        len: u64,
        /// The access that was wanted.
        rights: Rights,
    },
    /// The peer has revoked that grant, or never had it: then the name was another node's, or made up. The
    /// part that was refused touched nothing of what lies there now; other parts may have been done before.
    #[error("peer {peer} has no grant {grant}, or has revoked it: {len} bytes at {offset:#x} of it")]
    Revoked {
        /// The peer.
        peer: Rank,
        /// The grant that was named.
        grant: GrantId,
        /// Where in it the part of the transfer begins that was refused.
        offset: u64,
        /// Bytes of that part.
        len: u64,
    },
    /// The peer has granted that memory to others than this process, or not with those rights. The peer is
    /// unharmed; parts of the transfer may have been done.
    #[error(
        "peer {peer} does not grant {grant} to this process for {}: {len} bytes at {offset:#x} of it",
        in_words_of(rights)
    )]
    NotGranted {
        /// The peer.
        peer: Rank,
        /// The grant.
        grant: GrantId,
        /// The access that was wanted.
        rights: Rights,
        /// Where in it the part of the transfer begins that was refused.
        offset: u64,
        /// Bytes of that part.
        len: u64,
    },
    /// The operation's own local memory is not accessible.
    #[error("no accessible local memory at {addr:#x}, {len} bytes")]
    LocalFault {
        /// The virtual address here.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// The deadline passed; the operation's buffers are touched no more.
    #[error("the deadline passed while waiting for peer {peer}{}", match unattended {
        true => ", which makes progress only in calls of its own: STANDPIPE_PROGRESS is off there",
        false => "",
    })]
    Timeout {
        /// The peer that was waited for.
        peer: Rank,
        /// Whether that peer makes progress only in calls of its own, as it runs under
        /// [`ProgressThread::Off`](crate::ProgressThread::Off).
        unattended: bool,
    },
    /// The program gave the operation up by [`Event::cancel`](crate::Event::cancel). It may have taken effect
    /// at the peer, in part or whole.
    #[error("the operation with peer {peer} was cancelled")]
    Cancelled {
        /// The peer that it was with.
        peer: Rank,
    },
    /// The deadline passed in a wait that is for no one peer.
    #[error("the deadline passed while waiting for {waited_for}")]
    WaitTimeout {
        /// The awaited condition, in words: all ranks at a barrier, for example.
        waited_for: &'static str,
    },
    /// The program's [hook](crate::interrupt_waits) ended the wait. An operation that was waited for has
    /// ended as at a deadline: its buffers are touched no more.
    #[error("{call}: the program's hook ended the wait")]
    Interrupted {
        /// The call.
        call: &'static str,
    },
    /// The job has no such rank; or, outside any, no node of that number has been met.
    #[error("there is no peer {peer}{}", match size {
        1 => " in a job of 1, and no node has come by that number".to_owned(),
        size => format!(" in a job of {size}"),
    })]
    NoSuchPeer {
        /// The rank asked for.
        peer: Rank,
        /// The job's size: 1 outside any.
        size: u32,
    },
    /// The team has no such member, which was named as the root of a collective.
    #[error("member {root} cannot be the root in a team of {size}")]
    NoSuchRoot {
        /// The root asked for.
        root: u32,
        /// The team's members.
        size: u32,
    },
    /// The deadline passed in a wait for signals.
    #[error("the deadline passed while {}", in_words(unmet))]
    SignalTimeout {
        /// The counters that had not come to what was waited for: of a wait for any or some, all; of one for
        /// all, the rest.
        unmet: Vec<UnmetSignal>,
    },
    /// The call may wait, and a handler must not.
    #[error("{call} may wait, and cannot be called in a handler")]
    InHandler {
        /// The call.
        call: &'static str,
    },
    /// A queue of completions has no place left: it was made for so many operations, and so many are under
    /// way or have not been taken. Nothing was started.
    #[error("the queue is full: {capacity} operations are under way in it, or have not been taken")]
    QueueFull {
        /// How many it can hold.
        capacity: u64,
    },
    /// The operating system refused something.
    #[error("the system gives no {what}: {why}")]
    System {
        /// The resource that was asked for.
        what: &'static str,
        /// The system's reason.
        why: String,
    },
    /// The node has closed, by [`Node::close`](crate::Node::close) of another handle.
    #[error("{call}: the node has closed")]
    Closed {
        /// The call.
        call: &'static str,
    },
    /// This process is a child made by `fork`, and the node its parent's. Rust's `Command` and all else that
    /// starts a program is fine; so is a node that the child opens itself.
    #[error("{call}: the node is that of the process that this one was forked from; open one of its own")]
    Forked {
        /// The call.
        call: &'static str,
    },
    /// The two ends of a transfer differ in length, or a list has another number of entries than it must
    /// have.
    #[error("{given} {what}, where {expected} were expected")]
    Length {
        /// The unit that was counted, and the argument or end where it was counted.
        what: &'static str,
        /// The number that was given.
        given: u64,
        /// The number that fits.
        expected: u64,
    },
    /// A message has more payload than one can have, or than the room has that it was to be copied to.
    #[error("a payload of {given} bytes, where {most} are the most")]
    PayloadTooLong {
        /// Bytes given.
        given: u64,
        /// Bytes, at most.
        most: u64,
    },
    /// As many payloads of messages are kept or prepared as may be at a time; the message is unharmed. A
    /// payload takes one place for each 8 KiB.
    #[error("no place for a payload: those that are kept or prepared have {most} places of 8 KiB at most")]
    PayloadsKept {
        /// How many places there are.
        most: u64,
    },
    /// There has been no contact with the peer, and to make it may take a wait, which the call never does.
    #[error("there has been no contact with peer {peer}: connect to it first")]
    NotConnected {
        /// The peer.
        peer: Rank,
    },
    /// An atomic's word does not lie at a multiple of its size: in a heap by its offset there, in a grant by
    /// its address at the owner.
    #[error("offset {offset:#x} of rank {peer}'s heap or grant is not aligned for an atomic of {size} bytes")]
    Unaligned {
        /// Whose memory it is.
        peer: Rank,
        /// The word's offset in the heap, or in the grant.
        offset: u64,
        /// The word's size.
        size: u64,
    },
    /// Blocks that a get fills lie over one another here.
    #[error("a block begins at {start} of the local memory, before another one's end at {end}")]
    Overlap {
        /// Where a block begins, in bytes from the start of the local memory.
        start: u64,
        /// Where one ends that begins no later.
        end: u64,
    },
    /// The call names memory of another rank than it has to be. A counter lies with its put's target, or here
    /// where it is waited for. The runs of an operation that has an event are of one peer. A long reply's
    /// place is at its requester. A payload is copied to this rank's own memory.
    #[error("memory of rank {peer} where that of rank {expected} was expected")]
    Elsewhere {
        /// The rank whose memory it is.
        peer: Rank,
        /// The rank whose memory it should be.
        expected: Rank,
    },
    /// The elements of a reduction have no such one: no floating-point number has bits to be combined, and
    /// nothing but the least and the greatest is known of numbers with an index. Nothing was sent.
    #[error("{of} has no reduction {reduction}")]
    NoReduction {
        /// The elements' type.
        of: ElementType,
        /// The operation.
        reduction: Reduction,
    },
    /// Bytes are no whole number of elements, or elements were said to be of no bytes.
    #[error("{what}: {given} are no whole elements of {each} bytes")]
    PartOfElement {
        /// The name of these bytes, in words.
        what: &'static str,
        /// How many there are.
        given: u64,
        /// Bytes of an element.
        each: u64,
    },
    /// Words of that type have no such atomic operation: floating-point numbers have none on bits. Nothing
    /// was changed or sent.
    #[error("a word of type {word} has no operation {op:?}")]
    NoSuchAtomic {
        /// The operation.
        op: AtomicOp,
        /// The word's type.
        word: WordType,
    },
    /// A handler replied twice, or to a reply.
    #[error("a message can be replied to once, and only if it is a request")]
    NoReplyDue,
    /// The peer has another handler of that number: two names have one hash, and one of them must be
    /// changed.
    #[error("peer {peer} has another handler of the number of {handler}: give one of them another name")]
    HandlersDiffer {
        /// The peer.
        peer: Rank,
        /// The handler's names where they are known here, else its number.
        handler: String,
    },
    /// The peer has no such handler: it was never registered there, or its client has gone.
    #[error("peer {peer} has no handler {handler}")]
    NoSuchHandler {
        /// The peer.
        peer: Rank,
        /// The handler's names where they are known here, else its number.
        handler: String,
    },
    /// A handler cannot be registered: its name is registered already, or one that has the same hash.
    #[error("the handler {name:?} cannot be registered: {}", taken(name, by))]
    HandlerTaken {
        /// Its names.
        name: String,
        /// The names of the handler that is registered.
        by: String,
    },
    /// No handler, and no team of all ranks, can have such a name.
    #[error("no handler or team can be named {name:?}: {why}")]
    BadName {
        /// Its names.
        name: String,
        /// Their fault.
        why: &'static str,
    },
    /// The node has as many named teams of all ranks as it may.
    #[error("a node has at most {most} named teams of all ranks")]
    TeamsFull {
        /// How many.
        most: u64,
    },
    /// The node has as many handlers as it may.
    #[error("a node has at most {most} handlers")]
    HandlersFull {
        /// How many.
        most: u64,
    },
    /// The peer sent, or shares, what no correct peer does.
    #[error("peer {peer} broke the protocol: {what}")]
    Protocol {
        /// The peer.
        peer: Rank,
        /// The fault.
        what: String,
    },
    /// The peer runs another version of the library, which says the same in other words. Nothing was sent.
    #[error(
        "peer {peer} has version {theirs} of {what}, and this process version {ours}: use the same version of the library at both"
    )]
    Versions {
        /// The peer.
        peer: Rank,
        /// The part that has versions, in words.
        what: &'static str,
        /// This process's.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The team's collectives are over: two members called different ones at the same place in their order,
    /// or with different roots, lengths, types or functions. Which of the two is wrong only the program can
    /// know.
    #[error("the team's collectives are over: {what}")]
    Differ {
        /// The two ranks.
        ranks: [Rank; 2],
        /// The calls of both, in words.
        what: String,
    },
    /// The team's collectives are over: a member gave one up, or has the team no more. Other teams are not
    /// concerned.
    #[error("the team's collectives are over: peer {peer} {what}")]
    Team {
        /// The rank that it lies with.
        peer: Rank,
        /// The peer's act, in words.
        what: &'static str,
    },
    /// A function of the program's panicked while the library ran it, on whichever thread made progress. The
    /// panic's own message is where the program's panics go. Other members hear that this one gave the
    /// collective up.
    #[error("{what} panicked")]
    Panicked {
        /// Which function, in words.
        what: &'static str,
    },
    /// The peer could not be reached at all.
    #[error("cannot connect to peer {peer}: {why}")]
    Connect {
        /// The peer.
        peer: Rank,
        /// Why not.
        why: String,
    },
}

impl Error {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            Error::PeerLost { .. } => Code::PeerLost,
            Error::Timeout { .. } | Error::WaitTimeout { .. } | Error::SignalTimeout { .. } => Code::Timeout,
            Error::Interrupted { .. } => Code::Interrupted,
            Error::Cancelled { .. } => Code::Cancelled,
            Error::QueueFull { .. } | Error::PayloadsKept { .. } => Code::NoRoom,
            Error::HandlersFull { .. } | Error::TeamsFull { .. } => Code::NoRoom,
            Error::NotConnected { .. } => Code::NotConnected,
            Error::System { .. } => Code::System,
            Error::Closed { .. } => Code::Closed,
            Error::Forked { .. } => Code::Forked,
            Error::InHandler { .. } => Code::InHandler,
            Error::Fault { .. } => Code::Fault,
            Error::NotExposed { .. } | Error::NotGranted { .. } => Code::NotExposed,
            Error::Revoked { .. } => Code::Revoked,
            Error::LocalFault { .. } => Code::LocalFault,
            Error::NoSuchPeer { .. } | Error::NoSuchRoot { .. } => Code::NoSuchPeer,
            Error::Length { .. } | Error::PayloadTooLong { .. } | Error::PartOfElement { .. } => Code::Length,
            Error::NoReduction { .. } => Code::NoSuchOperation,
            Error::Unaligned { .. } => Code::Unaligned,
            Error::Overlap { .. } => Code::Overlap,
            Error::Elsewhere { .. } => Code::Elsewhere,
            Error::NoSuchAtomic { .. } => Code::NoSuchOperation,
            Error::NoReplyDue => Code::NoReplyDue,
            Error::HandlersDiffer { .. } => Code::HandlersDiffer,
            Error::NoSuchHandler { .. } => Code::NoSuchHandler,
            Error::HandlerTaken { .. } => Code::Taken,
            Error::BadName { .. } => Code::Name,
            Error::Protocol { .. } | Error::Versions { .. } => Code::Protocol,
            Error::Differ { .. } | Error::Team { .. } => Code::TeamOver,
            Error::Panicked { .. } => Code::Panicked,
            Error::Connect { .. } => Code::Unreachable,
        }
    }
}

into_io_error!(Error);

fn in_words_of(rights: &Rights) -> &'static str {
    match rights {
        Rights::Read => "reading",
        Rights::Write => "writing",
        Rights::ReadWrite => "reading and writing",
    }
}

/// Why a name is taken.
fn taken(name: &str, by: &str) -> String {
    if name == by { "it is already".to_owned() } else { format!("{by:?} has the same hash") }
}

impl Error {
    /// An operation's failure as the engine and the transports see it; `NodeCore::error_of` knows more.
    pub(crate) fn of(error: OpError) -> Error {
        match error {
            OpError::PeerLost { peer } => Error::PeerLost { peer },
            OpError::Fault { peer, mem, addr, len } => {
                let (memory, addr) = (Memory::of(mem), Place::new(mem, addr).shown());
                Error::Fault { peer, memory, addr, len }
            }
            OpError::NotExposed { peer, direction, addr, len } => {
                Error::NotExposed { peer, addr, len, rights: direction.into() }
            }
            OpError::Revoked { peer, grant, offset, len } => Error::Revoked { peer, grant, offset, len },
            OpError::NotGranted { peer, grant, rights, offset, len } => {
                Error::NotGranted { peer, grant, rights, offset, len }
            }
            OpError::Unaligned { peer, offset, size, .. } => Error::Unaligned { peer, offset, size },
            OpError::NoSuchAtomic { op, word, .. } => Error::NoSuchAtomic { op, word },
            OpError::LocalFault { addr, len, .. } => Error::LocalFault { addr, len },
            OpError::Timeout { peer } => Error::Timeout { peer, unattended: false },
            OpError::Protocol { peer, what } => Error::Protocol { peer, what: what.to_owned() },
            OpError::Team { peer, what } => Error::Team { peer, what },
            OpError::Panicked => Error::Panicked { what: "the function of a reduction" },
            OpError::NoSuchHandler { peer, handler } => {
                Error::NoSuchHandler { peer, handler: format!("{handler:#010x}") }
            }
            OpError::Unsupported { peer, why } => {
                Error::Protocol { peer, what: format!("no way to do this: {why}") }
            }
        }
    }
}

impl Error {
    /// Whether a deadline has passed, whatever was waited for: a peer, a signal, or all ranks. The same call
    /// may succeed later.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Error::Timeout { .. } | Error::WaitTimeout { .. } | Error::SignalTimeout { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_main_returns_is_readable() {
        let error = Error::Fault { peer: 3, memory: Memory::Private, addr: 0x1000, len: 8 };
        assert_eq!(format!("{error:?}"), "peer 3 has no accessible private memory at 0x1000, 8 bytes");
    }
}

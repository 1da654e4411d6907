//! The errors that end a BIP program: the layer detects faults, and recovers from none.

use standpipe::Rank;
use thiserror::Error;

/// Why a call did not do what it was to do. Each text names the values, and the remedy where there is one.
///
/// At the C interface every one of them ends the process, as BIP recovers from nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BipError {
    /// There is no such process to send to.
    #[error("there is no node {node} in a job of {size}")]
    NoSuchNode {
        /// The number given.
        node: i32,
        /// The job's size.
        size: u32,
    },
    /// BIP sends nothing to oneself.
    #[error("node {node} cannot send to itself")]
    ToItself {
        /// This process's number.
        node: u32,
    },
    /// Tags are 0 and more.
    #[error("there is no tag {tag}: tags are 0 and more")]
    BadTag {
        /// The tag given.
        tag: i32,
    },
    /// As many tags as there may be have been used.
    #[error("tag {tag} is one too many: a process uses {most} different tags at most")]
    TooManyTags {
        /// The tag that found no place.
        tag: u32,
        /// How many there may be.
        most: usize,
    },
    /// Lengths are 0 and more.
    #[error("a message cannot have {words} words")]
    BadLength {
        /// The length given.
        words: i32,
    },
    /// A pointer is NULL that must not be.
    #[error("the {what} is NULL")]
    Null {
        /// Which one.
        what: &'static str,
    },
    /// Buffers that cannot be provided.
    #[error("tag {tag} cannot have {nbufs} buffers of {size} words: give it 1 to {most}, of 1 word or more")]
    BadBuffers {
        /// The tag.
        tag: i32,
        /// How many.
        nbufs: i32,
        /// The words of each.
        size: i32,
        /// How many there may be.
        most: u32,
    },
    /// A send has not ended, and there is one at a time.
    #[error("send {id} has not ended: wait for it by bip_swait first")]
    SendPending {
        /// That send.
        id: i32,
    },
    /// A receive for the tag has not ended, or its length was not asked for; there is one at a time.
    #[error("a receive for tag {tag} is pending: wait for it by bip_rwait first")]
    ReceivePending {
        /// The tag.
        tag: u32,
    },
    /// No send has that number.
    #[error("there is no send {id}")]
    NoSuchSend {
        /// The number given.
        id: i32,
    },
    /// No receive has that number, or another one has been posted for its tag since.
    #[error("there is no receive {id}")]
    NoSuchReceive {
        /// The number given.
        id: i32,
    },
    /// The message is longer than the receive has room for.
    #[error(
        "a message of {words} words of node {from} came for tag {tag}, where at most {most} were expected"
    )]
    TooLong {
        /// The tag.
        tag: u32,
        /// The sender.
        from: Rank,
        /// Its length.
        words: u32,
        /// The room.
        most: u32,
    },
    /// The receive that a long message came for has less room than the message is long.
    #[error("node {node} has room for {most} words where {words} were sent with tag {tag}")]
    NoRoom {
        /// The receiver.
        node: Rank,
        /// The tag.
        tag: u32,
        /// The message's length.
        words: u32,
        /// The receiver's room.
        most: u32,
    },
    /// The address that a long message was sent from is none where this process has memory to read. The
    /// receiver has found it out.
    #[error(
        "node {node} found no {words} words to read at {addr:#x}, from where they were sent with tag {tag}"
    )]
    NoSource {
        /// The receiver.
        node: Rank,
        /// The tag.
        tag: u32,
        /// Where the message was to lie.
        addr: u64,
        /// The message's length.
        words: u32,
    },
    /// No message is being read in place.
    #[error("no message of tag {tag} is being read in place")]
    NotHeld {
        /// The tag.
        tag: u32,
    },
    /// A message is being read in place, one at a time for each tag.
    #[error("a message of tag {tag} is being read in place: free it by bip_tfreemsg first")]
    Held {
        /// The tag.
        tag: u32,
    },
    /// There is no memory for a long message that is to be read in place.
    #[error("there is no memory for the {words} words of a message of tag {tag}")]
    NoMemory {
        /// The tag.
        tag: u32,
        /// The message's length.
        words: u32,
    },
    /// The sender gave an address where it has no memory: the receiver, who moves the bytes, finds out.
    #[error("node {from} sent a message of tag {tag} from {addr:#x}, where it has no {words} words to read")]
    BadSource {
        /// The tag.
        tag: u32,
        /// The sender.
        from: Rank,
        /// Where its message was to lie.
        addr: u64,
        /// The message's length.
        words: u32,
    },
    /// A process of the job is gone.
    #[error("node {node} is lost")]
    Lost {
        /// Its number.
        node: Rank,
    },
    /// Nobody is there who could send: the job has one process, or all others have ended well.
    #[error("no other node is there, or all have ended: nobody sends a message for tag {tag}")]
    Alone {
        /// The tag.
        tag: u32,
    },
    /// The receiver's program has ended well, and receives nothing more.
    #[error("node {node} has ended, and receives nothing more")]
    Ended {
        /// Its number.
        node: Rank,
    },
    /// What carries the messages refused something.
    #[error("{0}")]
    Node(standpipe::Error),
}

impl From<standpipe::Error> for BipError {
    fn from(error: standpipe::Error) -> BipError {
        match error {
            standpipe::Error::PeerLost { peer } => BipError::Lost { node: peer },
            other => BipError::Node(other),
        }
    }
}

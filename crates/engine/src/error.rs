//! How an operation fails.

use crate::{AtomicOp, Direction, GrantId, MemId, Rank, Rights, WordType};

/// Why an operation did not complete. Variants name the peer where it lies with one, and the memory where
/// memory was at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The peer's process is gone, or left the job: nothing sent to it will be answered.
    #[error("peer {peer} is lost")]
    PeerLost {
        /// The peer.
        peer: Rank,
    },
    /// The peer has no memory at that address, or not with the rights that the operation needs.
    #[error("peer {peer} has no accessible memory at {mem:?} {addr:#x}, {len} bytes")]
    Fault {
        /// The peer.
        peer: Rank,
        /// Which of its memories.
        mem: MemId,
        /// The offset in that memory where the inaccessible part begins, as closely as the path taken can
        /// tell.
        addr: u64,
        /// Bytes of the part of the transfer that begins there.
        len: u64,
    },
    /// The peer lets nobody do that with its private memory there. It is unharmed.
    #[error("peer {peer} exposes no memory to a {direction:?} at {addr:#x}, {len} bytes")]
    NotExposed {
        /// The peer.
        peer: Rank,
        /// The wanted access.
        direction: Direction,
        /// The address of the part of the transfer that was refused.
        addr: u64,
        /// Its bytes.
        len: u64,
    },
    /// The peer has no such grant any more, or never had it. The memory that it named is untouched.
    #[error("peer {peer} has no grant {grant}, or has revoked it: {len} bytes from {offset:#x} on")]
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
    /// The peer's grant is for others, or for other accesses. Its memory is unharmed.
    #[error("peer {peer} does not grant {grant} for {rights:?}: {len} bytes from {offset:#x} on")]
    NotGranted {
        /// The peer.
        peer: Rank,
        /// The grant.
        grant: GrantId,
        /// The rights that the access needs.
        rights: Rights,
        /// Where in it the part of the transfer begins that was refused.
        offset: u64,
        /// Bytes of that part.
        len: u64,
    },
    /// A word in a grant does not lie at a multiple of its size in the owner's memory. It is unharmed.
    #[error("peer {peer} has no aligned word of {size} bytes at {offset:#x} of grant {grant}")]
    Unaligned {
        /// The peer.
        peer: Rank,
        /// The grant.
        grant: GrantId,
        /// Where in it the word begins.
        offset: u64,
        /// The word's bytes.
        size: u64,
    },
    /// This process has no memory at the local address of the operation, or not with the rights that it
    /// needs.
    #[error("no accessible local memory at {mem:?} {addr:#x}, {len} bytes")]
    LocalFault {
        /// Which of this process's memories.
        mem: MemId,
        /// The offset in that memory.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// The deadline passed. The operation's buffers will not be touched any more.
    #[error("the deadline passed with peer {peer} still to answer")]
    Timeout {
        /// The peer that was waited for.
        peer: Rank,
    },
    /// The peer answered with something that no correct peer sends.
    #[error("peer {peer} broke the protocol: {what}")]
    Protocol {
        /// The peer.
        peer: Rank,
        /// The fault.
        what: &'static str,
    },
    /// A collective of a team cannot end, nor can later ones of that team.
    #[error("the team's collectives are over: peer {peer} {what}")]
    Team {
        /// The peer that it lies with.
        peer: Rank,
        /// The peer's act.
        what: &'static str,
    },
    /// A function of the program's, which combines what a collective reduces, panicked in this process.
    #[error("the function of a reduction panicked")]
    Panicked,
    /// The peer has no such handler.
    #[error("peer {peer} has no handler of the number {handler:#010x}")]
    NoSuchHandler {
        /// The peer.
        peer: Rank,
        /// The handler's number.
        handler: u32,
    },
    /// Words of that type have no such operation. Nothing was sent to the peer.
    #[error("a word of type {word} at peer {peer} has no operation {op:?}")]
    NoSuchAtomic {
        /// The peer.
        peer: Rank,
        /// The operation.
        op: AtomicOp,
        /// The word's type.
        word: WordType,
    },
    /// The transport has no way to do this with that peer.
    #[error("no way to do this with peer {peer}: {why}")]
    Unsupported {
        /// The peer.
        peer: Rank,
        /// Why not.
        why: crate::PathReason,
    },
}

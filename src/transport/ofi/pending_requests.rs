//! Requests to peers, and what is known by their answers.

use engine::{Atomic, Key, OpId, Place, Rank};
use fabric::RegionId;

/// A request to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Atomic {
        op: OpId,
        word: Place,
        atomic: Atomic,
    },
    Heap,
    /// That it opens an endpoint for this process's long puts.
    Landing,
    /// That it closes that.
    LandingClosed,
}

/// Its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// An atomic's old word; or a heap's live bytes, key and first byte; or the bytes of an endpoint's
    /// address, and how many they are.
    Done([u64; 5]),
    /// There is no such word; or the heap is not to be reached; or there is no such endpoint.
    Fault,
}

/// The requests that a peer has been asked, or is to be.
pub(super) struct PendingRequest {
    pub(super) wanted: Wanted,
    pub(super) peer: Rank,
    /// It can be answered: the peer has been asked.
    pub(super) sent: bool,
}

/// A peer's heap, as it may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) key: Key,
    /// Its first byte, and how many of its bytes were live when this was said.
    pub(super) base: u64,
    pub(super) live: u64,
}

/// The known state of a peer's heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    #[default]
    Nothing,
    Here(Reach),
    /// Its owner does not let it be reached.
    Refused,
}

/// A peer's heap and this process's, between the two.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    pub(super) known: Known,
    /// The peer has been asked, and has not answered.
    pub(super) asked: bool,
    /// The registrations of this process's heap whose keys the peer has, each longer than the one before.
    pub(super) given: Vec<Given>,
}

/// A registration of the first bytes of this process's heap.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) id: RegionId,
    pub(super) key: u64,
    pub(super) len: u64,
}

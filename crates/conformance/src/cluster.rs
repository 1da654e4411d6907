//! What a transport's author implements to run the suite.

use engine::{Counters, Nanos, Node, Place, Rank, Transport};

/// Some nodes of one job, in one process, driven by one thread.
///
/// The suite makes a cluster for each case, polls its nodes in turn, and calls [`Cluster::step`] once a
/// round. A case allocates at most 8 MiB a rank.
pub trait Cluster {
    /// What the nodes run over.
    type Transport: Transport;

    /// Ranks in the job.
    fn size(&self) -> u32;

    /// The node of `rank`. It knows [`HANDLERS`] handlers.
    fn node(&mut self, rank: Rank) -> &mut Node<Self::Transport>;

    /// Allocates `len` bytes of `rank`'s private memory ([`engine::MemId::Space`]), zeroed, aligned to 8
    /// bytes or more. They stay until the cluster goes.
    fn private(&mut self, rank: Rank, len: usize) -> Place;

    /// Allocates `len` bytes of `rank`'s heap ([`engine::MemId::Heap`]), zeroed, aligned to 8 bytes or more.
    /// They stay until the cluster goes.
    fn heap(&mut self, rank: Rank, len: usize) -> Place;

    /// A page or more of `rank`'s private address space that cannot be read or written. `None`: the platform
    /// has no such thing, and what needs it is skipped.
    fn inaccessible(&mut self, rank: Rank) -> Option<Place> {
        let _ = rank;
        None
    }

    /// A page or more of `rank`'s private memory that can be read but not written. `None`: as above.
    fn read_only(&mut self, rank: Rank) -> Option<Place> {
        let _ = rank;
        None
    }

    /// Reads `rank`'s memory, behind the transport's back.
    ///
    /// # Panics
    /// When the place is not wholly inside memory that the cluster allocated.
    fn peek(&mut self, rank: Rank, from: Place, into: &mut [u8]);

    /// Writes `rank`'s memory, behind the transport's back.
    ///
    /// # Panics
    /// When the place is not wholly inside memory that the cluster allocated.
    fn poke(&mut self, rank: Rank, to: Place, from: &[u8]);

    /// Lets time pass, and whatever else happens by itself. What is under way arrives within
    /// [`ARRIVAL_STEPS`] calls, if its receiver is polled and has room.
    fn step(&mut self) {}

    /// Ends `rank` without a word, as a crash does. The suite polls it no more; the other nodes are told
    /// within [`ARRIVAL_STEPS`] calls of `step` ([`Node::lose`]).
    fn kill(&mut self, rank: Rank);

    /// Makes another process of `rank`, as if it had crashed and been started again: its memory is gone, and
    /// [`Cluster::node`] is a node without a past. The other nodes are told within [`ARRIVAL_STEPS`] calls of
    /// `step`, at the latest by what the new one sends them ([`engine::Event::Returned`]). `false`: ranks do
    /// not return here, and what needs that is skipped.
    fn restart(&mut self, rank: Rank) -> bool {
        let _ = rank;
        false
    }

    /// The time now, on the clock that the nodes' deadlines count in.
    fn now(&self) -> Nanos;

    /// All that `rank` has counted: the node's counters, and those that its transport keeps beside them.
    fn counters(&mut self, rank: Rank) -> Counters {
        self.node(rank).counters().clone()
    }
}

/// Active-Message handlers that every node of a cluster has.
pub const HANDLERS: u32 = 3;

/// Calls of [`Cluster::step`] after which nothing is under way any more that could have arrived.
pub const ARRIVAL_STEPS: usize = 128;

//! The common ground of all parts: the rank, the transport, the counters, and which peers are gone.
//!
//! Each call of a part is lent it, and for so long only: it belongs to no part, and decides nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::{Counters, Rank, Transport};

/// The node lends it to every part.
pub(in crate::node) struct Core<T> {
    pub(in crate::node) rank: Rank,
    /// Processes of the job: peers may have numbers from here on, and are no part of it.
    pub(in crate::node) size: u32,
    pub(in crate::node) transport: T,
    pub(in crate::node) counters: Counters,
    /// As many bytes as a message's payload has at most. Its contents belong to the call under way.
    pub(in crate::node) scratch: Vec<u8>,
    lost: BTreeMap<Rank, Lost>,
    /// How many processes of its rank came before a peer's, where any did.
    incarnations: BTreeMap<Rank, u32>,
    /// Peers that the loop is to give up.
    to_lose: VecDeque<Rank>,
}

/// The fate of a peer that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// It is gone: nothing is sent to it.
    Gone,
    /// Another process has its rank, and is answered. The program has not been told: it starts nothing there.
    Replaced,
}

impl<T: Transport> Core<T> {
    /// # Panics
    /// When `rank` is not below `size`.
    pub(in crate::node) fn new(rank: Rank, size: u32, transport: T) -> Core<T> {
        assert!(rank < size, "rank {rank} is not below the job's size {size}");
        let scratch = vec![0; transport.payload_max()];
        let (lost, incarnations) = (BTreeMap::new(), BTreeMap::new());
        let (counters, to_lose) = (Counters::default(), VecDeque::new());
        Core { rank, size, transport, counters, scratch, lost, incarnations, to_lose }
    }

    /// Whether any peer is lost.
    #[inline(always)]
    pub(in crate::node) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether the peer is known to be gone, or the program has not been told that another process has its
    /// rank.
    #[inline]
    pub(in crate::node) fn is_lost(&self, peer: Rank) -> bool {
        self.lost.contains_key(&peer)
    }

    /// Whether the process that the peer was is gone, and none has taken its place.
    #[inline]
    pub(in crate::node) fn is_gone(&self, peer: Rank) -> bool {
        self.lost.get(&peer) == Some(&Lost::Gone)
    }

    /// Whether the peer is one of those that meet at the barrier. Others are numbered from the job's size on.
    #[inline]
    pub(in crate::node) fn is_of_job(&self, peer: Rank) -> bool {
        peer < self.size
    }

    /// The lost peers, in order.
    pub(in crate::node) fn lost_peers(&self) -> impl Iterator<Item = Rank> {
        self.lost.keys().copied()
    }

    /// How many processes had the peer's rank before the one that has it, as far as this node has heard.
    pub(in crate::node) fn incarnation_of(&self, peer: Rank) -> u32 {
        self.incarnations.get(&peer).copied().unwrap_or(0)
    }

    /// A peer has broken the rules: the loop gives it up.
    #[cold]
    pub(in crate::node) fn on_garbled(&mut self, peer: Rank) {
        self.counters.malformed += 1;
        self.lose_soon(peer);
    }

    /// The loop gives this peer up.
    #[cold]
    pub(in crate::node) fn lose_soon(&mut self, peer: Rank) {
        self.to_lose.push_back(peer);
    }

    /// The next peer that the loop is to give up.
    #[inline]
    pub(in crate::node) fn next_to_lose(&mut self) -> Option<Rank> {
        self.to_lose.pop_front()
    }

    /// Whether there is one.
    pub(in crate::node) fn is_to_lose(&self) -> bool {
        !self.to_lose.is_empty()
    }

    /// A peer is gone. Returns whether that is news.
    pub(in crate::node) fn lose(&mut self, peer: Rank) -> bool {
        self.lost.insert(peer, Lost::Gone) != Some(Lost::Gone)
    }

    /// Another process has a lost peer's rank, and is answered.
    pub(in crate::node) fn replace(&mut self, peer: Rank, incarnation: u32) {
        assert!(incarnation > self.incarnation_of(peer), "rank {peer} returns as a later process");
        self.incarnations.insert(peer, incarnation);
        self.lost.insert(peer, Lost::Replaced);
    }

    /// A peer whose rank another process has, which the program is told of now.
    pub(in crate::node) fn take_replaced(&mut self) -> Option<Rank> {
        let (&peer, _) = self.lost.iter().find(|(_, lost)| **lost == Lost::Replaced)?;
        self.lost.remove(&peer);
        Some(peer)
    }
}

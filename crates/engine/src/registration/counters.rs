//! Counters of registration.

use std::ops::AddAssign;

use crate::Rank;

/// Counts of all that happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Runs that were wanted and registered already.
    pub hits: u64,
    /// Of these, victims.
    pub rescues: u64,
    /// Runs that were registered.
    pub registrations: u64,
    /// Of these, such of memory that may change untold, for one operation each: it could not be watched, as
    /// another copy of the library in this process watches it.
    pub once: u64,
    /// Victims that were deregistered to make room.
    pub evictions: u64,
    /// Requests for which there was no room.
    pub refusals: u64,
    /// Registrations that failed.
    pub failures: u64,
    /// Registrations that the system would not take back when it was asked first: they stay pinned, and their
    /// keys reach them, until it does.
    pub stuck: u64,
    /// Runs whose memory changed.
    pub invalidations: u64,
    /// Times that peers were asked to give back what they did not need.
    pub recalls: u64,
    /// Bytes that are registered now.
    pub pinned: u64,
    /// The most that ever were.
    pub pinned_peak: u64,
    /// M + MAXVICTIM, or what the system has allowed of it.
    pub budget: u64,
}

/// Counts between this process and one peer: as the one that uses the peer's memory, and as the one whose
/// memory the peer uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Pieces of transfers whose memory at the peer was held.
    pub hits: u64,
    /// Pieces whose memory was not held: they were asked for, or went by message.
    pub misses: u64,
    /// Messages that asked the peer.
    pub moves: u64,
    /// Bytes of the peer's memory that this process may use now.
    pub held: u64,
    /// Messages by which the peer asked.
    pub served: u64,
    /// Times that the peer was asked to give back what it did not need.
    pub recalls: u64,
    /// Bytes of this process's memory that the peer may use now.
    pub given: u64,
}

impl AddAssign for PeerCounters {
    fn add_assign(&mut self, other: PeerCounters) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.moves += other.moves;
        self.held += other.held;
        self.served += other.served;
        self.recalls += other.recalls;
        self.given += other.given;
    }
}

/// Counts of registration, peer by peer. All together it is what the node's own counters say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByPeer {
    /// Every peer of which something was asked, or that asked, in order. Another process of the same rank,
    /// after a loss, is another peer.
    pub peers: Vec<(Rank, PeerCounters)>,
    /// Peers that are gone, together: a node keeps nothing of each.
    pub gone: PeerCounters,
}

impl ByPeer {
    /// All peers together, those that are gone included.
    pub fn sum(&self) -> PeerCounters {
        let mut sum = self.gone;
        self.peers.iter().for_each(|(_, counters)| sum += *counters);
        sum
    }
}

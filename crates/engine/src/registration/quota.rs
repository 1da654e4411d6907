//! How the memory that peers may hold is shared out among them, and who holds how much.

use std::cell::Cell;

use super::{PeerCounters, Quota, Settings};
use crate::Rank;

/// The bytes that one peer holds, and its counts at this end.
#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    held: u64,
    /// Bytes that it has been asked to give back and has not.
    recalled: u64,
    served: u64,
    recalls: u64,
}

impl Lease {
    fn counters(&self) -> PeerCounters {
        let Lease { held: given, served, recalls, .. } = *self;
        PeerCounters { served, recalls, given, ..PeerCounters::default() }
    }
}

/// What peers hold. One that never asked for anything takes no room here.
#[derive(Debug)]
pub(crate) struct Leases {
    quota: Quota,
    /// M.
    peers_bytes: u64,
    /// The other ranks of the job.
    others: u64,
    /// By rank.
    by_peer: Vec<(Rank, Lease)>,
    /// The place of the one that was looked for last: one message of a peer asks several times.
    last: Cell<usize>,
    /// Of what is held, the part that is guaranteed.
    kept: u64,
    /// Counts of peers that are gone.
    gone: PeerCounters,
}

impl Leases {
    pub(crate) fn new(settings: &Settings, ranks: u32) -> Leases {
        Leases {
            quota: settings.quota,
            peers_bytes: settings.peers_bytes,
            others: u64::from(ranks.saturating_sub(1).max(1)),
            by_peer: Vec::new(),
            last: Cell::new(0),
            kept: 0,
            gone: PeerCounters::default(),
        }
    }

    /// Ranks of the job.
    pub(crate) fn ranks(&self) -> usize {
        self.others as usize + 1
    }

    /// Bytes that `peer` may hold at most.
    pub(crate) fn share(&self, peer: Rank) -> u64 {
        match self.quota {
            Quota::Even => self.peers_bytes / self.others,
            // Guaranteed bytes that others hold are theirs; those that they do not use may be lent.
            Quota::Leases { .. } => {
                self.peers_bytes.saturating_sub(self.kept - self.held(peer).min(self.guaranteed()))
            }
        }
    }

    pub(crate) fn held(&self, peer: Rank) -> u64 {
        self.find(peer).map_or(0, |at| self.by_peer[at].1.held)
    }

    pub(crate) fn add(&mut self, peer: Rank, bytes: u64) {
        self.set(peer, self.held(peer) + bytes);
    }

    pub(crate) fn take(&mut self, peer: Rank, bytes: u64) {
        self.set(peer, self.held(peer) - bytes);
    }

    /// The peer that is to give back, and how much, so that `peer` may have `bytes` more: the one that holds
    /// most beyond what is guaranteed to it. Nobody is asked twice for the same.
    pub(crate) fn recall_for(&mut self, peer: Rank, bytes: u64) -> Option<(Rank, u64)> {
        let guaranteed = match self.quota {
            Quota::Even => return None,
            Quota::Leases { guaranteed } => guaranteed,
        };
        let spare = |lease: &Lease| lease.held.saturating_sub(lease.recalled).saturating_sub(guaranteed);
        let others = self.by_peer.iter_mut().filter(|(rank, lease)| *rank != peer && spare(lease) > 0);
        let (rank, lease) = others.max_by_key(|(_, lease)| spare(lease))?;
        let asked = bytes.min(spare(lease));
        lease.recalled += asked;
        lease.recalls += 1;
        Some((*rank, asked))
    }

    /// Bytes that `peer` has been asked to give back and has not.
    pub(crate) fn recalled(&self, peer: Rank) -> u64 {
        self.find(peer).map_or(0, |at| self.by_peer[at].1.recalled)
    }

    /// A peer has given back what it could of what it was asked for. For the rest it may be asked again.
    pub(crate) fn recall_answered(&mut self, peer: Rank) {
        if let Ok(at) = self.find(peer) {
            self.by_peer[at].1.recalled = 0;
        }
    }

    /// Counts a message by which `peer` asks.
    pub(crate) fn count_served(&mut self, peer: Rank) {
        let at = self.find_or_make(peer);
        self.by_peer[at].1.served += 1;
    }

    /// Counts at this end of each peer that is there, and of those that are gone together.
    pub(crate) fn counters(&self) -> (impl Iterator<Item = (Rank, PeerCounters)>, PeerCounters) {
        (self.by_peer.iter().map(|(rank, lease)| (*rank, lease.counters())), self.gone)
    }

    /// Forgets a peer that is gone, and from which everything has been taken back.
    pub(crate) fn drop_peer(&mut self, peer: Rank) {
        let Ok(at) = self.find(peer) else { return };
        let (_, lease) = self.by_peer.remove(at);
        debug_assert_eq!(lease.held, 0, "taken back before");
        self.gone += lease.counters();
    }

    /// The bytes that every peer holds.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Rank, u64)> {
        self.by_peer.iter().map(|(rank, lease)| (*rank, lease.held))
    }

    fn set(&mut self, peer: Rank, held: u64) {
        let guaranteed = self.guaranteed();
        let at = self.find_or_make(peer);
        let lease = &mut self.by_peer[at].1;
        self.kept = self.kept - lease.held.min(guaranteed) + held.min(guaranteed);
        lease.recalled = lease.recalled.saturating_sub(lease.held.saturating_sub(held));
        lease.held = held;
        if lease.counters() == PeerCounters::default() {
            self.by_peer.remove(at);
        }
    }

    /// The place of a peer's lease, or where one would be.
    #[inline]
    fn find(&self, peer: Rank) -> Result<usize, usize> {
        let last = self.last.get();
        if self.by_peer.get(last).is_some_and(|(rank, _)| *rank == peer) {
            return Ok(last);
        }
        let found = self.by_peer.binary_search_by_key(&peer, |(rank, _)| *rank);
        self.last.set(found.unwrap_or_else(|at| at));
        found
    }

    fn find_or_make(&mut self, peer: Rank) -> usize {
        self.find(peer).unwrap_or_else(|at| {
            self.by_peer.insert(at, (peer, Lease::default()));
            at
        })
    }

    fn guaranteed(&self) -> u64 {
        match self.quota {
            Quota::Even => 0,
            Quota::Leases { guaranteed } => guaranteed,
        }
    }
}

//! Counts of grants and refusals, peer by peer.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::Rank;

/// Counts of one peer, as the one that reaches this process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantPeerCounters {
    /// Accesses by message that this process refused.
    pub denied: u64,
    /// Waits for a grant's memory that found the peer at it.
    pub waited: u64,
    /// Of these, waits that ended while the peer was still at it.
    pub in_use: u64,
}

impl AddAssign for GrantPeerCounters {
    fn add_assign(&mut self, other: GrantPeerCounters) {
        self.denied += other.denied;
        self.waited += other.waited;
        self.in_use += other.in_use;
    }
}

/// Counts of grants and refusals, peer by peer. All together it is what the node's own counters say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantsByPeer {
    /// Every peer that was refused anything, or waited for, in order.
    pub peers: Vec<(Rank, GrantPeerCounters)>,
    /// Peers that are gone, together: a node keeps nothing of each.
    pub gone: GrantPeerCounters,
}

/// The counts, while peers come and go.
#[derive(Debug, Default)]
pub(crate) struct GrantTallies {
    peers: BTreeMap<Rank, GrantPeerCounters>,
    gone: GrantPeerCounters,
}

impl GrantTallies {
    /// The counts of a peer; of one that is gone, those of all such.
    pub(crate) fn of(&mut self, peer: Rank, is_gone: bool) -> &mut GrantPeerCounters {
        if is_gone { &mut self.gone } else { self.peers.entry(peer).or_default() }
    }

    /// Adds the counts of a peer that is gone to those of all such.
    pub(crate) fn forget(&mut self, peer: Rank) {
        self.gone += self.peers.remove(&peer).unwrap_or_default();
    }

    pub(crate) fn by_peer(&self) -> GrantsByPeer {
        GrantsByPeer {
            peers: self.peers.iter().map(|(peer, counters)| (*peer, *counters)).collect(),
            gone: self.gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_peers_that_are_gone_stay_and_nothing_else_of_them() {
        let mut tallies = GrantTallies::default();
        tallies.of(3, false).denied += 2;
        tallies.of(1, false).waited += 1;
        assert_eq!(tallies.by_peer().peers.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [1, 3]);
        tallies.forget(3);
        tallies.forget(2);
        *tallies.of(3, true) += GrantPeerCounters { waited: 5, in_use: 4, denied: 0 };
        let GrantsByPeer { peers, gone } = tallies.by_peer();
        assert_eq!(peers, [(1, GrantPeerCounters { waited: 1, ..GrantPeerCounters::default() })]);
        assert_eq!(gone, GrantPeerCounters { denied: 2, waited: 5, in_use: 4 });
    }
}

//! Operations that were given up: their bytes may come until they settle, and never after.

use engine::{OpError, Rank};

use super::given_up::GivenUp;
use super::run::{Flying, Run, Work};
use super::shadow::Words;

impl Run {
    /// Notes that a put has failed: what it writes may be there, or come yet.
    pub(super) fn give_up_put(&mut self, rank: Rank, flying: &Flying, error: OpError) {
        let Work::Put { put, words, .. } = &flying.work else { return };
        let (put, peer) = (*put, flying.peer);
        self.shadow.fail_put(put);
        // Of a peer that is lost nothing is awaited, nor does anything of its memory's matter.
        if matches!(error, OpError::PeerLost { .. }) {
            return;
        }
        let with = put.is_multiple_of(2).then_some(peer);
        let started = self.cluster.view(rank).started(with);
        let words = words.clone();
        self.crews[rank as usize].given_up.push(GivenUp { put, peer, words, started });
    }

    /// What was given up, has settled, and is not to write any more: whom the words were put to.
    pub(super) fn take_settled(&mut self, rank: Rank) -> Vec<(Rank, Vec<Words>)> {
        let (mut settled, mut at) = (Vec::new(), 0);
        while let Some(given_up) = self.crews[rank as usize].given_up.get_mut(at) {
            if !self.cluster.view(rank).are_over(&mut given_up.started) {
                at += 1;
                continue;
            }
            let GivenUp { put, peer, words, .. } = self.crews[rank as usize].given_up.swap_remove(at);
            self.shadow.settle_put(put);
            settled.push((peer, words));
        }
        settled
    }

    /// When nothing of a rank's is under way with a peer, or settles, nothing of its can still write there.
    pub(super) fn look_for_late_bytes(&mut self, rank: Rank) -> Result<(), String> {
        let node = self.cluster.view(rank);
        // All at once now and then, and whenever a rank says that it is quiet.
        if !self.step.is_multiple_of(LOOK_EVERY) && node.in_flight_of_all() + node.settling() > 0 {
            return Ok(());
        }
        let flying = &self.crews[rank as usize].flying;
        let may = |peer: Rank| {
            let is_under_way = flying.iter().any(|flying| flying.peer == peer);
            is_under_way || node.settles_with(peer) || node.is_lost(peer)
        };
        match self.cluster.written(rank).into_iter().find(|peer| !may(*peer)) {
            Some(peer) => Err(format!("rank {rank} is quiet with rank {peer}, and can still write there")),
            None => Ok(()),
        }
    }
}

/// Steps between two looks at all that is on its way, where its rank is not quiet.
const LOOK_EVERY: u64 = 8;

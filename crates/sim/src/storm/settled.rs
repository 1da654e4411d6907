//! What was given up: until it has settled its bytes may come, and never after.

use engine::node::Started;
use engine::{OpError, Rank};

use super::run::{Flying, Health, Run, SLOT_BYTES, Work};
use super::shadow::Words;

/// A put that has failed and may still write, and what its rank waits for before it takes the target block
/// for something else.
#[derive(Debug)]
pub(super) struct GivenUp {
    put: u32,
    peer: Rank,
    words: Vec<Words>,
    /// What was under way or settling then: with that peer, or with all.
    started: Started,
}

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

    /// What was given up and has settled is not to write any more: the rank puts other bytes to the same
    /// place, and they are to stay.
    pub(super) fn reuse(&mut self, rank: Rank, acts: bool) {
        let mut at = 0;
        while let Some(given_up) = self.crews[rank as usize].given_up.get_mut(at) {
            if !self.cluster.view(rank).are_over(&mut given_up.started) {
                at += 1;
                continue;
            }
            let GivenUp { put, peer, words, .. } = self.crews[rank as usize].given_up.swap_remove(at);
            self.shadow.settle_put(put);
            if acts && self.is(rank, Health::Alive) {
                self.put_again(rank, peer, words);
            }
        }
    }

    fn put_again(&mut self, rank: Rank, peer: Rank, mut words: Vec<Words>) {
        let Some(slot) = self.free_slot(rank) else { return };
        let slots = self.crews[rank as usize].slots.offset;
        for words in &mut words {
            words.local = slots + u64::from(slot) * SLOT_BYTES + (words.local - slots) % SLOT_BYTES;
        }
        let ranks = self.cluster.size();
        self.put_words(rank, (rank + ranks - peer) % ranks, slot, words);
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

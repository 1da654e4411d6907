//! Ranks that end, and are other processes' soon after.

use engine::Rank;

use super::granted::make_arenas;
use super::run::{Crew, Run};

impl Run {
    /// `rank` is another process, which begins as the first did: the same memory, and nothing in it.
    pub(super) fn on_restarted(&mut self, rank: Rank) {
        self.shadow.restart(&mut self.cluster, rank);
        let counter = self.cluster.heap(rank, 8);
        assert_eq!(counter, self.counter, "memory that is made alike lies where it did");
        self.counts[rank as usize].clear();
        self.counts_begun[rank as usize] = 0;
        self.crews[rank as usize] = Crew::new(&mut self.cluster, rank);
        if let Some(granted) = &mut self.granted {
            let arena = make_arenas(&mut self.cluster, rank..rank + 1);
            assert_eq!(arena, granted.arena, "memory that is made alike lies where it did");
            granted.restart(rank);
        }
        self.knowledge.forget(rank);
        // Whoever gave the old one up has nothing against the new.
        self.cut.retain(|(one, other)| *one != rank && *other != rank);
        self.cluster.compute(rank, 0);
    }

    /// How many processes had `rank` before the one that has it, and `peer` before the one that `rank` takes
    /// for it.
    pub(super) fn incarnations(&self, rank: Rank, peer: Rank) -> (u32, u32) {
        (self.cluster.incarnation(rank), self.cluster.met(rank, peer))
    }

    /// Whether one of the two does not know yet that the other is another process.
    pub(super) fn are_strangers(&self, one: Rank, other: Rank) -> bool {
        let knows = |rank, peer| self.cluster.met(rank, peer) == self.cluster.incarnation(peer);
        !knows(one, other) || !knows(other, one)
    }

    /// Whether `rank` cannot reach who has `peer`'s rank now.
    pub(super) fn is_apart(&self, rank: Rank, peer: Rank) -> bool {
        self.is_cut(rank, peer) || self.cluster.met(rank, peer) != self.cluster.incarnation(peer)
    }
}

//! A job on several hosts: who watches whom, and who tells of losses.

use engine::Rank;

use super::Peers;

impl Peers {
    /// Whether it is for this rank to tell the others that one is lost: in a job on several hosts, whose
    /// brokers do not know each other. Of a loss on this host the lowest rank tells, or if it is that one
    /// itself, everybody here. Of a loss on another host rank 0 tells, for which all wait at barriers, and
    /// the rank that answers for the lost one. The latter does not tell of a rank that has `left` in order:
    /// it might be heard before what that rank said at last.
    pub(crate) fn tells_of(&self, lost: Rank, left: bool) -> bool {
        if !self.is_spread() {
            return false;
        }
        let lowest = (0..self.own.size).find(|rank| self.elsewhere(*rank).is_none());
        match self.elsewhere(lost) {
            Some(_) => self.own.rank == 0 || (!left && self.answers_for(lost)),
            None => lowest == Some(self.own.rank) || lowest == Some(lost),
        }
    }

    /// Whether this is the next rank below, on another host, that is there. All ranks lie in a circle, in
    /// which each watches the next, so that the end of a whole host does not go unnoticed.
    fn answers_for(&self, rank: Rank) -> bool {
        let Some(card) = self.elsewhere(rank) else { return false };
        let on_its_host =
            |other: &Rank| self.elsewhere(*other).is_some_and(|theirs| theirs.host == card.host);
        let below = (0..rank).rev().chain((rank..self.own.size).rev());
        below.filter(|other| !on_its_host(other)).find(|other| !self.is_lost(*other)) == Some(self.own.rank)
    }

    /// Whom this rank watches: the next one, unless that is on this host, where the launcher does.
    pub(crate) fn to_watch(&self) -> Option<Rank> {
        let above = (self.own.rank + 1..self.own.size).chain(0..self.own.rank);
        let next = above.into_iter().find(|rank| !self.is_lost(*rank))?;
        self.elsewhere(next).map(|_| next)
    }

    /// Those on the host of one that is lost whose state it is for this rank to find out.
    pub(crate) fn to_suspect(&self, lost: Rank) -> Vec<Rank> {
        let Some(host) = self.elsewhere(lost).map(|card| card.host) else { return Vec::new() };
        let there = |rank: &Rank| self.elsewhere(*rank).is_some_and(|card| card.host == host);
        let ranks = (0..self.own.size).filter(there).filter(|rank| !self.is_lost(*rank));
        ranks.filter(|rank| self.answers_for(*rank)).collect()
    }

    /// Whether some ranks are on other hosts.
    pub(crate) fn is_spread(&self) -> bool {
        self.elsewhere.get().is_some()
    }

    /// All peers on other hosts: ranks, and those from outside.
    pub(crate) fn all_elsewhere(&self) -> Vec<Rank> {
        let ranks = (0..self.own.size).filter(|rank| self.elsewhere(*rank).is_some());
        ranks.chain(self.far_outsiders()).collect()
    }

    /// All others on this host.
    pub(crate) fn others_here(&self) -> Vec<Rank> {
        let is_here = |rank: &Rank| *rank != self.own.rank && self.elsewhere(*rank).is_none();
        (0..self.own.size).filter(is_here).collect()
    }
}

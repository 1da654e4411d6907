//! The loss of peers, and processes that take their ranks.

use super::Node;
use crate::op_id::OpKey;
use crate::{OpError, Rank, Transport};

impl<T: Transport> Node<T> {
    /// Whether the peer is known to be gone. Should another process have its rank, so it is until
    /// [`Node::take_replaced`] has told of that.
    pub fn is_lost(&self, peer: Rank) -> bool {
        self.core.is_lost(peer)
    }

    /// The peers of which [`Node::is_lost`] says so, in order.
    pub fn lost_peers(&self) -> impl Iterator<Item = Rank> {
        self.core.lost_peers()
    }

    /// How many processes had the peer's rank before the one that has it, as far as this node has heard.
    pub fn incarnation_of(&self, peer: Rank) -> u32 {
        self.core.incarnation_of(peer)
    }

    /// Tells of a peer whose rank is another process's now, each time that happens once. The process that it
    /// was is lost; what is started with the peer from here on reaches the new one, where no address means
    /// what it did. Until this has told of it, operations with the peer end with [`OpError::PeerLost`]:
    /// nobody puts into the new process what was meant for the old. Active Messages of the new one are
    /// delivered nonetheless; who asks after each poll hears of it first.
    #[inline]
    pub fn take_replaced(&mut self) -> Option<Rank> {
        if self.core.has_lost() { self.core.take_replaced() } else { None }
    }

    /// Takes note that a peer is gone: everything under way with it ends with [`OpError::PeerLost`], and so
    /// does whatever is started with it later.
    #[cold]
    pub fn lose(&mut self, peer: Rank) {
        self.lose_now(peer);
        self.work();
    }

    fn lose_now(&mut self, peer: Rank) {
        if self.core.lose(peer) {
            // Before what it holds is others', and while it is still kept from being anything else.
            self.core.transport.disconnect(peer);
            self.forget(peer);
        }
    }

    /// Loses a peer, and tells all others: for who judges so by itself, or knows that nobody else tells them.
    /// They may still hear from it, and must not wait for ever at a barrier that it, or this node, comes to
    /// no more.
    #[cold]
    pub fn give_up_peer(&mut self, peer: Rank) {
        self.lose_and_tell(peer, false);
        self.work();
    }

    /// Loses a peer whose process has ended or left, and tells all others, who may never have talked to it.
    #[cold]
    pub fn tell_gone(&mut self, peer: Rank) {
        self.lose_and_tell(peer, true);
        self.work();
    }

    pub(super) fn lose_and_tell(&mut self, peer: Rank, gone: bool) {
        let is_new = self.core.is_of_job(peer) && !self.barrier.has_lost(peer);
        self.lose_now(peer);
        if is_new {
            let (barrier, mut lent) = self.barrier_lent();
            barrier.tell_broken(&mut lent, (peer, gone));
        }
    }

    /// Takes a peer's word that it has given up another, which may well run, and be heard from here.
    pub(super) fn on_barrier_broken(&mut self, given_up: Option<Rank>, gone: bool) {
        if let Some(given_up) = self.barrier.on_broken(&mut self.core, given_up) {
            let (teams, _, mut lent) = self.teams_lent();
            teams.break_teams_of(&mut lent, given_up);
            if gone {
                self.core.transport.doubt(given_up);
            }
            let (barrier, mut lent) = self.barrier_lent();
            barrier.recount(&mut lent);
        }
    }

    /// Another process has the peer's rank: the one that it was is lost, and of this one nothing is known.
    #[cold]
    pub(super) fn on_returned(&mut self, peer: Rank, incarnation: u32) {
        if incarnation > self.core.incarnation_of(peer) {
            self.core.lose(peer);
            // Answers to what it had asked before it was given up may have come together since.
            self.forget(peer);
            self.core.replace(peer, incarnation);
        }
    }

    /// Ends what is under way with a peer that is gone, and keeps nothing of it.
    fn forget(&mut self, peer: Rank) {
        self.barrier.forget(peer, self.core.is_of_job(peer));
        self.mail.forget(peer);
        let ended: Vec<OpKey> = self
            .ops
            .iter()
            .filter(|(_, op)| op.outcome.is_none() && op.kind.needs(peer))
            .map(|(key, _)| key)
            .collect();
        for key in ended {
            self.give_up(key, OpError::PeerLost { peer });
        }
        self.give_up_all_fast(|of, _| (of == peer).then_some(OpError::PeerLost { peer }));
        self.ops.settle_with(peer);
        self.drop_registrations(peer);
        self.shown.tallies.forget(peer);
        self.take_bounce_buffers_back(peer);
        let (teams, _, mut lent) = self.teams_lent();
        teams.break_teams_of(&mut lent, peer);
        if self.core.is_of_job(peer) {
            let (barrier, mut lent) = self.barrier_lent();
            barrier.recount(&mut lent);
        }
    }

    /// As it is, for a process that has the rank of one that was lost: there is no barrier for it.
    #[must_use]
    pub fn as_replacement(mut self) -> Node<T> {
        self.barrier.forget(self.core.rank, true);
        let (rank, (teams, _, mut lent)) = (self.core.rank, self.teams_lent());
        teams.break_teams_of(&mut lent, rank);
        self.work();
        self
    }
}

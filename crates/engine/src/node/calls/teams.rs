//! The node's calls about teams and their collectives; what is done with these is in
//! [`teams`](crate::node::teams).

use std::sync::Arc;

use crate::collective::{Collective, Difference, Plan, Step, TeamId};
use crate::node::Node;
use crate::node::teams::buffers::{Kept, Memories};
use crate::node::teams::calls::Start;
use crate::node::teams::small::state::SmallPolled;
use crate::op_id::OpId;
use crate::{Place, Rank, Transport};

/// Teams.
impl<T: Transport> Node<T> {
    /// A team's size, and this process's number in it. `None`: there is no such team, or it is not made yet.
    pub fn team(&self, team: TeamId) -> Option<(u32, u32)> {
        self.teams.team(team, self.core.rank)
    }

    /// The rank of a team's member.
    pub fn member_rank(&self, team: TeamId, member: u32) -> Option<Rank> {
        self.teams.member_rank(team, member)
    }

    /// The two members' calls, if a team's collectives are over because they called different ones.
    pub fn difference(&self, team: TeamId) -> Option<Difference> {
        self.teams.difference(team)
    }

    /// Makes room for the team that this process will be in when the next collective of `team`, a split, is
    /// over: its other members may know of it earlier. `None`: there is such a team already.
    pub fn begin_split(&mut self, team: TeamId, color: u32) -> Option<TeamId> {
        self.teams.begin_split(team, color)
    }

    /// Gives a team that [`Node::begin_split`] has made room for its members: such of the old one's.
    ///
    /// # Panics
    /// When one of them is not there.
    pub fn end_split(&mut self, old: TeamId, new: TeamId, members: &[u32]) {
        let (teams, barrier, mut lent) = self.teams_lent();
        teams.end_split(&mut lent, barrier, [old, new], members);
        self.work();
    }

    /// Makes the team of near ranks, which these are, this one among them; all where none are named. For a
    /// node that has not been polled.
    pub fn make_near_team(&mut self, ranks: Option<Vec<Rank>>) {
        self.teams.make_near(ranks, self.core.size);
    }

    /// Makes a [named](TeamId::named) team, if it is not there: another member may have made it by a message.
    /// It is there as long as the node. Returns whether there is room for it.
    pub fn make_named_team(&mut self, team: TeamId) -> bool {
        debug_assert!(team.is_named(), "all others are split off");
        let (teams, barrier, mut lent) = self.teams_lent();
        let is_there = teams.make_named(&mut lent, barrier, team);
        self.work();
        is_there
    }

    /// Nobody has the team here any more.
    pub fn drop_team(&mut self, team: TeamId) {
        let (teams, _, mut lent) = self.teams_lent();
        teams.drop_team(&mut lent, team);
        self.work();
    }
}

/// Collectives.
impl<T: Transport> Node<T> {
    /// Starts a team's next collective, by this member's plan for it. All members must start the same, in the
    /// same order. Memories in the process may be used until there is an outcome for what
    /// [`Node::local_step`] says only. A failure that concerns the team, or giving up this collective, ends
    /// it and all later ones of that team.
    ///
    /// # Panics
    /// When there is no such team, or the engine is to keep more than [`Node::keeps`] allows.
    pub fn collective(&mut self, team: TeamId, what: &Collective, plan: Arc<Plan>, start: Start) -> OpId {
        if let Memories::Kept(kept) = &start.memories {
            assert!(self.keeps(kept.len() as u64), "{} bytes are too many to be kept", kept.len());
        }
        let (teams, _, mut lent) = self.teams_lent();
        let key = teams.start(&mut lent, team, (what, plan), start);
        self.work();
        OpId::of(key)
    }

    /// Whether the engine can keep memories of so many bytes in all for a collective.
    pub fn keeps(&self, bytes: u64) -> bool {
        bytes <= Kept::MAX.min(self.core.scratch.len() as u64)
    }

    /// The memories of a collective that the engine keeps, until its outcome is taken: operands of the step
    /// that [`Node::local_step`] says, and in the end the result. `None` while they are in the process.
    pub fn kept(&mut self, id: OpId) -> Option<&mut Kept> {
        self.teams.kept(id.key())
    }

    /// The step in own memory that a collective waits for: a [`Step::Copy`], a [`Step::Combine`] or a
    /// [`Step::Fold`]. After it has been done, [`Node::local_done`] must be called.
    pub fn local_step(&self, id: OpId) -> Option<Step> {
        self.teams.local_step(id.key())
    }

    /// Where what the [`Step::Fold`] combines that [`Node::local_step`] says lies: of each of the other
    /// members. Nothing says that there is memory.
    pub fn folded(&self, id: OpId) -> Vec<(Rank, Place)> {
        self.teams.folded(id.key())
    }

    /// The step that [`Node::local_step`] says has been done: the collective goes on.
    pub fn local_done(&mut self, id: OpId) {
        let (teams, _, mut lent) = self.teams_lent();
        teams.local_done(&mut lent, id.key(), false);
        self.work();
    }

    /// The [`Step::Fold`] that [`Node::local_step`] says cannot be done, and nothing of it was: the
    /// collective goes on with the steps that do the same.
    pub fn local_refused(&mut self, id: OpId) {
        let (teams, _, mut lent) = self.teams_lent();
        teams.local_done(&mut lent, id.key(), true);
        self.work();
    }

    /// Collectives under way.
    pub fn collectives_in_flight(&self) -> usize {
        self.teams.in_flight()
    }

    /// Memory that collectives under way have offered may change from now on: for a node that ends.
    pub fn give_up_offers(&mut self) {
        if self.teams.in_flight() > 0 {
            self.core.transport.give_up_offers();
        }
    }
}

/// Collectives by rounds that are polled for.
impl<T: Transport> Node<T> {
    /// Begins a team's next collective with this member's word, if it is one by rounds and nothing stands
    /// against it. The caller that has begun it then asks [`Node::poll_small_collective`] for the result,
    /// between polls. `false`: nothing was begun.
    pub fn begin_small_collective(&mut self, id: TeamId, what: &Collective, word: [u8; 8]) -> bool {
        let (teams, _, mut lent) = self.teams_lent();
        let is_begun = teams.begin_small(&mut lent, (id, what), word);
        self.work();
        is_begun
    }

    /// The result of the small collective that this caller has begun. Its last word is given once, and ends
    /// it: after that it falls back.
    #[inline]
    pub fn poll_small_collective(&mut self) -> SmallPolled {
        self.teams.poll_small(&mut self.core)
    }

    /// Goes on with the next round, after [`SmallPolled::Word`], unless it was the last: with what the two
    /// words have come to.
    pub fn next_small_round(&mut self, word: [u8; 8]) -> SmallPolled {
        let (teams, _, mut lent) = self.teams_lent();
        teams.next_small_round(&mut lent, word)
    }

    /// Ends the small collective under way for good, and with it the team's collectives.
    pub fn give_up_small_collective(&mut self) {
        let (teams, _, mut lent) = self.teams_lent();
        teams.give_up_small(&mut lent);
        self.work();
    }
}

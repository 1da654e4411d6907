//! Teams: how they are made, who is in them, and how they end.

use super::state::{Broken, Members, Team};
use crate::collective::TeamId;
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::op_id::OpKey;
use crate::wire::BreakReason;
use crate::{OpError, Rank, Transport};

/// Named teams that a node makes, at most.
pub const NAMED_TEAMS_MAX: usize = 1024;

/// Named teams that peers have come to, and this process has not, at most.
const UNASKED_MAX: usize = 64;

impl<T: Transport> Node<T> {
    /// A team's size, and this process's number in it. `None`: there is no such team, or it is not made yet.
    pub fn team(&self, team: TeamId) -> Option<(u32, u32)> {
        let members = self.teams.all.get(&team)?.members.as_ref()?;
        Some((members.len(), members.member(self.core.rank)?))
    }

    /// The rank of a team's member.
    pub fn member_rank(&self, team: TeamId, member: u32) -> Option<Rank> {
        self.teams.all.get(&team)?.members.as_ref()?.rank(member)
    }

    /// Makes room for the team that this process will be in when the next collective of `team`, a split, is
    /// over: its other members may know of it earlier. `None`: there is such a team already.
    pub fn begin_split(&mut self, team: TeamId, color: u32) -> Option<TeamId> {
        let number = self.teams.all.get(&team)?.started + 1;
        let new = team.of_split(number, color);
        if self.teams.all.contains_key(&new) {
            return None;
        }
        self.teams.all.insert(new, Team::default());
        Some(new)
    }

    /// Gives a team that [`Node::begin_split`] has made room for its members: such of the old one's.
    ///
    /// # Panics
    /// When one of them is not there.
    pub fn end_split(&mut self, old: TeamId, new: TeamId, members: &[u32]) {
        let ranks: Vec<Rank> =
            members.iter().map(|member| self.member_rank(old, *member).expect("it took part")).collect();
        let lost = ranks.iter().find(|rank| self.barrier.has_lost(**rank)).copied();
        let Some(team) = self.teams.all.get_mut(&new) else { return };
        team.early.retain(|(_, from, _), _| ranks.contains(from));
        team.members = Some(Members::These(ranks));
        if let Some(peer) = lost {
            self.break_team(new, 0, OpError::PeerLost { peer });
        }
    }

    /// Makes the team of near ranks, which these are, this one among them; all where none are named. For a
    /// node that has not been polled.
    pub fn make_near_team(&mut self, ranks: Option<Vec<Rank>>) {
        let members = ranks.map_or(Members::All(self.core.size), Members::These);
        self.teams.all.insert(TeamId::NEAR, Team { members: Some(members), ..Team::default() });
    }

    /// Makes a [named](TeamId::named) team, if it is not there: another member may have made it by a message.
    /// It is there as long as the node. Returns whether there is room for it.
    pub fn make_named_team(&mut self, team: TeamId) -> bool {
        debug_assert!(team.is_named(), "all others are split off");
        let known = self.teams.all.get(&team).map(|state| state.is_unasked);
        if known == Some(false) {
            return true;
        }
        if self.teams.named == NAMED_TEAMS_MAX {
            return false;
        }
        self.teams.named += 1;
        if known.is_none() {
            self.add_named_team(team);
        } else if let Some(state) = self.teams.all.get_mut(&team) {
            assert!(self.teams.unasked > 0, "a number is asked for once");
            self.teams.unasked -= 1;
            state.is_unasked = false;
        }
        true
    }

    /// Makes a named team that a peer has come to earlier, if there is room for such.
    pub(in crate::node) fn make_unasked_team(&mut self, team: TeamId) {
        if self.teams.unasked < UNASKED_MAX {
            self.teams.unasked += 1;
            self.add_named_team(team);
            if let Some(state) = self.teams.all.get_mut(&team) {
                state.is_unasked = true;
            }
        }
    }

    fn add_named_team(&mut self, team: TeamId) {
        let members = Some(Members::All(self.core.size));
        self.teams.all.insert(team, Team { members, ..Team::default() });
        if let Some(peer) = self.barrier.first_lost() {
            self.break_team(team, 0, OpError::PeerLost { peer });
        }
    }

    /// Nobody has the team here any more.
    pub fn drop_team(&mut self, team: TeamId) {
        let is_for_good = team == TeamId::WORLD || team.is_named();
        if let Some(state) = self.teams.all.get_mut(&team).filter(|_| !is_for_good) {
            state.dropped = true;
            self.forget_team(team);
        }
    }

    pub(super) fn forget_team(&mut self, team: TeamId) {
        let over = |state: &Team| state.dropped && state.runs.is_empty();
        if self.teams.all.get(&team).is_some_and(over) {
            self.tell_dropped(team);
            self.teams.all.remove(&team);
        }
    }

    /// Ends a team's collectives from some number on, now and ever after, and tells the members that this one
    /// has had to do with. Others learn of it when they first do.
    pub(in crate::node) fn break_team(&mut self, id: TeamId, from: u64, error: OpError) {
        let me = self.core.rank;
        let told = match error {
            OpError::PeerLost { peer } => (BreakReason::Lost, peer),
            OpError::Team { peer, .. } if peer == me => (BreakReason::GivenUp, peer),
            OpError::Team { peer, .. } => (BreakReason::Differs, peer),
            _ => (BreakReason::Failed, me),
        };
        let difference = self.teams.all.get_mut(&id).and_then(|team| team.differs.take());
        self.break_team_as(id, Broken { from, error, told, difference });
    }

    pub(in crate::node) fn break_team_as(&mut self, id: TeamId, broken: Broken) {
        let Some(team) = self.teams.all.get_mut(&id).filter(|team| !team.is_over(broken.from)) else {
            return;
        };
        team.broken = Some(broken);
        self.small.on_broken(id, broken.from);
        team.early.retain(|(number, ..), _| *number < broken.from);
        team.count_early();
        let over = team.runs.iter().filter(|(number, _)| **number >= broken.from);
        let keys: Vec<OpKey> = over.map(|(_, key)| *key).collect();
        let any = !keys.is_empty();
        team.is_told = any || broken.told.0 != BreakReason::Dropped;
        for key in keys {
            if let Some(run) = self.take_run(key) {
                self.end_run(key, &run, broken.error);
            }
        }
        // Each member drops a team when it is done with it: that alone is nothing to tell everyone of.
        if any || broken.told.0 != BreakReason::Dropped {
            self.tell_team(id);
        }
        self.forget_team(id);
    }

    /// A rank is lost, and with it all teams that it is in. What has all that it needs of it goes on.
    pub(in crate::node) fn break_teams_of(&mut self, peer: Rank) {
        let has = |team: &Team| team.members.as_ref().is_some_and(|members| members.member(peer).is_some());
        let hit: Vec<TeamId> =
            self.teams.all.iter().filter(|(_, team)| has(team)).map(|(id, _)| *id).collect();
        for id in hit {
            let from = self.first_that_needs(id, peer, 0);
            self.break_team(id, from, OpError::PeerLost { peer });
        }
    }

    /// The first of a team's collectives that cannot end without a member, which has done its part of all
    /// before `from`: one under way, or the next that may need it.
    pub(in crate::node) fn first_that_needs(&self, id: TeamId, peer: Rank, from: u64) -> u64 {
        let Some(team) = self.teams.all.get(&id) else { return 0 };
        // While the team is being made, none of its collectives is under way here.
        let Some(members) = &team.members else { return from.max(team.started + 1) };
        let Some(member) = members.member(peer) else { return 0 };
        let needs = |key: &OpKey| match self.ops.get(*key).map(|op| &op.kind) {
            Some(OpKind::Collective(Some(run))) => run.needs(team, member, peer),
            // Somebody is at it just now, and it may turn out either way.
            _ => true,
        };
        let runs = team.runs.iter().filter(|(_, key)| needs(key)).map(|(number, _)| *number);
        let first = runs.chain(self.small.needs(id, peer)).min();
        first.unwrap_or(from.max(team.started + 1))
    }
}

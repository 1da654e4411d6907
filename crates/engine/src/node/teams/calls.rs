//! How teams are made and dropped, and collectives started and helped on.

use std::sync::Arc;

use super::buffers::{Kept, Memories};
use super::run::{CollectiveRun, Received, Receiving};
use super::state::Teams;
use super::team::{Members, Team};
use crate::collective::{Collective, Difference, Plan, Step, TeamId};
use crate::node::barrier::Barrier;
use crate::node::lent::Lent;
use crate::node::operations::op::OpKind;
use crate::op_id::OpKey;
use crate::{Nanos, OpError, Place, Rank, Transport};

/// How a member takes part in a collective.
#[derive(Debug)]
pub struct Start {
    /// The memory that it works on.
    pub memories: Memories,
    /// Whether [`Polled::Local`](crate::node::Polled::Local) is to tell of steps in own memory; otherwise
    /// whoever waits for the outcome asks for them.
    pub steps_told: bool,
    /// When it ends by timeout.
    pub deadline: Option<Nanos>,
    /// Whether it is the one that this member has begun by
    /// [`Node::begin_small_collective`](crate::Node::begin_small_collective), if that has not gone.
    pub goes_on: bool,
}

/// Teams.
impl Teams {
    /// A team's size, and this process's number in it. `None`: there is no such team, or it is not made yet.
    pub(in crate::node) fn team(&self, team: TeamId, me: Rank) -> Option<(u32, u32)> {
        self.roster.team(team, me)
    }

    /// The rank of a team's member.
    pub(in crate::node) fn member_rank(&self, team: TeamId, member: u32) -> Option<Rank> {
        self.roster.member_rank(team, member)
    }

    /// The two members' calls, if a team's collectives are over because they called different ones.
    pub(in crate::node) fn difference(&self, team: TeamId) -> Option<Difference> {
        self.roster.difference(team)
    }

    /// Makes room for a team that is split off by the next collective of `team`.
    pub(in crate::node) fn begin_split(&mut self, team: TeamId, color: u32) -> Option<TeamId> {
        let number = self.roster.all.get(&team)?.started + 1;
        let new = team.of_split(number, color);
        if self.roster.all.contains_key(&new) {
            return None;
        }
        self.roster.all.insert(new, Team::default());
        Some(new)
    }

    /// Gives that team its members: such of the old one's.
    ///
    /// # Panics
    /// When one of them is not there.
    pub(in crate::node) fn end_split<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        barrier: &Barrier,
        [old, new]: [TeamId; 2],
        members: &[u32],
    ) {
        let ranks: Vec<Rank> =
            members.iter().map(|member| self.member_rank(old, *member).expect("it took part")).collect();
        let lost = ranks.iter().find(|rank| barrier.has_lost(**rank)).copied();
        let Some(team) = self.roster.all.get_mut(&new) else { return };
        team.early.retain(|(_, from, _), _| ranks.contains(from));
        team.members = Some(Members::These(ranks));
        if let Some(peer) = lost {
            self.break_team(lent, (new, 0), OpError::PeerLost { peer });
        }
    }

    /// Makes the team of near ranks, which these are, or all of so many.
    pub(in crate::node) fn make_near(&mut self, ranks: Option<Vec<Rank>>, size: u32) {
        let members = ranks.map_or(Members::All(size), Members::These);
        self.roster.all.insert(TeamId::NEAR, Team { members: Some(members), ..Team::default() });
    }

    /// Makes a named team, if it is not there. Returns whether there is room for it.
    pub(in crate::node) fn make_named<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        barrier: &Barrier,
        team: TeamId,
    ) -> bool {
        let (has_room, is_new) = self.roster.add_named(team, lent.core.size);
        if let Some(peer) = barrier.first_lost().filter(|_| is_new) {
            self.break_team(lent, (team, 0), OpError::PeerLost { peer });
        }
        has_room
    }

    /// Nobody has the team here any more.
    pub(in crate::node) fn drop_team<T: Transport>(&mut self, lent: &mut Lent<'_, T>, team: TeamId) {
        let is_for_good = team == TeamId::WORLD || team.is_named();
        if let Some(state) = self.roster.all.get_mut(&team).filter(|_| !is_for_good) {
            state.dropped = true;
            self.forget_team(lent, team);
        }
    }
}

/// Collectives.
impl Teams {
    /// Starts a team's next collective, by this member's plan for it.
    ///
    /// # Panics
    /// When there is no such team.
    pub(in crate::node) fn start<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        team: TeamId,
        (what, plan): (&Collective, Arc<Plan>),
        start: Start,
    ) -> OpKey {
        self.note_small(lent);
        let begun = if start.goes_on { self.take_small(lent, team) } else { None };
        let state = self.roster.all.get_mut(&team).expect("the caller has the team");
        if begun.is_none() {
            state.started += 1;
        }
        let number = begun.as_ref().map_or(state.started, |begun| begun.number);
        if !state.early.is_empty() {
            state.count_early();
        }
        let broken = state.broken.filter(|broken| number >= broken.from);
        let key = lent.ops.insert(OpKind::Collective, start.deadline);
        if let Some(broken) = broken {
            let was_told = std::mem::replace(&mut state.is_told, true);
            self.tell_of_end(key, start.steps_told);
            lent.ops.finish(key, Err(broken.error));
            // A member that has not been told may wait for this process.
            if !was_told {
                self.roster.tell_team(lent, team);
            }
            return key;
        }
        state.runs.insert(number, key);
        let sent = begun.as_ref().map_or(0, |begun| begun.sent);
        let (memories, steps_told, signature) = (start.memories, start.steps_told, what.signature());
        let run = CollectiveRun::new((team, number), signature, plan, memories);
        self.runs.insert(key, Box::new(CollectiveRun { steps_told, sent, ..run }));
        if let Err(error) = self.roster.check_early(team, (number, signature), lent.core.rank) {
            self.break_team(lent, (team, number), error);
            return key;
        }
        self.roster.tell_askers(lent, team);
        self.go_on_with(lent, key);
        for arrived in begun.map(|begun| begun.arrived).unwrap_or_default() {
            self.arrive_at(lent, key, arrived);
        }
        key
    }

    /// The memories of a collective that the engine keeps, until its outcome is taken.
    pub(in crate::node) fn kept(&mut self, key: OpKey) -> Option<&mut Kept> {
        match &mut self.runs.get_mut(key)?.memories {
            Memories::Kept(kept) => Some(kept),
            Memories::At { .. } => None,
        }
    }

    /// The step in own memory that a collective under way waits for.
    pub(in crate::node) fn local_step(&self, key: OpKey) -> Option<Step> {
        let run = self.runs.get(key)?;
        let step = *run.plan.steps.get(run.at)?;
        let is_local = matches!(step, Step::Copy { .. } | Step::Combine { .. } | Step::Fold { .. });
        (is_local && run.has_all_of(step)).then_some(step)
    }

    /// Where what the [`Step::Fold`] combines that [`Teams::local_step`] says lies.
    pub(in crate::node) fn folded(&self, key: OpKey) -> Vec<(Rank, Place)> {
        let (Some(Step::Fold { tag, .. }), Some(run)) = (self.local_step(key), self.runs.get(key)) else {
            return Vec::new();
        };
        let place = |receive: &Receiving| match receive.state {
            Received::Known(place) if receive.tag == tag => Some((receive.from, place)),
            _ => None,
        };
        run.receives.iter().filter_map(place).collect()
    }

    /// The step that [`Teams::local_step`] says has been done, or was `refused`, so that the steps after it
    /// do the same: the collective goes on.
    pub(in crate::node) fn local_done<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        key: OpKey,
        refused: bool,
    ) {
        let steps = match self.local_step(key) {
            Some(Step::Fold { instead_of, .. }) if !refused => 1 + instead_of as usize,
            Some(Step::Fold { .. }) => 1,
            Some(_) if !refused => 1,
            _ => return,
        };
        if let Some(run) = self.runs.get_mut(key) {
            run.at += steps;
            self.go_on_with(lent, key);
        }
    }

    /// Whether a collective has offered a member these bytes, and has not heard that it has them.
    pub(in crate::node) fn has_offered(&self, peer: Rank, start: u64, len: u64) -> bool {
        let mut runs = self.roster.all.values().flat_map(|team| team.runs.values());
        runs.any(|key| self.runs.get(*key).is_some_and(|run| run.has_offered(peer, start, len)))
    }
}

//! How collectives and teams end before their time.

use super::run::{CollectiveRun, Received, Sent};
use super::state::Teams;
use super::team::{Broken, Team};
use super::wants::Wanted;
use crate::collective::TeamId;
use crate::node::lent::Lent;
use crate::op_id::OpKey;
use crate::wire::BreakReason;
use crate::{OpError, Rank, Transport};

impl Teams {
    /// Ends a team's collectives from some number on, now and ever after, and tells the members that this one
    /// has had to do with. Others learn of it when they first do.
    pub(super) fn break_team<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, from): (TeamId, u64),
        error: OpError,
    ) {
        let me = lent.core.rank;
        let told = match error {
            OpError::PeerLost { peer } => (BreakReason::Lost, peer),
            OpError::Team { peer, .. } if peer == me => (BreakReason::GivenUp, peer),
            OpError::Team { peer, .. } => (BreakReason::Differs, peer),
            _ => (BreakReason::Failed, me),
        };
        let difference = self.roster.all.get_mut(&id).and_then(|team| team.differs.take());
        self.break_team_as(lent, id, Broken { from, error, told, difference });
    }

    /// The same, for a reason that is given.
    pub(super) fn break_team_as<T: Transport>(&mut self, lent: &mut Lent<'_, T>, id: TeamId, broken: Broken) {
        let Some(team) = self.roster.all.get_mut(&id).filter(|team| !team.is_over(broken.from)) else {
            return;
        };
        team.broken = Some(broken);
        self.small.on_broken(id, broken.from);
        team.early.retain(|(number, ..), _| *number < broken.from);
        team.count_early();
        let over = team.runs.iter().filter(|(number, _)| **number >= broken.from);
        let mut keys: Vec<(u64, OpKey)> = over.map(|(number, key)| (*number, *key)).collect();
        keys.sort_unstable();
        let any = !keys.is_empty();
        team.is_told = any || broken.told.0 != BreakReason::Dropped;
        for (_, key) in keys {
            self.end_run(lent, key, broken.error);
        }
        // Each member drops a team when it is done with it: that alone is nothing to tell everyone of.
        if any || broken.told.0 != BreakReason::Dropped {
            self.roster.tell_team(lent, id);
        }
        self.forget_team(lent, id);
    }

    /// A rank is lost, and with it all teams that it is in. A collective that has all that it needs of it
    /// goes on.
    pub(in crate::node) fn break_teams_of<T: Transport>(&mut self, lent: &mut Lent<'_, T>, peer: Rank) {
        let has = |team: &Team| team.members.as_ref().is_some_and(|members| members.member(peer).is_some());
        let hit: Vec<TeamId> =
            self.roster.all.iter().filter(|(_, team)| has(team)).map(|(id, _)| *id).collect();
        for id in hit {
            let from = self.first_that_needs(id, peer, 0);
            self.break_team(lent, (id, from), OpError::PeerLost { peer });
        }
    }

    /// The first of a team's collectives that cannot end without a member, which has done its part of all
    /// before `from`: one under way, or the next that may need it.
    pub(super) fn first_that_needs(&self, id: TeamId, peer: Rank, from: u64) -> u64 {
        let Some(team) = self.roster.all.get(&id) else { return 0 };
        // While the team is being made, none of its collectives is under way here.
        let Some(members) = &team.members else { return from.max(team.started + 1) };
        let Some(member) = members.member(peer) else { return 0 };
        let needs = |key: &OpKey| self.runs.get(*key).is_none_or(|run| run.needs(team, member, peer));
        let runs = team.runs.iter().filter(|(_, key)| needs(key)).map(|(number, _)| *number);
        let first = runs.chain(self.small.needs(id, peer)).min();
        first.unwrap_or(from.max(team.started + 1))
    }

    /// Gives up a collective, and so all later ones of its team.
    pub(in crate::node) fn give_up<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        key: OpKey,
        error: OpError,
    ) {
        let Some(run) = self.runs.get(key) else { return };
        let (team, number) = (run.team, run.number);
        self.end_run(lent, key, error);
        let given_up = OpError::Team { peer: lent.core.rank, what: "has given up one of them" };
        self.break_team(lent, (team, number), given_up);
    }

    /// Ends a collective that failed, and all that it has under way.
    fn end_run<T: Transport>(&mut self, lent: &mut Lent<'_, T>, key: OpKey, error: OpError) {
        let Some(run) = self.runs.remove(key) else { return };
        if let Some(team) = self.roster.all.get_mut(&run.team) {
            team.runs.remove(&run.number);
        }
        self.give_up_gets(lent, &run, error);
        // A caller that waits for the outcome may free it then.
        if run.sends.iter().any(|send| send.state == Sent::Offered) {
            lent.core.transport.give_up_offers();
        }
        self.tell_of_end(key, run.steps_told);
        lent.ops.finish(key, Err(error));
    }

    /// Gives up the transfers that get what members offer. Transfers that have not been started never are.
    fn give_up_gets<T: Transport>(&mut self, lent: &mut Lent<'_, T>, run: &CollectiveRun, error: OpError) {
        let gets = run.receives.iter().filter_map(|receive| match receive.state {
            Received::Getting(get) => Some(get),
            _ => None,
        });
        for get in gets.chain(run.pulls.iter().map(|pull| pull.get)) {
            let waiting = self.wants.now.len();
            self.wants.now.retain(|wanted| !matches!(wanted, Wanted::Get(key, ..) if *key == get));
            if self.wants.now.len() < waiting {
                lent.ops.remove(get);
            } else {
                self.wants.now.push_back(Wanted::GiveUp(get, error));
            }
        }
    }

    /// A caller that does a collective's steps may let go of its memory.
    pub(super) fn tell_of_end(&mut self, key: OpKey, steps_told: bool) {
        if steps_told {
            self.wants.local.push_back(key);
        }
    }

    /// Forgets a team that nobody has here any more, once its last collective is over.
    pub(super) fn forget_team<T: Transport>(&mut self, lent: &mut Lent<'_, T>, team: TeamId) {
        let over = |state: &Team| state.dropped && state.runs.is_empty();
        if self.roster.all.get(&team).is_some_and(over) {
            self.roster.tell_dropped(lent, team);
            self.roster.all.remove(&team);
        }
    }
}

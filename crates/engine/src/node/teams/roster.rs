//! All teams of a node, and what their members are told of how far this process has come and why a team is
//! over.

use hashbrown::HashMap;

use super::team::{Arrived, Members, Team};
use crate::collective::{Difference, Signature, TeamId};
use crate::limits::AHEAD;
use crate::node::lent::Lent;
use crate::wire::{BreakReason, Message, Pace, TeamBroken, TeamMessage};
use crate::{Lane, OpError, Rank, Transport};

/// Named teams that a node makes, at most.
pub const NAMED_TEAMS_MAX: usize = 1024;

/// Named teams that peers have come to, and this process has not, at most.
const UNASKED_MAX: usize = 64;

/// The message about one of two members that differ: which of them is wrong nobody knows.
pub(super) const DIFFER: &str = "and another member called different ones";

/// All teams, by their names.
pub(super) struct Roster {
    pub(super) all: HashMap<TeamId, Team>,
    /// How many of them are named, and made here; and how many a peer has made.
    named: usize,
    unasked: usize,
}

/// Which teams there are, and who is in them.
impl Roster {
    /// With the team of all ranks.
    pub(super) fn new(size: u32) -> Roster {
        let world = Team { members: Some(Members::All(size)), ..Team::default() };
        Roster { all: HashMap::from([(TeamId::WORLD, world)]), named: 0, unasked: 0 }
    }

    /// A team's size, and this process's number in it. `None`: there is no such team, or it is not made yet.
    pub(super) fn team(&self, team: TeamId, me: Rank) -> Option<(u32, u32)> {
        let members = self.all.get(&team)?.members.as_ref()?;
        Some((members.len(), members.member(me)?))
    }

    /// The rank of a team's member.
    pub(super) fn member_rank(&self, team: TeamId, member: u32) -> Option<Rank> {
        self.all.get(&team)?.members.as_ref()?.rank(member)
    }

    /// Adds a named team of all ranks, or takes one over that a peer has come to earlier. Returns whether
    /// there is room for it, and whether it is new.
    pub(super) fn add_named(&mut self, team: TeamId, size: u32) -> (bool, bool) {
        let known = self.all.get(&team).map(|state| state.is_unasked);
        if known == Some(false) {
            return (true, false);
        }
        if self.named == NAMED_TEAMS_MAX {
            return (false, false);
        }
        self.named += 1;
        if known.is_none() {
            self.insert_named(team, size, false);
        } else if let Some(state) = self.all.get_mut(&team) {
            assert!(self.unasked > 0, "a number is asked for once");
            self.unasked -= 1;
            state.is_unasked = false;
        }
        (true, known.is_none())
    }

    /// Adds a named team that a peer has come to, and this process has not, if there is room for such.
    /// Returns whether there is.
    pub(super) fn add_unasked(&mut self, team: TeamId, size: u32) -> bool {
        let has_room = self.unasked < UNASKED_MAX;
        if has_room {
            self.unasked += 1;
            self.insert_named(team, size, true);
        }
        has_room
    }

    fn insert_named(&mut self, team: TeamId, size: u32, is_unasked: bool) {
        let members = Some(Members::All(size));
        self.all.insert(team, Team { members, is_unasked, ..Team::default() });
    }

    /// The members of a team that this one has had to do with, in order.
    fn known_members(&self, id: TeamId) -> Vec<Rank> {
        let known = self.all.get(&id).map(|team| team.paces.keys().copied().collect());
        let mut known: Vec<Rank> = known.unwrap_or_default();
        known.sort_unstable();
        known
    }
}

/// Calls of members, compared.
impl Roster {
    /// The two members' calls, if a team's collectives are over because they called different ones.
    pub(super) fn difference(&self, team: TeamId) -> Option<Difference> {
        self.all.get(&team)?.broken?.difference
    }

    /// Notes what a member called, and what this one did, for whoever is told that the team is over.
    pub(super) fn differ(
        &mut self,
        id: TeamId,
        signatures: [Signature; 2],
        [peer, me]: [Rank; 2],
    ) -> OpError {
        if let Some(team) = self.all.get_mut(&id) {
            team.differs = Some(Difference::of([peer, me], signatures));
        }
        OpError::Team { peer, what: DIFFER }
    }

    /// What has come of a collective that only now begins here: all of it is to be of the same.
    pub(super) fn check_early(
        &mut self,
        id: TeamId,
        (number, ours): (u64, Signature),
        me: Rank,
    ) -> Result<(), OpError> {
        let Some(team) = self.all.get(&id).filter(|team| !team.early.is_empty()) else { return Ok(()) };
        let mut early = team.early.iter().filter(|((of, ..), _)| *of == number);
        let differs = |arrived: &Arrived| arrived.signature != ours;
        match early.find(|(_, arrived)| differs(arrived)) {
            Some(((_, peer, _), arrived)) => {
                let (theirs, peer) = (arrived.signature, *peer);
                Err(self.differ(id, [theirs, ours], [peer, me]))
            }
            None => Ok(()),
        }
    }
}

/// News to members.
impl Roster {
    /// Tells a member something about a team: with what waits to be told there, if one message can say both.
    pub(super) fn tell<T: Transport>(
        &self,
        lent: &mut Lent<'_, T>,
        to: Rank,
        id: TeamId,
        notice: TeamMessage,
    ) -> Result<(), OpError> {
        let amended = lent.mail.amend(to, |waiting| match waiting {
            Message::Team(of, waiting) if *of == id => Some(Message::Team(id, both(waiting, &notice)?)),
            _ => None,
        });
        if amended {
            return Ok(());
        }
        lent.mail.send_soon(lent.core, to, Lane::Request, Message::Team(id, notice))
    }

    /// Tells a member how far this process has come.
    fn tell_pace<T: Transport>(&mut self, lent: &mut Lent<'_, T>, id: TeamId, rank: Rank) {
        let Some(team) = self.all.get_mut(&id) else { return };
        let started = team.started;
        let pace = team.paces.entry(rank).or_default();
        pace.told = pace.told.max(started);
        let pace = Pace { come_to: started, wants: 0, waits_in: None };
        // A member that cannot be told is lost, or will be.
        let _ = self.tell(lent, rank, id, TeamMessage::Pace(pace));
    }

    /// Tells the members that have asked, and may send now what they asked for.
    pub(super) fn tell_askers<T: Transport>(&mut self, lent: &mut Lent<'_, T>, id: TeamId) {
        let Some(team) = self.all.get_mut(&id).filter(|team| team.asking > 0) else { return };
        let started = team.started;
        let mut near = Vec::new();
        let mut answered = 0;
        for (rank, pace) in &mut team.paces {
            let reached = pace.wants > 0 && pace.wants <= started + AHEAD;
            // Also on the way there: what this process waits for now may be held back with what is far off.
            if reached || pace.wants > 0 && started >= pace.told + AHEAD / 2 {
                near.push(*rank);
            }
            if reached {
                pace.wants = 0;
                answered += 1;
            }
        }
        assert!(team.asking >= answered, "a member asks once for what it waits for");
        team.asking -= answered;
        for rank in near {
            self.tell_pace(lent, id, rank);
        }
    }

    /// Tells a member that is about to wait how far this process has come, before it must ask.
    pub(super) fn keep_going<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        id: TeamId,
        (peer, number): (Rank, u64),
    ) {
        let Some(team) = self.all.get_mut(&id) else { return };
        let started = team.started;
        let pace = team.paces.entry(peer).or_default();
        if number >= pace.told + AHEAD / 2 && started > pace.told && number > 1 {
            self.tell_pace(lent, id, peer);
        }
    }

    /// Tells the members that this one has had to do with why the team is broken.
    pub(super) fn tell_team<T: Transport>(&self, lent: &mut Lent<'_, T>, id: TeamId) {
        for rank in self.known_members(id) {
            self.tell_broken(lent, id, rank);
        }
    }

    /// Tells one member so, if it is.
    pub(super) fn tell_broken<T: Transport>(&self, lent: &mut Lent<'_, T>, id: TeamId, rank: Rank) {
        if let Some(broken) = self.all.get(&id).and_then(|team| team.broken) {
            let (why, of) = broken.told;
            let of = broken.difference.unwrap_or_else(|| Difference::none(of));
            self.tell_one(lent, id, rank, TeamBroken { from: broken.from, why: Some(why), of });
        }
    }

    /// Tells the members that this one has had to do with that it has the team no more.
    pub(super) fn tell_dropped<T: Transport>(&self, lent: &mut Lent<'_, T>, id: TeamId) {
        let next = self.all.get(&id).map_or(0, |team| team.started + 1);
        let dropped = dropped(next, lent.core.rank);
        for rank in self.known_members(id) {
            self.tell_one(lent, id, rank, dropped);
        }
    }

    /// Tells a peer that this process has no such team.
    pub(super) fn tell_unknown<T: Transport>(&self, lent: &mut Lent<'_, T>, id: TeamId, peer: Rank) {
        let me = lent.core.rank;
        self.tell_one(lent, id, peer, dropped(0, me));
    }

    fn tell_one<T: Transport>(&self, lent: &mut Lent<'_, T>, id: TeamId, to: Rank, broken: TeamBroken) {
        // A member that cannot be told is lost, or will be.
        let _ = self.tell(lent, to, id, TeamMessage::Broken(broken));
    }
}

/// Says that `me` has the team no more, and has done its part of its collectives before that number.
fn dropped(from: u64, me: Rank) -> TeamBroken {
    TeamBroken { from, why: Some(BreakReason::Dropped), of: Difference::none(me) }
}

/// Whether it says that its sender has no such team.
pub(super) fn says_unknown(broken: &TeamBroken) -> bool {
    (broken.why, broken.from) == (Some(BreakReason::Dropped), 0)
}

/// A message that says as much as these two messages to one member, of which the first has not gone. So no
/// more of them wait than a few for each team, and one for each collective that is doubted.
fn both(waiting: &TeamMessage, notice: &TeamMessage) -> Option<TeamMessage> {
    match (waiting, notice) {
        // It keeps the largest of what it hears, by either.
        (TeamMessage::Pace(one), TeamMessage::Pace(other)) => Some(TeamMessage::Pace(Pace {
            come_to: one.come_to.max(other.come_to),
            wants: one.wants.max(other.wants),
            // It asks again for what it still waits for.
            waits_in: other.waits_in.or(one.waits_in),
        })),
        (TeamMessage::Upheld { .. }, TeamMessage::Upheld { .. }) => (waiting == notice).then_some(*notice),
        // That this process has no such team says less than anything that has been said about its end.
        (TeamMessage::Broken(_), TeamMessage::Broken(other)) if says_unknown(other) => Some(*waiting),
        // More of it is over by now.
        (TeamMessage::Broken(one), TeamMessage::Broken(other)) => {
            let dropped = [one, other].map(|broken| broken.why == Some(BreakReason::Dropped));
            let same = dropped == [false; 2] || dropped == [true; 2] && one.of.ranks == other.of.ranks;
            same.then_some(if other.from <= one.from { *notice } else { *waiting })
        }
        _ => None,
    }
}

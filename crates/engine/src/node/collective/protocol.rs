//! What members of a team tell each other: all of it is taken for what anybody might have sent.

use super::state::{Arrived, Broken, CollectiveRun, Data, EARLY_MAX, Received, Receiving, Sent, Slot};
use crate::collective::{Difference, Signature, Step, TeamId};
use crate::limits::AHEAD;
use crate::node::Node;
use crate::node::operations::op::{Op, OpKind};
use crate::op_id::OpKey;
use crate::wire::{self, BreakReason, Message, Pace, StepData, TeamBroken, TeamMessage};
use crate::{Lane, OpError, Rank, Transport};

/// Answers about as many teams that this process has not, or collectives that somebody doubts, may wait for
/// room on the way to a member: it asks for each of them, and takes none. Whoever keeps the rules asks no
/// more often than it has such teams, or collectives under way.
const UNTAKEN_MAX: usize = 1 << 13;

/// What is said of a member whose bytes do not lie where it says, or were to lie somewhere.
pub(in crate::node) const NOT_OFFERED: &str = "has offered no memory";

/// What is said of one of two members that differ: which of them is wrong nobody knows.
const DIFFER: &str = "and another member called different ones";

impl<T: Transport> Node<T> {
    pub(in crate::node) fn on_team_message(
        &mut self,
        peer: Rank,
        id: TeamId,
        message: &TeamMessage,
        payload: &[u8],
    ) {
        if self.mail.outbox_len() > UNTAKEN_MAX && self.takes_no_answers(peer) {
            return self.on_garbled(peer);
        }
        if id.is_named() && !self.teams.all.contains_key(&id) && !self.core.is_gone(peer) {
            self.make_unasked_team(id);
        }
        let Some(team) = self.teams.all.get(&id) else { return self.on_unknown_team(peer, id, message) };
        let stranger = team.members.as_ref().is_some_and(|members| members.member(peer).is_none());
        if stranger || self.core.is_gone(peer) {
            self.core.counters.malformed += u64::from(stranger);
            return;
        }
        let number = match message {
            TeamMessage::Broken(broken) => return self.on_team_broken(id, peer, broken),
            TeamMessage::Pace(pace) => pace.come_to,
            TeamMessage::Step(step) => step.number,
            TeamMessage::Taken { number, .. }
            | TeamMessage::Confirmed { number, .. }
            | TeamMessage::Doubted { number }
            | TeamMessage::Upheld { number } => *number,
        };
        if team.is_over(number) {
            if let TeamMessage::Pace(pace) = message {
                // What it says of collectives that go on counts, however far it has come.
                self.on_pace(id, peer, pace);
            }
            // It does not know yet.
            return self.tell_broken_team(id, peer);
        }
        match message {
            TeamMessage::Step(step) => self.on_step(id, peer, step, payload),
            TeamMessage::Pace(pace) => self.on_pace(id, peer, pace),
            TeamMessage::Taken { tag, is_seen, .. } => self.on_taken(id, peer, (number, *tag), *is_seen),
            TeamMessage::Confirmed { tag, .. } => self.on_confirmed(id, peer, (number, *tag)),
            TeamMessage::Doubted { .. } => self.on_doubted(id, peer, number),
            TeamMessage::Upheld { .. } => self.on_upheld(id, peer, number),
            TeamMessage::Broken(_) => {}
        }
    }

    /// Whether more answers wait for this member than it could have asked for within the rules. What this
    /// process says by itself does not count, and has an end: see [`both`].
    #[cold]
    fn takes_no_answers(&self, peer: Rank) -> bool {
        let is_answer = |message: &&Message| match message {
            Message::Team(_, TeamMessage::Upheld { .. }) => true,
            Message::Team(_, TeamMessage::Broken(broken)) => says_unknown(broken),
            _ => false,
        };
        self.mail.unsent_to(peer).filter(is_answer).count() > UNTAKEN_MAX
    }

    /// Tells a member something about a team: with what waits to be told there, if one message can say both.
    pub(in crate::node) fn tell(&mut self, to: Rank, id: TeamId, notice: TeamMessage) -> Result<(), OpError> {
        let amended = self.mail.amend(to, |waiting| match waiting {
            Message::Team(of, waiting) if *of == id => Some(Message::Team(id, both(waiting, &notice)?)),
            _ => None,
        });
        if amended {
            return Ok(());
        }
        self.mail.send_soon(&mut self.core, to, Lane::Request, Message::Team(id, notice))
    }

    /// A message for a team that this process has not, or has no more.
    fn on_unknown_team(&mut self, peer: Rank, id: TeamId, message: &TeamMessage) {
        if !matches!(message, TeamMessage::Broken(_)) && !self.core.is_gone(peer) {
            self.tell_one(id, peer, dropped(0, self.core.rank));
        }
    }

    /// A member has come to that collective.
    fn has_come(&mut self, id: TeamId, peer: Rank, number: u64) {
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        if team.paces.entry(peer).or_default().has_come(number) {
            self.send_all_unsent(id);
        }
    }

    /// Sends what waited until a member has come so far.
    pub(in crate::node) fn send_all_unsent(&mut self, id: TeamId) {
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        let mut keys: Vec<(u64, OpKey)> = team.runs.iter().map(|(number, key)| (*number, *key)).collect();
        keys.sort_unstable();
        for (_, key) in keys {
            self.send_unsent(key);
        }
    }

    fn on_pace(&mut self, id: TeamId, peer: Rank, said: &Pace) {
        let Pace { come_to, wants, waits_in } = *said;
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        // Nobody can be farther than the last one here and the few that it may be ahead: but it may well have
        // come to many that it cannot send for yet.
        let pace = team.paces.entry(peer).or_default();
        if wants > pace.wants {
            team.asking += u32::from(pace.wants == 0);
            pace.wants = wants;
        }
        self.has_come(id, peer, come_to);
        self.tell_askers(id);
        if let Some((number, theirs)) = waits_in {
            self.compare(id, peer, number, theirs);
        }
    }

    /// Asks the members that a collective waits for whether they called the same: they may wait in vain for
    /// each other.
    pub(in crate::node) fn ask_the_awaited(&mut self, key: OpKey) {
        let Some(Op { kind: OpKind::Collective(Some(run)), .. }) = self.ops.get(key) else { return };
        let (id, waits_in) = (run.team, Some((run.number, run.signature)));
        let missing = run.receives.iter().filter(|receive| receive.state == Received::No);
        let mut missing: Vec<Rank> = missing.map(|receive| receive.from).collect();
        missing.sort_unstable();
        missing.dedup();
        let Some(team) = self.teams.all.get(&id) else { return };
        let asks = TeamMessage::Pace(Pace { come_to: team.started, wants: 0, waits_in });
        for peer in missing {
            // Who cannot be told is lost, or will be.
            let _ = self.tell(peer, id, asks);
        }
    }

    /// What this process called as a team's collective of that number, if it is under way or has ended not
    /// long ago.
    fn called(&self, id: TeamId, number: u64) -> Option<Signature> {
        if (self.small.team, self.small.number) == (id, number) {
            return Some(self.small.signature);
        }
        let team = self.teams.all.get(&id)?;
        match team.runs.get(&number).and_then(|key| self.ops.get(*key)).map(|op| &op.kind) {
            Some(OpKind::Collective(Some(run))) => Some(run.signature),
            _ => team.ended_as(number),
        }
    }

    /// A member waits for this one in that collective: both must have called the same.
    fn compare(&mut self, id: TeamId, peer: Rank, number: u64, theirs: Signature) {
        let ours = self.called(id, number);
        if let Some(ours) = ours.filter(|ours| *ours != theirs) {
            let error = self.differ(id, [theirs, ours], peer);
            self.break_team(id, number, error);
        }
    }

    /// Tells the members that have asked, and may send now what they asked for.
    pub(in crate::node) fn tell_askers(&mut self, id: TeamId) {
        let Some(team) = self.teams.all.get_mut(&id).filter(|team| team.asking > 0) else { return };
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
        team.asking -= answered;
        for rank in near {
            self.tell_pace(id, rank);
        }
    }

    fn tell_pace(&mut self, id: TeamId, rank: Rank) {
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        let started = team.started;
        let pace = team.paces.entry(rank).or_default();
        pace.told = pace.told.max(started);
        let pace = Pace { come_to: started, wants: 0, waits_in: None };
        let _ = self.tell(rank, id, TeamMessage::Pace(pace));
    }

    /// What this process has offered is not needed any more, and the receiver has seen that it still lay
    /// there, or asks.
    fn on_taken(&mut self, id: TeamId, peer: Rank, (number, tag): (u64, u16), is_seen: bool) {
        let Some(key) = self.teams.all.get(&id).and_then(|team| team.runs.get(&number)).copied() else {
            self.core.counters.malformed += 1;
            return;
        };
        let Some(mut run) = self.take_run(key) else { return };
        let offered =
            run.sends.iter_mut().find(|send| (send.to, send.tag, send.state) == (peer, tag, Sent::Offered));
        match offered {
            Some(send) => {
                send.state = Sent::Over;
                run.close(1);
                if !is_seen {
                    let confirmed = TeamMessage::Confirmed { number, tag };
                    // Who cannot be told is lost, or will be.
                    let _ = self.mail.send_soon(
                        &mut self.core,
                        peer,
                        Lane::Request,
                        Message::Team(id, confirmed),
                    );
                }
            }
            None => self.core.counters.malformed += 1,
        }
        self.put_run(key, run, Ok(()));
        self.has_come(id, peer, number);
        self.go_on_with(key);
    }

    /// What this process has taken was the bytes that were offered.
    fn on_confirmed(&mut self, id: TeamId, peer: Rank, (number, tag): (u64, u16)) {
        let key = self.teams.all.get(&id).and_then(|team| team.runs.get(&number)).copied();
        let Some((key, mut run)) = key.and_then(|key| Some((key, self.take_run(key)?))) else {
            self.core.counters.malformed += 1;
            return;
        };
        let taken = |receive: &&mut Receiving| {
            (receive.from, receive.tag, receive.state) == (peer, tag, Received::Taken)
        };
        match run.receives.iter_mut().find(taken) {
            Some(receive) => {
                receive.state = Received::Over;
                run.close(1);
            }
            None => self.core.counters.malformed += 1,
        }
        let confirmed = run.is_confirmed(tag);
        self.put_run(key, run, Ok(()));
        if confirmed {
            // What is made of it waited for that.
            self.send_unsent(key);
        }
        self.go_on_with(key);
    }

    /// A member could not reach what this process offers in a collective that has not failed here. Which
    /// bytes that was does not matter; and it waits for an answer.
    fn on_doubted(&mut self, id: TeamId, peer: Rank, number: u64) {
        let started = self.teams.all.get(&id).map_or(0, |team| team.started);
        if !(1..=started).contains(&number) {
            self.core.counters.malformed += 1;
            return;
        }
        // Who cannot be told is lost, or will be.
        let _ = self.tell(peer, id, TeamMessage::Upheld { number });
    }

    /// A member is in the collective still: that what it offers could not be reached ends the collective.
    fn on_upheld(&mut self, id: TeamId, peer: Rank, number: u64) {
        let key = self.teams.all.get(&id).and_then(|team| team.runs.get(&number)).copied();
        let run = key.and_then(|key| Some((key, self.take_run(key)?)));
        let Some((key, run)) = run else {
            self.core.counters.malformed += 1;
            return;
        };
        let result = match run.doubted {
            Some((doubted, error)) if doubted == peer => Err(error),
            _ => {
                self.core.counters.malformed += 1;
                Ok(())
            }
        };
        self.put_run(key, run, result);
    }

    /// A step of a collective: it is expected, or kept until it is.
    fn on_step(&mut self, id: TeamId, peer: Rank, step: &wire::Step, payload: &[u8]) {
        let (number, tag) = (step.number, step.tag);
        let Some(arrived) = arrived(step, payload) else {
            self.core.counters.malformed += 1;
            return;
        };
        self.has_come(id, peer, number);
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        if number > team.started {
            let pace = team.paces.entry(peer).or_default();
            if number > team.started + AHEAD || pace.early >= EARLY_MAX {
                let what = "runs ahead of the team";
                return self.break_team(id, 0, OpError::Protocol { peer, what });
            }
            pace.early += u64::from(team.early.insert((number, peer, tag), arrived).is_none());
            return;
        }
        let slot = (number, peer, tag);
        if self.small.is(id, number) {
            return self.on_small_step(slot, arrived);
        }
        let Some(key) = team.runs.get(&number).copied() else {
            return self.on_unasked(id, peer, number, arrived.signature);
        };
        self.arrive_at(key, slot, arrived);
        self.keep_going(id, peer, number);
    }

    /// A step has come of a collective that has ended here without it: the member has called something else,
    /// or breaks the rules.
    fn on_unasked(&mut self, id: TeamId, peer: Rank, number: u64, theirs: Signature) {
        let ours = self.called(id, number);
        if number == 0 || ours == Some(theirs) {
            self.core.counters.malformed += 1;
            return;
        }
        let error = self.differ(id, [theirs, ours.unwrap_or(Signature::PAST)], peer);
        self.break_team(id, number, error);
    }

    /// What has come of a collective that only now begins here: all of it is to be of the same.
    pub(in crate::node) fn check_early(
        &mut self,
        id: TeamId,
        number: u64,
        ours: Signature,
    ) -> Result<(), OpError> {
        let Some(team) = self.teams.all.get(&id).filter(|team| !team.early.is_empty()) else { return Ok(()) };
        let mut early = team.early.iter().filter(|((of, ..), _)| *of == number);
        match early.find(|(_, arrived)| arrived.signature != ours) {
            Some(((_, peer, _), arrived)) => {
                let (theirs, peer) = (arrived.signature, *peer);
                Err(self.differ(id, [theirs, ours], peer))
            }
            None => Ok(()),
        }
    }

    /// A step has come of a collective under way.
    pub(in crate::node) fn arrive_at(&mut self, key: OpKey, slot: Slot, arrived: Arrived) {
        let Some(mut run) = self.take_run(key) else { return };
        let result = self.take_step(key, &mut run, slot, arrived);
        self.put_run(key, run, result);
        self.go_on_with(key);
    }

    /// Takes a step of a collective that this process has come to.
    fn take_step(
        &mut self,
        key: OpKey,
        run: &mut CollectiveRun,
        slot: Slot,
        arrived: Arrived,
    ) -> Result<(), OpError> {
        let (_, peer, tag) = slot;
        let wanted = |from: Rank, with: u16| (from, with) == (peer, tag);
        if let Some(at) = run
            .receives
            .iter()
            .position(|receive| wanted(receive.from, receive.tag) && receive.state == Received::No)
        {
            return self.receive_step(key, run, at, arrived);
        }
        // Only what the plan still asks for is kept; whoever has called something else is told so.
        self.agree(run, arrived.signature, peer)?;
        let rest = &run.plan.steps[run.at..];
        let member_rank = |member: u32| self.member_rank(run.team, member);
        let expected = rest.iter().any(|step| {
            let (Step::Receive { from, tag, .. } | Step::Await { from, tag, .. }) = step else {
                return false;
            };
            member_rank(*from).is_some_and(|from| wanted(from, *tag))
        });
        let team = self.teams.all.get_mut(&run.team).filter(|_| expected);
        let Some(team) = team else {
            self.core.counters.malformed += 1;
            return Ok(());
        };
        team.early.insert(slot, arrived);
        Ok(())
    }

    /// Takes what was expected.
    pub(in crate::node) fn receive_step(
        &mut self,
        key: OpKey,
        run: &mut CollectiveRun,
        at: usize,
        arrived: Arrived,
    ) -> Result<(), OpError> {
        let receive = &run.receives[at];
        let (peer, into, len) = (receive.from, receive.into, receive.len);
        self.agree(run, arrived.signature, peer)?;
        if arrived.len != len {
            let of = |bytes| Signature { bytes, ..run.signature };
            return Err(self.differ(run.team, [of(arrived.len), of(len)], peer));
        }
        if let Data::At(_, given_up) = arrived.data {
            run.receives[at].given_up = given_up;
        }
        let state = match (arrived.data, into) {
            (Data::At(offered, _), Some(into)) => return self.get_offered(key, run, at, (offered, into)),
            (Data::At(offered, _), None) => Received::Known(offered),
            (_, None) => return Err(OpError::Protocol { peer, what: NOT_OFFERED }),
            (Data::Word(word), Some(into)) => {
                run.memories.write(&mut self.core.transport, into, &word[..len as usize])?;
                Received::Over
            }
            (Data::Bytes(bytes), Some(into)) => {
                run.memories.write(&mut self.core.transport, into, &bytes)?;
                Received::Over
            }
        };
        run.receives[at].state = state;
        run.close(1);
        Ok(())
    }

    /// Tells a member that is about to wait how far this process has come, before it must ask.
    fn keep_going(&mut self, id: TeamId, peer: Rank, number: u64) {
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        let started = team.started;
        let pace = team.paces.entry(peer).or_default();
        if number >= pace.told + AHEAD / 2 && started > pace.told && number > 1 {
            self.tell_pace(id, peer);
        }
    }

    /// What two members must have called alike.
    fn agree(&mut self, run: &CollectiveRun, theirs: Signature, peer: Rank) -> Result<(), OpError> {
        if run.signature == theirs {
            Ok(())
        } else {
            Err(self.differ(run.team, [theirs, run.signature], peer))
        }
    }

    /// Notes what a member called, and what this one did, for whoever is told that the team is over.
    fn differ(&mut self, id: TeamId, signatures: [Signature; 2], peer: Rank) -> OpError {
        if let Some(team) = self.teams.all.get_mut(&id) {
            team.differs = Some(Difference::of([peer, self.core.rank], signatures));
        }
        OpError::Team { peer, what: DIFFER }
    }

    /// What two members called, if a team's collectives are over because they called different ones.
    pub fn difference(&self, team: TeamId) -> Option<Difference> {
        self.teams.all.get(&team)?.broken?.difference
    }

    fn on_team_broken(&mut self, id: TeamId, peer: Rank, broken: &TeamBroken) {
        let TeamBroken { mut from, why, of } = *broken;
        let [rank, second] = of.ranks;
        let Some(why) = why.filter(|_| rank.max(second) < self.core.size) else {
            self.core.counters.malformed += 1;
            return;
        };
        let team = |what| OpError::Team { peer: rank, what };
        let error = match why {
            BreakReason::Lost => {
                // That one's word alone makes nobody lost. Who has ended is found to have.
                self.core.transport.suspect(rank);
                OpError::PeerLost { peer: rank }
            }
            BreakReason::Differs => team(DIFFER),
            BreakReason::GivenUp => team("has given up one of them"),
            // As far as it goes, it has done its part; of those that this process has not come to, too, if it
            // says so.
            BreakReason::Dropped => {
                if rank == peer {
                    from = self.first_that_needs(id, peer, from);
                }
                team("has the team no more")
            }
            BreakReason::Failed => team("could not do its part"),
        };
        let difference = (why == BreakReason::Differs).then_some(of);
        self.break_team_as(id, Broken { from, error, told: (why, rank), difference });
    }

    /// Tells the members that this one has had to do with why the team is broken.
    pub(in crate::node) fn tell_team(&mut self, id: TeamId) {
        for rank in self.known_members(id) {
            self.tell_broken_team(id, rank);
        }
    }

    /// Tells the members that this one has had to do with that it has the team no more.
    pub(in crate::node) fn tell_dropped(&mut self, id: TeamId) {
        let next = self.teams.all.get(&id).map_or(0, |team| team.started + 1);
        let dropped = dropped(next, self.core.rank);
        for rank in self.known_members(id) {
            self.tell_one(id, rank, dropped);
        }
    }

    fn known_members(&self, id: TeamId) -> Vec<Rank> {
        let known = self.teams.all.get(&id).map(|team| team.paces.keys().copied().collect());
        let mut known: Vec<Rank> = known.unwrap_or_default();
        known.sort_unstable();
        known
    }

    fn tell_broken_team(&mut self, id: TeamId, rank: Rank) {
        if let Some(broken) = self.teams.all.get(&id).and_then(|team| team.broken) {
            let (why, of) = broken.told;
            let of = broken.difference.unwrap_or_else(|| Difference::none(of));
            self.tell_one(id, rank, TeamBroken { from: broken.from, why: Some(why), of });
        }
    }

    fn tell_one(&mut self, id: TeamId, to: Rank, broken: TeamBroken) {
        // Who cannot be told is lost, or will be.
        let _ = self.tell(to, id, TeamMessage::Broken(broken));
    }
}

/// Says that `me` has the team no more, and has done its part of its collectives before that number.
fn dropped(from: u64, me: Rank) -> TeamBroken {
    TeamBroken { from, why: Some(BreakReason::Dropped), of: Difference::none(me) }
}

/// Whether it says that its sender has no such team.
fn says_unknown(broken: &TeamBroken) -> bool {
    (broken.why, broken.from) == (Some(BreakReason::Dropped), 0)
}

/// What says as much as these two messages to one member, of which the first has not gone. So no more of them
/// wait than a few for each team, and one for each collective that is doubted.
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

/// A step's data, if there can be such.
fn arrived(step: &wire::Step, payload: &[u8]) -> Option<Arrived> {
    let (len, data) = match step.data? {
        StepData::Word { len, bytes } => (u64::from(len), Data::Word(bytes)),
        StepData::Payload => (payload.len() as u64, Data::Bytes(payload.to_vec())),
        StepData::Offer { at, len, given_up } => (len, Data::At(at, given_up)),
    };
    Some(Arrived { signature: step.signature, len, data })
}

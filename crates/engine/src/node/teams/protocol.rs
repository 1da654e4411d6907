//! The messages that members of a team send each other. The receiver takes each for something that anybody
//! might have sent.

use super::roster::{DIFFER, says_unknown};
use super::run::{Received, Receiving, Sent};
use super::state::Teams;
use super::team::{Arrived, Broken, Data, EARLY_MAX};
use crate::collective::{Signature, TeamId};
use crate::limits::AHEAD;
use crate::node::lent::Lent;
use crate::op_id::OpKey;
use crate::wire::{self, BreakReason, Message, Pace, StepData, TeamBroken, TeamMessage};
use crate::{Lane, OpError, Rank, Transport};

/// Answers about as many teams that this process has not, or collectives that somebody doubts, may wait for
/// room on the way to a member: it asks for each of them, and takes none. A member that keeps the rules asks
/// no more often than it has such teams, or collectives under way.
const UNTAKEN_MAX: usize = 1 << 13;

impl Teams {
    /// A peer of the job says something about a team. `first_lost` is the rank of the job whose process is
    /// lost, if any is.
    pub(in crate::node) fn on_message<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (peer, first_lost): (Rank, Option<Rank>),
        (id, message): (TeamId, &TeamMessage),
        payload: &[u8],
    ) {
        if lent.mail.outbox_len() > UNTAKEN_MAX && takes_no_answers(lent, peer) {
            return lent.core.on_garbled(peer);
        }
        if id.is_named() && !self.roster.all.contains_key(&id) && !lent.core.is_gone(peer) {
            self.make_unasked_team(lent, id, first_lost);
        }
        let Some(team) = self.roster.all.get(&id) else {
            if !matches!(message, TeamMessage::Broken(_)) && !lent.core.is_gone(peer) {
                self.roster.tell_unknown(lent, id, peer);
            }
            return;
        };
        let stranger = team.members.as_ref().is_some_and(|members| members.member(peer).is_none());
        if stranger || lent.core.is_gone(peer) {
            lent.core.counters.malformed += u64::from(stranger);
            return;
        }
        let number = match message {
            TeamMessage::Broken(broken) => return self.on_team_broken(lent, (id, peer), broken),
            TeamMessage::Pace(pace) => pace.come_to,
            TeamMessage::Step(step) => step.number,
            TeamMessage::Taken { number, .. }
            | TeamMessage::Confirmed { number, .. }
            | TeamMessage::Doubted { number }
            | TeamMessage::Upheld { number } => *number,
        };
        if team.is_over(number) {
            if let TeamMessage::Pace(pace) = message {
                // Its word on collectives that go on counts, however far it has come.
                self.on_pace(lent, (id, peer), pace);
            }
            // It does not know yet.
            return self.roster.tell_broken(lent, id, peer);
        }
        match message {
            TeamMessage::Step(step) => self.on_step(lent, (id, peer), step, payload),
            TeamMessage::Pace(pace) => self.on_pace(lent, (id, peer), pace),
            TeamMessage::Taken { tag, is_seen, .. } => {
                self.on_taken(lent, (id, peer), (number, *tag), *is_seen);
            }
            TeamMessage::Confirmed { tag, .. } => self.on_confirmed(lent, (id, peer), (number, *tag)),
            TeamMessage::Doubted { .. } => self.on_doubted(lent, (id, peer), number),
            TeamMessage::Upheld { .. } => self.on_upheld(lent, (id, peer), number),
            TeamMessage::Broken(_) => {}
        }
    }

    /// Makes a named team that a peer has come to earlier, if there is room for such.
    fn make_unasked_team<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        team: TeamId,
        first_lost: Option<Rank>,
    ) {
        if self.roster.add_unasked(team, lent.core.size)
            && let Some(peer) = first_lost
        {
            self.break_team(lent, (team, 0), OpError::PeerLost { peer });
        }
    }

    /// A team's collective of that number, if it is under way.
    fn run_of(&self, id: TeamId, number: u64) -> Option<OpKey> {
        self.roster.all.get(&id)?.runs.get(&number).copied()
    }

    /// A member has come to that collective.
    fn has_come<T: Transport>(&mut self, lent: &mut Lent<'_, T>, (id, peer): (TeamId, Rank), number: u64) {
        let Some(team) = self.roster.all.get_mut(&id) else { return };
        if team.paces.entry(peer).or_default().has_come(number) {
            self.send_all_unsent(lent, id);
        }
    }

    fn on_pace<T: Transport>(&mut self, lent: &mut Lent<'_, T>, (id, peer): (TeamId, Rank), said: &Pace) {
        let Pace { come_to, wants, waits_in } = *said;
        let Some(team) = self.roster.all.get_mut(&id) else { return };
        // Nobody can be farther than the last one here and the few that it may be ahead: but it may well have
        // come to many that it cannot send for yet.
        let pace = team.paces.entry(peer).or_default();
        if wants > pace.wants {
            team.asking += u32::from(pace.wants == 0);
            pace.wants = wants;
        }
        self.has_come(lent, (id, peer), come_to);
        self.roster.tell_askers(lent, id);
        if let Some((number, theirs)) = waits_in {
            self.compare(lent, (id, peer), number, theirs);
        }
    }

    /// This process's call as a team's collective of that number, if it is under way or has ended not long
    /// ago.
    fn called(&self, id: TeamId, number: u64) -> Option<Signature> {
        if (self.small.team, self.small.number) == (id, number) {
            return Some(self.small.signature);
        }
        match self.run_of(id, number).and_then(|key| self.runs.get(key)) {
            Some(run) => Some(run.signature),
            None => self.roster.all.get(&id)?.ended_as(number),
        }
    }

    /// A member waits for this one in that collective: both must have called the same.
    fn compare<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, peer): (TeamId, Rank),
        number: u64,
        theirs: Signature,
    ) {
        let ours = self.called(id, number);
        if let Some(ours) = ours.filter(|ours| *ours != theirs) {
            let error = self.roster.differ(id, [theirs, ours], [peer, lent.core.rank]);
            self.break_team(lent, (id, number), error);
        }
    }

    /// The memory that this process has offered is not needed any more. The receiver has seen that it still
    /// lay there, or asks.
    fn on_taken<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, peer): (TeamId, Rank),
        (number, tag): (u64, u16),
        is_seen: bool,
    ) {
        let Some(key) = self.run_of(id, number) else {
            lent.core.counters.malformed += 1;
            return;
        };
        self.with_run(lent, key, |steps, run| {
            let offered = run
                .sends
                .iter_mut()
                .find(|send| (send.to, send.tag, send.state) == (peer, tag, Sent::Offered));
            let Lent { core, mail, .. } = &mut *steps.lent;
            match offered {
                Some(send) => {
                    send.state = Sent::Over;
                    run.close(1);
                    if !is_seen {
                        let confirmed = Message::Team(id, TeamMessage::Confirmed { number, tag });
                        // A member that cannot be told is lost, or will be.
                        let _ = mail.send_soon(core, peer, Lane::Request, confirmed);
                    }
                }
                None => core.counters.malformed += 1,
            }
            ((), Ok(()))
        });
        self.has_come(lent, (id, peer), number);
        self.go_on_with(lent, key);
    }

    /// The bytes that this process has taken were those that were offered.
    fn on_confirmed<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, peer): (TeamId, Rank),
        (number, tag): (u64, u16),
    ) {
        let Some(key) = self.run_of(id, number) else {
            lent.core.counters.malformed += 1;
            return;
        };
        let taken = |receive: &&mut Receiving| {
            (receive.from, receive.tag, receive.state) == (peer, tag, Received::Taken)
        };
        let confirmed = self.with_run(lent, key, |steps, run| {
            match run.receives.iter_mut().find(taken) {
                Some(receive) => {
                    receive.state = Received::Over;
                    run.close(1);
                }
                None => steps.lent.core.counters.malformed += 1,
            }
            (run.is_confirmed(tag), Ok(()))
        });
        if confirmed == Some(true) {
            // What is made of it waited for that.
            self.send_unsent(lent, key);
        }
        self.go_on_with(lent, key);
    }

    /// A member could not reach what this process offers in a collective that has not failed here. Which
    /// bytes that was does not matter; and it waits for an answer.
    fn on_doubted<T: Transport>(&mut self, lent: &mut Lent<'_, T>, (id, peer): (TeamId, Rank), number: u64) {
        let started = self.roster.all.get(&id).map_or(0, |team| team.started);
        if !(1..=started).contains(&number) {
            lent.core.counters.malformed += 1;
            return;
        }
        // A member that cannot be told is lost, or will be.
        let _ = self.roster.tell(lent, peer, id, TeamMessage::Upheld { number });
    }

    /// A member is in the collective still: that what it offers could not be reached ends the collective.
    fn on_upheld<T: Transport>(&mut self, lent: &mut Lent<'_, T>, (id, peer): (TeamId, Rank), number: u64) {
        let Some(key) = self.run_of(id, number) else {
            lent.core.counters.malformed += 1;
            return;
        };
        self.with_run(lent, key, |steps, run| match run.doubted {
            Some((doubted, error)) if doubted == peer => ((), Err(error)),
            _ => {
                steps.lent.core.counters.malformed += 1;
                ((), Ok(()))
            }
        });
    }

    /// A step of a collective: it is expected, or kept until it is.
    fn on_step<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, peer): (TeamId, Rank),
        step: &wire::Step,
        payload: &[u8],
    ) {
        let (number, tag) = (step.number, step.tag);
        let Some(arrived) = arrived(step, payload) else {
            lent.core.counters.malformed += 1;
            return;
        };
        self.has_come(lent, (id, peer), number);
        let Some(team) = self.roster.all.get_mut(&id) else { return };
        if number > team.started {
            let pace = team.paces.entry(peer).or_default();
            if number > team.started + AHEAD || pace.early >= EARLY_MAX {
                let what = "runs ahead of the team";
                return self.break_team(lent, (id, 0), OpError::Protocol { peer, what });
            }
            pace.early += u64::from(team.early.insert((number, peer, tag), arrived).is_none());
            return;
        }
        let slot = (number, peer, tag);
        if self.small.is(id, number) {
            let is_taken = self.small.on_step(slot, arrived);
            lent.core.counters.malformed += u64::from(!is_taken);
            return;
        }
        let Some(key) = team.runs.get(&number).copied() else {
            return self.on_unasked(lent, (id, peer), number, arrived.signature);
        };
        self.arrive_at(lent, key, (slot, arrived));
        self.roster.keep_going(lent, id, (peer, number));
    }

    /// A step has come of a collective that has ended here without it: the member has called something else,
    /// or breaks the rules.
    fn on_unasked<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, peer): (TeamId, Rank),
        number: u64,
        theirs: Signature,
    ) {
        let ours = self.called(id, number);
        if number == 0 || ours == Some(theirs) {
            lent.core.counters.malformed += 1;
            return;
        }
        let signatures = [theirs, ours.unwrap_or(Signature::PAST)];
        let error = self.roster.differ(id, signatures, [peer, lent.core.rank]);
        self.break_team(lent, (id, number), error);
    }

    fn on_team_broken<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, peer): (TeamId, Rank),
        broken: &TeamBroken,
    ) {
        let TeamBroken { mut from, why, of } = *broken;
        let [rank, second] = of.ranks;
        let Some(why) = why.filter(|_| rank.max(second) < lent.core.size) else {
            lent.core.counters.malformed += 1;
            return;
        };
        let team = |what| OpError::Team { peer: rank, what };
        let error = match why {
            BreakReason::Lost => {
                // That one's word alone makes nobody lost. A member that has ended is found to have.
                lent.core.transport.suspect(rank);
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
        self.break_team_as(lent, id, Broken { from, error, told: (why, rank), difference });
    }
}

/// Whether more answers wait for this member than it could have asked for within the rules. Words that this
/// process says by itself do not count, and have an end.
#[cold]
fn takes_no_answers<T>(lent: &Lent<'_, T>, peer: Rank) -> bool {
    let is_answer = |message: &&Message| match message {
        Message::Team(_, TeamMessage::Upheld { .. }) => true,
        Message::Team(_, TeamMessage::Broken(broken)) => says_unknown(broken),
        _ => false,
    };
    lent.mail.unsent_to(peer).filter(is_answer).count() > UNTAKEN_MAX
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

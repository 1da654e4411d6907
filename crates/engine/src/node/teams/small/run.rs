//! Small collectives: of a word of each member, as long as all that they need comes soon.
//!
//! A barrier, or an all-reduce of up to eight bytes, is one message each way in each of a few rounds. An
//! operation in the table, the steps of its plan and its memories cost several times what these messages do.
//! So a caller that polls for it anyway begins it without them. It goes on with it as a collective like any
//! other ([`Start::goes_on`](crate::node::Start::goes_on)) once it has polled for long enough, or anything is
//! not as it should be. Other members see no difference: it sends what the plan does.

use super::state::{Begun, SmallCollective, SmallPolled};
use crate::collective::{Collective, Rounds, TeamId};
use crate::limits::AHEAD;
use crate::node::lent::Lent;
use crate::node::teams::state::Teams;
use crate::node::teams::team::Team;
use crate::{Lane, OpError, Transport};

impl Teams {
    /// Begins a team's next collective with this member's word, if it is one by rounds and nothing stands
    /// against it. `false`: nothing was begun.
    pub(in crate::node) fn begin_small<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (id, what): (TeamId, &Collective),
        word: [u8; 8],
    ) -> bool {
        let like_last = self.small.team == id && self.small.what.as_ref() == Some(what);
        if self.small.is_under_way || !(like_last || self.prepare_small(lent, id, what)) {
            return false;
        }
        let Some(team) = self.roster.all.get_mut(&id) else { return false };
        if team.broken.is_some() || team.asking > 0 {
            return false;
        }
        if self.small.is_to_be_noted && self.small.number != team.started {
            // Others of the team were begun while it was under way, and not everybody may have come to those.
            self.note_small(lent);
            return false;
        }
        team.started += 1;
        let (number, any_early) = (team.started, !team.early.is_empty());
        let SmallCollective { number: last, round, come, .. } = self.small;
        self.small.at_round(number, 0);
        (self.small.come, self.small.falls_back) = (0, false);
        self.small.is_under_way = self.send_word(lent, word);
        if !self.small.is_under_way {
            let team = self.roster.all.get_mut(&id).expect("looked at above");
            assert!(team.started > 0, "it was started just now");
            team.started -= 1;
            // The last one may still have to be noted.
            self.small.at_round(last, round);
            self.small.come = come;
            return false;
        }
        if any_early {
            self.take_early(lent, id);
        }
        true
    }

    /// Takes what came before this member had come to the collective.
    #[cold]
    fn take_early<T: Transport>(&mut self, lent: &mut Lent<'_, T>, id: TeamId) {
        let number = self.small.number;
        let Some(team) = self.roster.all.get_mut(&id) else { return };
        self.small.early = team.early.extract_if(|slot, _| slot.0 == number).collect();
        team.count_early();
        self.take_early_word(lent);
    }

    /// Finds out whom this member exchanges words with. `false`: it is no such collective, or one of them has
    /// never been talked to, and must be told of this process first.
    fn prepare_small<T: Transport>(&mut self, lent: &mut Lent<'_, T>, id: TeamId, what: &Collective) -> bool {
        self.note_small(lent);
        let rounds =
            self.roster.team(id, lent.core.rank).and_then(|(size, me)| Some((what.rounds(size)?, me)));
        let Some((rounds, me)) = rounds.filter(|(rounds, _)| rounds.count > 0) else { return false };
        let Some(Team { members: Some(members), paces, .. }) = self.roster.all.get(&id) else { return false };
        let known = |member| members.rank(member).filter(|rank| paces.contains_key(rank));
        let (mut partners, mut first) = ([(0, 0); Rounds::MAX], [false; Rounds::MAX]);
        for round in 0..rounds.count {
            let (to, from) = rounds.partners(me, round);
            first[round] = from < me;
            let (Some(to), Some(from)) = (known(to), known(from)) else { return false };
            partners[round] = (to, from);
        }
        let (what, signature) = (Some(what.clone()), what.signature());
        self.small = SmallCollective {
            team: id,
            what,
            signature,
            rounds,
            partners,
            first,
            ..SmallCollective::default()
        };
        true
    }

    /// Goes on with the next round, after [`SmallPolled::Word`], unless it was the last: with what the two
    /// words have come to.
    #[inline]
    pub(in crate::node) fn next_small_round<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        word: [u8; 8],
    ) -> SmallPolled {
        if !self.small.is_under_way {
            return SmallPolled::FallsBack;
        }
        let SmallCollective { number, round, .. } = self.small;
        self.small.at_round(number, round + 1);
        if !self.send_word(lent, word) {
            self.small.at_round(number, round);
            return SmallPolled::FallsBack;
        }
        if !self.small.early.is_empty() {
            self.take_early_word(lent);
        }
        self.small.poll(lent.core)
    }

    /// Ends the small collective under way for good, and with it the team's collectives.
    pub(in crate::node) fn give_up_small<T: Transport>(&mut self, lent: &mut Lent<'_, T>) {
        if let Some(Begun { number, .. }) = self.leave_small(lent) {
            let error = OpError::Team { peer: lent.core.rank, what: "has given up one of them" };
            self.break_team(lent, (self.small.team, number), error);
        }
    }

    /// Ends the small collective under way, of this team, for the collective that goes on with it.
    pub(in crate::node) fn take_small<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        team: TeamId,
    ) -> Option<Begun> {
        if self.small.team == team { self.leave_small(lent) } else { None }
    }

    fn leave_small<T: Transport>(&mut self, lent: &mut Lent<'_, T>) -> Option<Begun> {
        if !self.small.is_under_way {
            return None;
        }
        self.note_paces(lent);
        self.small.is_to_be_noted = false;
        Some(self.small.leave())
    }

    /// Sends the word of the round that the small collective is at, if it may be sent just now.
    #[inline]
    fn send_word<T: Transport>(&mut self, lent: &mut Lent<'_, T>, word: [u8; 8]) -> bool {
        let SmallCollective { team, number, round, .. } = self.small;
        let (to, _) = self.small.partners[round];
        if lent.mail.outbox_len() > 0 || lent.mail.must_wait(to, Lane::Request) {
            return false;
        }
        // If it is to be noted, it is of the one before, to which all have come.
        if !self.small.is_to_be_noted {
            let pace = self.roster.all.get(&team).and_then(|team| team.paces.get(&to));
            if pace.is_none_or(|pace| number > pace.come_to.saturating_add(AHEAD)) {
                return false;
            }
        }
        let words = self.small.head.with(word);
        lent.core.transport.send(to, Lane::Request, &words, &[]).is_ok()
    }

    /// Notes what the last small collective says of how far members have come: before anything else of its
    /// team, which would begin with another number.
    pub(in crate::node) fn note_small<T: Transport>(&mut self, lent: &mut Lent<'_, T>) {
        if std::mem::take(&mut self.small.is_to_be_noted) {
            self.note_paces(lent);
        }
    }

    /// Notes how far members have come by the words that they sent, and how far they know this one to be by
    /// those it sent.
    fn note_paces<T: Transport>(&mut self, lent: &mut Lent<'_, T>) {
        let SmallCollective { team: id, number, come, round, partners, .. } = self.small;
        let Some(team) = self.roster.all.get_mut(&id) else { return };
        let mut awaited = false;
        for (at, (to, from)) in partners[..=round].iter().enumerate() {
            let mut pace = team.paces.entry(*to).or_default();
            pace.told = pace.told.max(number);
            if from != to {
                pace = team.paces.entry(*from).or_default();
            }
            if at < come {
                awaited |= pace.has_come(number);
            }
        }
        if awaited {
            self.send_all_unsent(lent, id);
        }
    }

    /// Takes the round's word, if it came before it was waited for.
    fn take_early_word<T: Transport>(&mut self, lent: &mut Lent<'_, T>) {
        for (slot, arrived) in std::mem::take(&mut self.small.early) {
            lent.core.counters.malformed += u64::from(!self.small.on_step(slot, arrived));
        }
    }
}

//! Small collectives: of a word of each member, as long as all that they need comes soon.
//!
//! A barrier, or an all-reduce of up to eight bytes, is one message each way in each of a few rounds. An
//! operation in the table, the steps of its plan and its memories cost several times what these messages do.
//! So whoever polls for it anyway begins it without them, and goes on with it as a collective like any other
//! ([`Start::goes_on`](crate::node::Start::goes_on)) once it has polled for long enough, or anything is not
//! as it should be. Other members see no difference: it sends what the plan does.

use super::state::{Begun, SmallCollective, SmallPolled};
use crate::collective::{Collective, Rounds, TeamId};
use crate::limits::AHEAD;
use crate::node::Node;
use crate::node::collective::state::{Arrived, Data, EARLY_MAX, Slot, Team};
use crate::wire::WordHead;
use crate::{Lane, OpError, Transport};

impl<T: Transport> Node<T> {
    /// Begins a team's next collective with this member's word, if it is one by rounds and nothing stands
    /// against it: then whoever has begun it asks [`Node::poll_small_collective`] for what comes of it,
    /// between polls. `false`: nothing was begun.
    pub fn begin_small_collective(&mut self, id: TeamId, what: &Collective, word: [u8; 8]) -> bool {
        let like_last = self.small.team == id && self.small.what.as_ref() == Some(what);
        if self.small.is_under_way || !(like_last || self.prepare_small(id, what)) {
            return false;
        }
        let Some(team) = self.teams.all.get_mut(&id) else { return false };
        if team.broken.is_some() || team.asking > 0 {
            return false;
        }
        if self.small.is_to_be_noted && self.small.number != team.started {
            // Others of the team were begun while it was under way, and not everybody may have come to those.
            self.note_small();
            return false;
        }
        team.started += 1;
        let (number, any_early) = (team.started, !team.early.is_empty());
        let SmallCollective { number: last, round, come, .. } = self.small;
        self.small.at_round(number, 0);
        (self.small.come, self.small.falls_back) = (0, false);
        self.small.is_under_way = self.send_word(word);
        if !self.small.is_under_way {
            let team = self.teams.all.get_mut(&id).expect("looked at above");
            assert!(team.started > 0, "it was started just now");
            team.started -= 1;
            // The last one may still have to be noted.
            self.small.at_round(last, round);
            self.small.come = come;
            return false;
        }
        if any_early {
            self.take_early(id);
        }
        true
    }

    /// Takes what came before this member had come to the collective.
    #[cold]
    fn take_early(&mut self, id: TeamId) {
        let number = self.small.number;
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        self.small.early = team.early.extract_if(|slot, _| slot.0 == number).collect();
        team.count_early();
        self.take_early_word();
    }

    /// Finds out whom this member exchanges words with. `false`: it is no such collective, or one of them has
    /// never been talked to, and must be told of this process first.
    fn prepare_small(&mut self, id: TeamId, what: &Collective) -> bool {
        self.note_small();
        let rounds = self.team(id).and_then(|(size, me)| Some((what.rounds(size)?, me)));
        let Some((rounds, me)) = rounds.filter(|(rounds, _)| rounds.count > 0) else { return false };
        let Some(Team { members: Some(members), paces, .. }) = self.teams.all.get(&id) else { return false };
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

    /// What the small collective that this caller has begun has come to. Its last word is given once, and
    /// ends it: after that it falls back.
    #[inline]
    pub fn poll_small_collective(&mut self) -> SmallPolled {
        let small = &mut self.small;
        if !small.is_under_way || small.falls_back {
            return SmallPolled::FallsBack;
        }
        if small.waits() {
            let (_, from) = small.partners[small.round];
            let Some(rest) = self.core.transport.take_like(from, small.head.words()) else {
                return SmallPolled::Pending;
            };
            small.take_word(WordHead::word(rest));
        }
        let word = small.words[small.round].to_le_bytes();
        let (first, last) = (small.first[small.round], small.come == small.rounds.count);
        if last {
            (small.is_under_way, small.is_to_be_noted) = (false, true);
            // Nobody has asked for more.
            self.core.counters.malformed += small.early.len() as u64;
            small.early.clear();
        }
        SmallPolled::Word { word, first, last }
    }

    /// Goes on with the next round, after [`SmallPolled::Word`], unless it was the last: with what the two
    /// words have come to.
    pub fn next_small_round(&mut self, word: [u8; 8]) -> SmallPolled {
        if !self.small.is_under_way {
            return SmallPolled::FallsBack;
        }
        let SmallCollective { number, round, .. } = self.small;
        self.small.at_round(number, round + 1);
        if !self.send_word(word) {
            self.small.at_round(number, round);
            return SmallPolled::FallsBack;
        }
        if !self.small.early.is_empty() {
            self.take_early_word();
        }
        self.poll_small_collective()
    }

    /// Ends the small collective under way for good, and with it the team's collectives.
    pub fn give_up_small_collective(&mut self) {
        if let Some(Begun { number, .. }) = self.leave_small() {
            let error = OpError::Team { peer: self.core.rank, what: "has given up one of them" };
            self.break_team(self.small.team, number, error);
        }
    }

    /// Ends the small collective under way, of this team, for the collective that goes on with it.
    pub(in crate::node) fn take_small(&mut self, team: TeamId) -> Option<Begun> {
        if self.small.team == team { self.leave_small() } else { None }
    }

    fn leave_small(&mut self) -> Option<Begun> {
        if !self.small.is_under_way {
            return None;
        }
        self.note_paces();
        self.small.is_to_be_noted = false;
        Some(self.small.leave())
    }

    /// Sends the word of the round that the small collective is at, if it may be sent just now.
    fn send_word(&mut self, word: [u8; 8]) -> bool {
        let SmallCollective { team, number, round, .. } = self.small;
        let (to, _) = self.small.partners[round];
        if self.mail.outbox_len() > 0 || self.mail.must_wait(to, Lane::Request) {
            return false;
        }
        // If it is to be noted, it is of the one before, to which all have come.
        if !self.small.is_to_be_noted {
            let pace = self.teams.all.get(&team).and_then(|team| team.paces.get(&to));
            if pace.is_none_or(|pace| number > pace.come_to.saturating_add(AHEAD)) {
                return false;
            }
        }
        let words = self.small.head.with(word);
        self.core.transport.send(to, Lane::Request, &words, &[]).is_ok()
    }

    /// Notes what the last small collective says of how far members have come: before anything else of its
    /// team, which would begin with another number.
    pub(in crate::node) fn note_small(&mut self) {
        if std::mem::take(&mut self.small.is_to_be_noted) {
            self.note_paces();
        }
    }

    /// Notes how far members have come by the words that they sent, and how far they know this one to be by
    /// those it sent.
    fn note_paces(&mut self) {
        let SmallCollective { team: id, number, come, round, partners, .. } = self.small;
        let Some(team) = self.teams.all.get_mut(&id) else { return };
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
            self.send_all_unsent(id);
        }
    }

    /// Takes the round's word, if it came before it was waited for.
    fn take_early_word(&mut self) {
        for (slot, arrived) in std::mem::take(&mut self.small.early) {
            self.on_small_step(slot, arrived);
        }
    }

    /// A step of the collective that a small collective is at, but not what it waits for just now.
    pub(in crate::node) fn on_small_step(&mut self, slot: Slot, arrived: Arrived) {
        let small = &mut self.small;
        let awaited = small.come == small.round && slot == small.slot(small.round);
        small.falls_back |= arrived.signature != small.signature;
        match arrived.data {
            Data::Word(word) if awaited && !small.falls_back && arrived.len == small.signature.bytes => {
                small.words[small.round] = u64::from_le_bytes(word);
                small.come += 1;
            }
            _ if small.early.len() < EARLY_MAX as usize => small.early.push((slot, arrived)),
            _ => self.core.counters.malformed += 1,
        }
    }
}

//! Collectives of a word of each member, as long as all that they need comes soon.
//!
//! A barrier, or an all-reduce of up to eight bytes, is one message each way in each of a few rounds. An operation in the table,
//! the steps of its plan and its memories cost several times what these messages do. So whoever polls for it anyway begins it
//! without them, and goes on with it as a collective like any other ([`Start::goes_on`](crate::node::Start::goes_on)) once it has polled
//! for long enough, or anything is not as it should be. Other members see no difference: it sends what the plan does.

use super::state::{Begun, Exchange, Exchanged};
use crate::collective::{Collective, Rounds, TeamId};
use crate::limits::AHEAD;
use crate::node::Node;
use crate::node::collective::state::{Arrived, Data, EARLY_MAX, Slot, Team};
use crate::wire::WordHead;
use crate::{Lane, OpError, Transport};

impl<T: Transport> Node<T> {
    /// Begins a team's next collective with this member's word, if it is one by rounds and nothing stands against it: then whoever
    /// has begun it asks [`Node::exchanged`] for what comes of it, between polls. `false`: nothing was begun.
    pub fn exchange(&mut self, id: TeamId, what: &Collective, word: [u8; 8]) -> bool {
        let like_last = self.exchange.team == id && self.exchange.what.as_ref() == Some(what);
        if self.exchange.is_under_way || !(like_last || self.prepare_exchange(id, what)) {
            return false;
        }
        let Some(team) = self.teams.all.get_mut(&id) else { return false };
        if team.broken.is_some() || team.asking > 0 {
            return false;
        }
        if self.exchange.is_to_be_noted && self.exchange.number != team.started {
            // Others of the team were begun while it was under way, and not everybody may have come to those.
            self.note_exchange();
            return false;
        }
        team.started += 1;
        let (number, any_early) = (team.started, !team.early.is_empty());
        let Exchange { number: last, round, come, .. } = self.exchange;
        self.exchange.at_round(number, 0);
        (self.exchange.come, self.exchange.is_odd) = (0, false);
        self.exchange.is_under_way = self.send_word(word);
        if !self.exchange.is_under_way {
            self.teams.all.get_mut(&id).expect("looked at above").started -= 1;
            // The last one may still have to be noted.
            self.exchange.at_round(last, round);
            self.exchange.come = come;
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
        let number = self.exchange.number;
        let Some(team) = self.teams.all.get_mut(&id) else { return };
        self.exchange.early = team.early.extract_if(|slot, _| slot.0 == number).collect();
        team.count_early();
        self.take_early_word();
    }

    /// Finds out whom this member exchanges words with. `false`: it is no such collective, or one of them has never been talked to,
    /// and must be told of this process first.
    fn prepare_exchange(&mut self, id: TeamId, what: &Collective) -> bool {
        self.note_exchange();
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
        self.exchange =
            Exchange { team: id, what, signature, rounds, partners, first, ..Exchange::default() };
        true
    }

    /// What the exchange that this caller has begun has come to. Its last word is given once, and ends it: after that it yields.
    #[inline]
    pub fn exchanged(&mut self) -> Exchanged {
        let exchange = &mut self.exchange;
        if !exchange.is_under_way || exchange.is_odd {
            return Exchanged::Yields;
        }
        if exchange.waits() {
            let (_, from) = exchange.partners[exchange.round];
            let Some(rest) = self.transport.take_like(from, exchange.head.words()) else {
                return Exchanged::Waits;
            };
            exchange.come_is(WordHead::word(rest));
        }
        let word = exchange.words[exchange.round].to_le_bytes();
        let (first, last) = (exchange.first[exchange.round], exchange.come == exchange.rounds.count);
        if last {
            (exchange.is_under_way, exchange.is_to_be_noted) = (false, true);
            // Nobody has asked for more.
            self.counters.malformed += exchange.early.len() as u64;
            exchange.early.clear();
        }
        Exchanged::Come { word, first, last }
    }

    /// Goes on with the next round, after [`Exchanged::Come`], unless it was the last: with what the two words have come to.
    pub fn exchange_next(&mut self, word: [u8; 8]) -> Exchanged {
        if !self.exchange.is_under_way {
            return Exchanged::Yields;
        }
        let Exchange { number, round, .. } = self.exchange;
        self.exchange.at_round(number, round + 1);
        if !self.send_word(word) {
            self.exchange.at_round(number, round);
            return Exchanged::Yields;
        }
        if !self.exchange.early.is_empty() {
            self.take_early_word();
        }
        self.exchanged()
    }

    /// Ends the exchange under way for good, and with it the team's collectives.
    pub fn give_up_exchange(&mut self) {
        if let Some(Begun { number, .. }) = self.leave_exchange() {
            let error = OpError::Team { peer: self.rank, what: "has given up one of them" };
            self.break_team(self.exchange.team, number, error);
        }
    }

    /// Ends the exchange under way, of this team, for the collective that goes on with it.
    pub(in crate::node) fn take_exchange(&mut self, team: TeamId) -> Option<Begun> {
        if self.exchange.team == team { self.leave_exchange() } else { None }
    }

    fn leave_exchange(&mut self) -> Option<Begun> {
        if !self.exchange.is_under_way {
            return None;
        }
        self.note_paces();
        self.exchange.is_to_be_noted = false;
        Some(self.exchange.leave())
    }

    /// Sends the word of the round that the exchange is at, if it may be sent just now.
    fn send_word(&mut self, word: [u8; 8]) -> bool {
        let Exchange { team, number, round, .. } = self.exchange;
        let (to, _) = self.exchange.partners[round];
        if !self.outbox.is_empty() || self.must_wait(to, Lane::Request) {
            return false;
        }
        // If it is to be noted, it is of the one before, to which all have come.
        if !self.exchange.is_to_be_noted {
            let pace = self.teams.all.get(&team).and_then(|team| team.paces.get(&to));
            if pace.is_none_or(|pace| number > pace.come_to.saturating_add(AHEAD)) {
                return false;
            }
        }
        let words = self.exchange.head.with(word);
        self.transport.send(to, Lane::Request, &words, &[]).is_ok()
    }

    /// Notes what the last exchange says of how far members have come: before anything else of its team, which would begin with another
    /// number.
    pub(in crate::node) fn note_exchange(&mut self) {
        if std::mem::take(&mut self.exchange.is_to_be_noted) {
            self.note_paces();
        }
    }

    /// Notes how far members have come by the words that they sent, and how far they know this one to be by those it sent.
    fn note_paces(&mut self) {
        let Exchange { team: id, number, come, round, partners, .. } = self.exchange;
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
        for (slot, arrived) in std::mem::take(&mut self.exchange.early) {
            self.on_exchange(slot, arrived);
        }
    }

    /// A step of the collective that an exchange is at, but not what it waits for just now.
    pub(in crate::node) fn on_exchange(&mut self, slot: Slot, arrived: Arrived) {
        let exchange = &mut self.exchange;
        let awaited = exchange.come == exchange.round && slot == exchange.slot(exchange.round);
        exchange.is_odd |= arrived.signature != exchange.signature;
        match arrived.data {
            Data::Word(word) if awaited && !exchange.is_odd && arrived.len == exchange.signature.bytes => {
                exchange.words[exchange.round] = u64::from_le_bytes(word);
                exchange.come += 1;
            }
            _ if exchange.early.len() < EARLY_MAX as usize => exchange.early.push((slot, arrived)),
            _ => self.counters.malformed += 1,
        }
    }
}

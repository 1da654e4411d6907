//! A node's state of the small collective that it is at.

use crate::collective::{Collective, Rounds, Signature, TeamId};
use crate::node::core::Core;
use crate::node::teams::team::{Arrived, Data, EARLY_MAX, Slot};
use crate::wire::WordHead;
use crate::{Rank, Transport};

/// The result of a small collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallPolled {
    /// The round's word is here.
    Word {
        /// The value that the other sent.
        word: [u8; 8],
        /// Whether its operand comes before this member's.
        first: bool,
        /// Whether it is the last: all members have come, and this one has all words. The small collective is
        /// over.
        last: bool,
    },
    /// Nothing yet: poll, and ask again.
    Pending,
    /// It goes on as a collective like any other, or not at all.
    FallsBack,
}

/// The collective by rounds that somebody polls for, if there is one; otherwise the last one, which the next
/// most likely is like.
#[derive(Default)]
pub(in crate::node) struct SmallCollective {
    pub(in crate::node) is_under_way: bool,
    pub(in crate::node) team: TeamId,
    pub(in crate::node) what: Option<Collective>,
    pub(in crate::node) signature: Signature,
    pub(in crate::node) rounds: Rounds,
    /// Of each round: whom its word goes to, and whose it gets; and whether that one's operand comes before
    /// this member's.
    pub(in crate::node) partners: [(Rank, Rank); Rounds::MAX],
    pub(in crate::node) first: [bool; Rounds::MAX],
    /// Which one of the team's it is.
    pub(in crate::node) number: u64,
    /// The round that it is at, whose word is sent.
    pub(in crate::node) round: usize,
    /// The words of the rounds so far, which have come of so many.
    pub(in crate::node) words: [u64; Rounds::MAX],
    pub(in crate::node) come: usize,
    /// Other messages, of members that are ahead or have called something else.
    pub(in crate::node::teams) early: Vec<(Slot, Arrived)>,
    /// Somebody has sent what does not belong here, or the team is broken.
    pub(in crate::node) falls_back: bool,
    /// How the awaited word's message begins.
    pub(in crate::node) head: WordHead,
    /// It is over, so that all members have come to it, which is not noted yet: the next will most likely be
    /// one like it.
    pub(in crate::node) is_to_be_noted: bool,
}

/// The state that a collective takes over from a small one.
pub(in crate::node) struct Begun {
    pub(in crate::node) number: u64,
    /// Rounds whose words have been sent.
    pub(in crate::node) sent: u16,
    /// The values that have come.
    pub(in crate::node::teams) arrived: Vec<(Slot, Arrived)>,
}

impl SmallCollective {
    /// Whether this is the collective under way.
    pub(in crate::node) fn is(&self, team: TeamId, number: u64) -> bool {
        self.is_under_way && (self.team, self.number) == (team, number)
    }

    /// Its number, if it is of this team and cannot end without that rank.
    pub(in crate::node) fn needs(&self, team: TeamId, rank: Rank) -> Option<u64> {
        let came = |round| self.early.iter().any(|(slot, _)| *slot == self.slot(round));
        let mut to_come = (self.come..self.rounds.count).filter(|round| !came(*round));
        let mut to_go = self.round + 1..self.rounds.count;
        let needed = to_come.any(|round| self.partners[round].1 == rank)
            || to_go.any(|round| self.partners[round].0 == rank);
        (self.is(team, self.number) && needed).then_some(self.number)
    }

    /// The team's collectives from that number on are over.
    pub(in crate::node) fn on_broken(&mut self, team: TeamId, from: u64) {
        self.falls_back |= self.is(team, self.number) && self.number >= from;
    }

    pub(in crate::node) fn slot(&self, round: usize) -> Slot {
        (self.number, self.partners[round].1, round as u16)
    }

    /// Whether it waits for the word of the round that it is at.
    #[inline(always)]
    pub(in crate::node) fn waits(&self) -> bool {
        self.is_under_way && self.come == self.round
    }

    /// The word that it waits for is here.
    #[inline(always)]
    pub(in crate::node) fn take_word(&mut self, word: u64) {
        self.words[self.round] = word;
        self.come += 1;
    }

    /// Begins with the next one, or the next round.
    pub(in crate::node) fn at_round(&mut self, number: u64, round: usize) {
        (self.number, self.round) = (number, round);
        let (signature, len) = (self.signature, self.signature.bytes as u32);
        self.head = WordHead::new(self.team, number, round as u16, signature, len);
    }

    /// Ends it here. The collective that goes on with it takes its result.
    pub(in crate::node) fn leave(&mut self) -> Begun {
        self.is_under_way = false;
        let mut arrived = std::mem::take(&mut self.early);
        for round in 0..self.come {
            let data = Data::Word(self.words[round].to_le_bytes());
            let (signature, len) = (self.signature, self.signature.bytes);
            arrived.push((self.slot(round), Arrived { signature, len, data }));
        }
        Begun { number: self.number, sent: self.round as u16 + 1, arrived }
    }

    /// What it has come to. Its last word is given once, and ends it: after that it falls back.
    #[inline]
    pub(in crate::node) fn poll<T: Transport>(&mut self, core: &mut Core<T>) -> SmallPolled {
        if !self.is_under_way || self.falls_back {
            return SmallPolled::FallsBack;
        }
        if self.waits() {
            let (_, from) = self.partners[self.round];
            let Some(rest) = core.transport.take_like(from, self.head.words()) else {
                return SmallPolled::Pending;
            };
            self.take_word(WordHead::word(rest));
        }
        let word = self.words[self.round].to_le_bytes();
        let (first, last) = (self.first[self.round], self.come == self.rounds.count);
        if last {
            (self.is_under_way, self.is_to_be_noted) = (false, true);
            // Nobody has asked for more.
            core.counters.malformed += self.early.len() as u64;
            self.early.clear();
        }
        SmallPolled::Word { word, first, last }
    }

    /// A step of it has come by a message: the round's word, or something else that is kept. `false`: there
    /// is no room for that.
    pub(in crate::node::teams) fn on_step(&mut self, slot: Slot, arrived: Arrived) -> bool {
        let awaited = self.come == self.round && slot == self.slot(self.round);
        self.falls_back |= arrived.signature != self.signature;
        match arrived.data {
            Data::Word(word) if awaited && !self.falls_back && arrived.len == self.signature.bytes => {
                self.words[self.round] = u64::from_le_bytes(word);
                self.come += 1;
            }
            _ if self.early.len() < EARLY_MAX as usize => self.early.push((slot, arrived)),
            _ => return false,
        }
        true
    }
}

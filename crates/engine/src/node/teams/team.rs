//! One team: its members, how far they have come, and what came early. Nothing here decides what happens
//! next.

use hashbrown::HashMap;

use crate::collective::{Difference, Signature};
use crate::limits::{AHEAD, EARLY_MESSAGES};
use crate::op_id::OpKey;
use crate::wire::BreakReason;
use crate::{OpError, Place, Rank};

/// Messages of one member for collectives that this one has not come to, at most.
pub(super) const EARLY_MAX: u64 = AHEAD * EARLY_MESSAGES;

/// Collectives whose signatures are remembered when they have ended.
pub(super) const ENDED: usize = 8;

/// A team's members, by their numbers in it.
pub(super) enum Members {
    /// Every rank of the job.
    All(u32),
    These(Vec<Rank>),
}

impl Members {
    pub(super) fn len(&self) -> u32 {
        match self {
            Members::All(size) => *size,
            Members::These(ranks) => ranks.len() as u32,
        }
    }

    pub(super) fn rank(&self, member: u32) -> Option<Rank> {
        match self {
            Members::All(size) => Some(member).filter(|member| member < size),
            Members::These(ranks) => ranks.get(member as usize).copied(),
        }
    }

    pub(super) fn member(&self, rank: Rank) -> Option<u32> {
        match self {
            Members::All(size) => Some(rank).filter(|rank| rank < size),
            Members::These(ranks) => ranks.iter().position(|known| *known == rank).map(|at| at as u32),
        }
    }
}

/// One team.
#[derive(Default)]
pub(super) struct Team {
    /// `None` while it is being made: its members are not known, but some of them may know it already.
    pub(super) members: Option<Members>,
    /// Collectives that this process has come to.
    pub(super) started: u64,
    /// Which collectives of it cannot end any more.
    pub(super) broken: Option<Broken>,
    /// The two members' calls, found just now: by it the team is about to be broken.
    pub(super) differs: Option<Difference>,
    /// The members that this one has had to do with have been told why.
    pub(super) is_told: bool,
    /// It has a name, and only peers have come to it.
    pub(super) is_unasked: bool,
    /// Nobody here has it any more: it goes when its last collective is over.
    pub(super) dropped: bool,
    pub(super) paces: HashMap<Rank, Pace>,
    /// Members that want to be told how far this process has come.
    pub(super) asking: u32,
    /// Messages for collectives that are not there, or not so far.
    pub(super) early: HashMap<Slot, Arrived>,
    /// Collectives under way, by their numbers.
    pub(super) runs: HashMap<u64, OpKey>,
    /// The last that have ended well, by their numbers: for members that called something else.
    pub(super) ended: [(u64, Signature); ENDED],
}

/// A team's collectives from some number on are over.
#[derive(Clone, Copy)]
pub(super) struct Broken {
    pub(super) from: u64,
    /// Why, as their callers get to know it.
    pub(super) error: OpError,
    /// Why, as the other members do, and whose reason it is.
    pub(super) told: (BreakReason, Rank),
    /// The two members' calls, where that is why.
    pub(super) difference: Option<Difference>,
}

/// How far two members know each other to have come.
#[derive(Default)]
pub(super) struct Pace {
    /// The last collective that the other is known to have come to.
    pub(super) come_to: u64,
    /// The last that it has been told this process has come to.
    pub(super) told: u64,
    /// The last that it has been asked for, to be told when it has come near.
    pub(super) asked: u64,
    /// The number that it has asked for, and not been told; 0 if nothing.
    pub(super) wants: u64,
    /// Its messages for collectives that this process has not come to.
    pub(super) early: u64,
}

impl Pace {
    /// The other has come to that collective. Returns whether something waits for that.
    pub(super) fn has_come(&mut self, number: u64) -> bool {
        let is_news = number > self.come_to;
        let awaited = is_news && self.asked > self.come_to.saturating_add(AHEAD);
        self.come_to = self.come_to.max(number);
        awaited
    }
}

impl Team {
    /// Counts what members have sent for collectives that this process has not come to.
    pub(super) fn count_early(&mut self) {
        self.paces.values_mut().for_each(|pace| pace.early = 0);
        for (_, from, _) in self.early.keys().filter(|(number, ..)| *number > self.started) {
            self.paces.entry(*from).or_default().early += 1;
        }
    }

    /// This process's call, if that has ended well not long ago.
    pub(super) fn ended_as(&self, number: u64) -> Option<Signature> {
        let (of, signature) = self.ended[number as usize % ENDED];
        (of == number).then_some(signature)
    }

    /// Whether nobody can end that collective any more.
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.broken.is_some_and(|broken| number >= broken.from)
    }
}

/// Where a message belongs: collective, sender, and tag.
pub(super) type Slot = (u64, Rank, u16);

/// A step's data as it came.
pub(super) struct Arrived {
    pub(super) signature: Signature,
    pub(super) len: u64,
    pub(super) data: Data,
}

/// Where a step's data is.
pub(super) enum Data {
    Word([u8; 8]),
    Bytes(Vec<u8>),
    /// There, and how often the sender had given up what it offered.
    At(Place, u32),
}

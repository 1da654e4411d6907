//! What a node knows of its teams, and of the collectives under way in them. Nothing here decides what
//! happens next.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::buffers::Memories;
use crate::collective::{Difference, Plan, Signature, Span, Step, TeamId};
use crate::limits::{AHEAD, EARLY_MESSAGES};
use crate::op_id::OpKey;
use crate::wire::BreakReason;
use crate::{Nanos, OpError, Place, Rank};

/// Messages of one member for collectives that this one has not come to, at most.
pub(in crate::node) const EARLY_MAX: u64 = AHEAD * EARLY_MESSAGES;

/// Collectives whose signatures are remembered when they have ended.
pub(in crate::node) const ENDED: usize = 8;

/// How long a collective waits before it asks whom it waits for: at first, and at most.
const ASK_AFTER: Nanos = 100_000_000;
const ASK_AFTER_MAX: Nanos = 3_200_000_000;

/// All teams of a node.
pub(in crate::node) struct Teams {
    pub(in crate::node) all: HashMap<TeamId, Team>,
    /// How many of them are named, and made here; and how many a peer has made.
    pub(in crate::node) named: usize,
    pub(in crate::node) unasked: usize,
    /// Collectives that have something to send and found no room.
    pub(in crate::node) unsent: Vec<OpKey>,
    /// Collectives that have come to a step in this process's own memory, where whoever polls is to be told.
    pub(in crate::node) local: VecDeque<OpKey>,
    /// Of collectives which somebody was at just then: transfers of theirs that ended, and how.
    pub(in crate::node) missed: Vec<(OpKey, OpKey, Result<(), OpError>)>,
}

impl Teams {
    pub(in crate::node) fn new(size: u32) -> Teams {
        let world = Team { members: Some(Members::All(size)), ..Team::default() };
        let all = HashMap::from([(TeamId::WORLD, world)]);
        Teams { all, named: 0, unasked: 0, unsent: Vec::new(), local: VecDeque::new(), missed: Vec::new() }
    }
}

/// A team's members, by their numbers in it.
pub(in crate::node) enum Members {
    /// Every rank of the job.
    All(u32),
    These(Vec<Rank>),
}

impl Members {
    pub(in crate::node) fn len(&self) -> u32 {
        match self {
            Members::All(size) => *size,
            Members::These(ranks) => ranks.len() as u32,
        }
    }

    pub(in crate::node) fn rank(&self, member: u32) -> Option<Rank> {
        match self {
            Members::All(size) => Some(member).filter(|member| member < size),
            Members::These(ranks) => ranks.get(member as usize).copied(),
        }
    }

    pub(in crate::node) fn member(&self, rank: Rank) -> Option<u32> {
        match self {
            Members::All(size) => Some(rank).filter(|rank| rank < size),
            Members::These(ranks) => ranks.iter().position(|known| *known == rank).map(|at| at as u32),
        }
    }
}

/// One team.
#[derive(Default)]
pub(in crate::node) struct Team {
    /// `None` while it is being made: its members are not known, but some of them may know it already.
    pub(in crate::node) members: Option<Members>,
    /// Collectives that this process has come to.
    pub(in crate::node) started: u64,
    /// Which collectives of it cannot end any more.
    pub(in crate::node) broken: Option<Broken>,
    /// What two members called, found just now: by it the team is about to be broken.
    pub(in crate::node) differs: Option<Difference>,
    /// The members that this one has had to do with have been told why.
    pub(in crate::node) is_told: bool,
    /// It has a name, and only peers have come to it.
    pub(in crate::node) is_unasked: bool,
    /// Nobody here has it any more: it goes when its last collective is over.
    pub(in crate::node) dropped: bool,
    pub(in crate::node) paces: HashMap<Rank, Pace>,
    /// Members that want to be told how far this process has come.
    pub(in crate::node) asking: u32,
    /// What came for collectives that are not there, or not so far.
    pub(in crate::node) early: HashMap<Slot, Arrived>,
    /// Collectives under way, by their numbers.
    pub(in crate::node) runs: HashMap<u64, OpKey>,
    /// The last that have ended well, by their numbers: for members that called something else.
    pub(in crate::node) ended: [(u64, Signature); ENDED],
}

/// A team's collectives from some number on are over.
#[derive(Clone, Copy)]
pub(in crate::node) struct Broken {
    pub(in crate::node) from: u64,
    /// Why, as their callers get to know it.
    pub(in crate::node) error: OpError,
    /// Why, as the other members do, and whose reason it is.
    pub(in crate::node) told: (BreakReason, Rank),
    /// What two members called, where that is why.
    pub(in crate::node) difference: Option<Difference>,
}

/// How far two members know each other to have come.
#[derive(Default)]
pub(in crate::node) struct Pace {
    /// The last collective that the other is known to have come to.
    pub(in crate::node) come_to: u64,
    /// The last that it has been told this process has come to.
    pub(in crate::node) told: u64,
    /// The last that it has been asked for, to be told when it has come near.
    pub(in crate::node) asked: u64,
    /// What it has asked for, and not been told; 0 if nothing.
    pub(in crate::node) wants: u64,
    /// Its messages for collectives that this process has not come to.
    pub(in crate::node) early: u64,
}

impl Pace {
    /// The other has come to that collective. Returns whether something waits for that.
    pub(in crate::node) fn has_come(&mut self, number: u64) -> bool {
        let is_news = number > self.come_to;
        let awaited = is_news && self.asked > self.come_to.saturating_add(AHEAD);
        self.come_to = self.come_to.max(number);
        awaited
    }
}

impl Team {
    /// Counts what members have sent for collectives that this process has not come to.
    pub(in crate::node) fn count_early(&mut self) {
        self.paces.values_mut().for_each(|pace| pace.early = 0);
        for (_, from, _) in self.early.keys().filter(|(number, ..)| *number > self.started) {
            self.paces.entry(*from).or_default().early += 1;
        }
    }

    /// What this process had called, if that has ended well not long ago.
    pub(in crate::node) fn ended_as(&self, number: u64) -> Option<Signature> {
        let (of, signature) = self.ended[number as usize % ENDED];
        (of == number).then_some(signature)
    }

    /// Whether nobody can end that collective any more.
    pub(in crate::node) fn is_over(&self, number: u64) -> bool {
        self.broken.is_some_and(|broken| number >= broken.from)
    }
}

/// Where a message belongs: collective, sender, and tag.
pub(in crate::node) type Slot = (u64, Rank, u16);

/// A step's data as it came.
pub(in crate::node) struct Arrived {
    pub(in crate::node) signature: Signature,
    pub(in crate::node) len: u64,
    pub(in crate::node) data: Data,
}

/// Where a step's data is.
pub(in crate::node) enum Data {
    Word([u8; 8]),
    Bytes(Vec<u8>),
    /// There, and how often the sender had given up what it offered.
    At(Place, u32),
}

/// A collective under way.
pub(in crate::node) struct CollectiveRun {
    pub(in crate::node) team: TeamId,
    /// Which one of the team's, from 1.
    pub(in crate::node) number: u64,
    pub(in crate::node) signature: Signature,
    pub(in crate::node) plan: Arc<Plan>,
    /// The next step.
    pub(in crate::node) at: usize,
    pub(in crate::node) memories: Memories,
    pub(in crate::node) sends: Vec<Sending>,
    pub(in crate::node) receives: Vec<Receiving>,
    /// Parts that are being gotten.
    pub(in crate::node) pulls: Vec<Pulling>,
    /// How many of all these are still waited for.
    pub(in crate::node) open: usize,
    /// Whose bytes could not be reached, and how that failed: it was asked whether it still is in the
    /// collective. Otherwise it may have freed them, and says why its team is over. No step is done
    /// meanwhile, and no news of others ends it well.
    pub(in crate::node) doubted: Option<(Rank, OpError)>,
    pub(in crate::node) steps_told: bool,
    /// Messages with smaller tags were sent before it was begun.
    pub(in crate::node) sent: u16,
    /// When those that it waits for are to be asked what they called, and how long to wait for the time after
    /// that. `None`: nobody has looked at the clock yet.
    pub(in crate::node) asks_at: Option<(Nanos, Nanos)>,
}

pub(in crate::node) struct Sending {
    pub(in crate::node) to: Rank,
    pub(in crate::node) tag: u16,
    pub(in crate::node) from: Span,
    /// It goes when what was released by this tag is confirmed.
    pub(in crate::node) of: Option<u16>,
    pub(in crate::node) state: Sent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum Sent {
    No,
    /// The receiver is getting the bytes.
    Offered,
    Over,
}

pub(in crate::node) struct Receiving {
    pub(in crate::node) from: Rank,
    pub(in crate::node) tag: u16,
    pub(in crate::node) len: u64,
    /// `None`: only where they lie is to be heard.
    pub(in crate::node) into: Option<Span>,
    /// How often its sender had given up what it offered, once it has offered this.
    pub(in crate::node) given_up: u32,
    pub(in crate::node) state: Received,
}

/// A transfer that is getting a part of what was awaited.
pub(in crate::node) struct Pulling {
    pub(in crate::node) get: OpKey,
    pub(in crate::node) into: Span,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum Received {
    No,
    /// This is where they lie: parts of them are gotten one by one.
    Known(Place),
    /// This transfer is getting the bytes.
    Getting(OpKey),
    /// They could not be gotten, and never will be.
    Missed,
    /// They are here; the sender has not said yet that they still lay there then.
    Taken,
    Over,
}

impl CollectiveRun {
    /// So many steps less are open.
    pub(in crate::node) fn close(&mut self, steps: usize) {
        assert!(self.open >= steps, "a step of a collective ends once");
        self.open -= steps;
    }

    /// Does a copy, if the memories are kept here.
    pub(in crate::node) fn keep(&mut self, from: Span, into: Span) -> bool {
        match &mut self.memories {
            Memories::Kept(kept) => {
                kept.copy(from, into);
                true
            }
            Memories::At { .. } => false,
        }
    }

    /// Whether it cannot end without a member: something of its is still to come, or to go there.
    pub(in crate::node) fn needs(&self, team: &Team, member: u32, rank: Rank) -> bool {
        let came = |tag| {
            let slot = team.early.get(&(self.number, rank, tag));
            slot.is_some_and(|arrived| !matches!(arrived.data, Data::At(..)))
        };
        self.receives.iter().any(|receive| receive.from == rank && receive.state != Received::Over)
            || self.sends.iter().any(|send| send.to == rank && send.state != Sent::Over)
            || self.plan.steps[self.at..].iter().any(|step| match step {
                Step::Receive { from, tag, .. } | Step::Await { from, tag, .. } => {
                    *from == member && !came(*tag)
                }
                Step::Pull { from, .. } | Step::Release { from, .. } => *from == member,
                Step::Send { to, .. } => *to == member,
                // The steps after it say whom it needs.
                Step::Wait | Step::Copy { .. } | Step::Combine { .. } | Step::Fold { .. } => false,
            })
    }

    /// Whether all that was released by a tag is known to have been what was offered.
    pub(in crate::node) fn is_confirmed(&self, tag: u16) -> bool {
        !self.receives.iter().any(|receive| receive.tag == tag && receive.state == Received::Taken)
    }

    /// Whether a step in own memory has all its bytes.
    pub(in crate::node) fn has_all_of(&self, step: Step) -> bool {
        match step {
            _ if self.doubted.is_some() => false,
            Step::Copy { from, into } | Step::Combine { into, from } => {
                !self.pulls.iter().any(|pull| pull.into.meets(from) || pull.into.meets(into))
            }
            Step::Fold { tag, .. } => self
                .receives
                .iter()
                .all(|receive| receive.tag != tag || matches!(receive.state, Received::Known(_))),
            _ => true,
        }
    }

    /// Whether those that it waits for are to be asked now, and when they are to be asked next.
    pub(in crate::node) fn asks(&mut self, now: Nanos) -> (bool, Nanos) {
        match self.asks_at {
            Some((at, _)) if at > now => (false, at),
            last => {
                let pause = last.map_or(ASK_AFTER, |(_, pause)| (2 * pause).min(ASK_AFTER_MAX));
                let at = now.saturating_add(pause);
                self.asks_at = Some((at, pause));
                (last.is_some(), at)
            }
        }
    }

    /// Somebody whom it waits for; rank 0 if that is nobody.
    pub(in crate::node) fn awaits(&self) -> Rank {
        if let Some((doubted, _)) = self.doubted {
            return doubted;
        }
        let received = self.receives.iter().find(|receive| receive.state != Received::Over);
        let sent = self.sends.iter().find(|send| send.state != Sent::Over);
        received.map(|receive| receive.from).or(sent.map(|send| send.to)).unwrap_or(0)
    }
}

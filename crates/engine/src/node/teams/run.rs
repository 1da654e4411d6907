//! One collective under way. Nothing here decides what happens next.

use std::sync::Arc;

use super::buffers::Memories;
use super::team::{Data, Team};
use crate::collective::{Plan, Signature, Span, Step, TeamId};
use crate::op_id::OpKey;
use crate::{MemId, Nanos, OpError, Place, Rank};

/// How long a collective waits before it asks whom it waits for: at first, and at most.
const ASK_AFTER: Nanos = 100_000_000;
const ASK_AFTER_MAX: Nanos = 3_200_000_000;

/// A collective under way.
pub(super) struct CollectiveRun {
    pub(super) team: TeamId,
    /// Which one of the team's, from 1.
    pub(super) number: u64,
    pub(super) signature: Signature,
    pub(super) plan: Arc<Plan>,
    /// The next step.
    pub(super) at: usize,
    pub(super) memories: Memories,
    pub(super) sends: Vec<Sending>,
    pub(super) receives: Vec<Receiving>,
    /// Parts that are being gotten.
    pub(super) pulls: Vec<Pulling>,
    /// How many of all these are still waited for.
    pub(super) open: usize,
    /// Whose bytes could not be reached, and how that failed: it was asked whether it still is in the
    /// collective. Otherwise it may have freed them, and says why its team is over. No step is done
    /// meanwhile, and no news of others ends it well.
    pub(super) doubted: Option<(Rank, OpError)>,
    pub(super) steps_told: bool,
    /// Messages with smaller tags were sent before it was begun.
    pub(super) sent: u16,
    /// When those that it waits for are to be asked what they called, and how long to wait for the time after
    /// that. `None`: nobody has looked at the clock yet.
    pub(super) asks_at: Option<(Nanos, Nanos)>,
}

pub(super) struct Sending {
    pub(super) to: Rank,
    pub(super) tag: u16,
    pub(super) from: Span,
    /// It goes when what was released by this tag is confirmed.
    pub(super) of: Option<u16>,
    pub(super) state: Sent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    No,
    /// The receiver is getting the bytes.
    Offered,
    Over,
}

pub(super) struct Receiving {
    pub(super) from: Rank,
    pub(super) tag: u16,
    pub(super) len: u64,
    /// `None`: only where they lie is to be heard.
    pub(super) into: Option<Span>,
    /// How often its sender had given up what it offered, once it has offered this.
    pub(super) given_up: u32,
    pub(super) state: Received,
}

/// A transfer that is getting a part of what was awaited.
pub(super) struct Pulling {
    pub(super) get: OpKey,
    pub(super) into: Span,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
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
    /// One that has not begun: which one of the team's it is, from 1.
    pub(super) fn new(
        (team, number): (TeamId, u64),
        signature: Signature,
        plan: Arc<Plan>,
        memories: Memories,
    ) -> CollectiveRun {
        CollectiveRun {
            team,
            number,
            signature,
            plan,
            at: 0,
            memories,
            sends: Vec::new(),
            receives: Vec::new(),
            pulls: Vec::new(),
            open: 0,
            doubted: None,
            steps_told: false,
            sent: 0,
            asks_at: None,
        }
    }

    /// So many steps less are open.
    pub(super) fn close(&mut self, steps: usize) {
        assert!(self.open >= steps, "a step of a collective ends once");
        self.open -= steps;
    }

    /// Does a copy, if the memories are kept here.
    pub(super) fn keep(&mut self, from: Span, into: Span) -> bool {
        match &mut self.memories {
            Memories::Kept(kept) => {
                kept.copy(from, into);
                true
            }
            Memories::At { .. } => false,
        }
    }

    /// Whether it cannot end without a member: something of its is still to come, or to go there.
    pub(super) fn needs(&self, team: &Team, member: u32, rank: Rank) -> bool {
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
    pub(super) fn is_confirmed(&self, tag: u16) -> bool {
        !self.receives.iter().any(|receive| receive.tag == tag && receive.state == Received::Taken)
    }

    /// Whether a step in own memory has all its bytes.
    pub(super) fn has_all_of(&self, step: Step) -> bool {
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
    pub(super) fn asks(&mut self, now: Nanos) -> (bool, Nanos) {
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
    pub(super) fn awaits(&self) -> Rank {
        if let Some((doubted, _)) = self.doubted {
            return doubted;
        }
        let received = self.receives.iter().find(|receive| receive.state != Received::Over);
        let sent = self.sends.iter().find(|send| send.state != Sent::Over);
        received.map(|receive| receive.from).or(sent.map(|send| send.to)).unwrap_or(0)
    }

    /// Whether it is over: all steps are done, and nothing is waited for.
    pub(super) fn is_over(&self) -> bool {
        self.at == self.plan.steps.len() && self.open == 0 && self.doubted.is_none()
    }

    /// Whether it has offered a member these bytes, and has not heard that it has them.
    pub(super) fn has_offered(&self, peer: Rank, start: u64, len: u64) -> bool {
        let mut offered = self.sends.iter().filter(|send| send.to == peer && send.state == Sent::Offered);
        offered.any(|send| {
            let place = self.memories.place(send.from).filter(|place| place.mem == MemId::Space);
            let at = place.and_then(|place| start.checked_sub(place.offset));
            at.is_some_and(|at| at.checked_add(len).is_some_and(|end| end <= send.from.len))
        })
    }
}

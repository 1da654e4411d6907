//! The table of the transfers that hit.
//!
//! They have one of their own: to enter one and to take it out is a few words each, where an operation of any kind, that
//! may become another's part, takes many.

use crate::op_id::HitId;
use crate::registration::RegId;
use crate::registration::firehose::HoseId;
use crate::{Nanos, OpError, Rank};

/// No place.
const NONE: u32 = u32::MAX;

/// The transfers that hit, by their places.
pub(in crate::node) struct Hits {
    all: Vec<Hit>,
    /// The first free place; each names the next.
    free: u32,
}

impl Default for Hits {
    fn default() -> Hits {
        Hits { all: Vec::new(), free: NONE }
    }
}

/// One of them.
pub(in crate::node) struct Hit {
    /// How often its place was used before, as [`HitId`] counts it.
    pub(in crate::node) generation: u32,
    pub(in crate::node) state: State,
    /// Nobody will ask for the outcome: `quiet` reports it if it is a failure.
    pub(in crate::node) detached: bool,
    /// In a free place: the next one.
    pub(in crate::node) peer: Rank,
    /// What it uses until the transport is done with it.
    pub(in crate::node) hose: HoseId,
    pub(in crate::node) local: Option<RegId>,
    pub(in crate::node) deadline: Option<Nanos>,
    /// Once it is given up or over.
    pub(in crate::node) outcome: Result<u64, OpError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum State {
    /// Nothing is here.
    Free,
    /// The transport is at it; its caller waits for it, and it uses no registration here.
    Plain,
    /// The transport is at any other.
    UnderWay,
    /// The transport is still at it, but the outcome is there: a deadline has passed, or its peer is lost.
    GivenUp,
    /// The same, and nobody asks about it any more.
    Forgotten,
    /// It has ended well.
    Done,
    /// Its outcome is there to be taken.
    Over,
}

impl State {
    /// Whether the transport is at it, and it has no outcome yet.
    #[inline]
    pub(in crate::node) fn is_under_way(self) -> bool {
        matches!(self, State::Plain | State::UnderWay)
    }
}

impl Hits {
    /// Enters a transfer that is about to be submitted.
    #[inline(always)]
    pub(in crate::node) fn insert(
        &mut self,
        peer: Rank,
        hose: HoseId,
        local: Option<RegId>,
        deadline: Option<Nanos>,
    ) -> HitId {
        let at = if self.free == NONE { self.grow(hose) } else { self.free };
        let hit = &mut self.all[at as usize];
        self.free = hit.peer;
        let state = if local.is_none() { State::Plain } else { State::UnderWay };
        (hit.state, hit.detached) = (state, false);
        (hit.peer, hit.hose, hit.local, hit.deadline) = (peer, hose, local, deadline);
        HitId { at, generation: hit.generation }
    }

    #[cold]
    fn grow(&mut self, hose: HoseId) -> u32 {
        let at = u32::try_from(self.all.len()).expect("so many would fill all memory");
        self.all.push(Hit {
            generation: HitId::FIRST,
            state: State::Free,
            detached: false,
            peer: NONE,
            hose,
            local: None,
            deadline: None,
            outcome: Ok(0),
        });
        at
    }

    #[inline(always)]
    pub(in crate::node) fn get(&mut self, id: HitId) -> Option<&mut Hit> {
        let hit = self.all.get_mut(id.at as usize)?;
        if hit.generation == id.generation { Some(hit) } else { None }
    }

    #[inline(always)]
    pub(in crate::node) fn remove(&mut self, at: u32) {
        let hit = &mut self.all[at as usize];
        hit.state = State::Free;
        hit.generation = HitId::after(hit.generation);
        hit.peer = std::mem::replace(&mut self.free, at);
    }

    /// Takes the outcome of one that has one.
    #[inline(always)]
    pub(in crate::node) fn take(&mut self, id: HitId) -> Option<Result<u64, OpError>> {
        let state = self.get(id)?.state;
        if state == State::Done {
            self.remove(id.at);
            return Some(Ok(0));
        }
        if state == State::Plain { None } else { self.take_other(id) }
    }

    #[cold]
    fn take_other(&mut self, id: HitId) -> Option<Result<u64, OpError>> {
        let hit = self.get(id)?;
        let outcome = hit.outcome;
        match hit.state {
            State::Over => self.remove(id.at),
            State::GivenUp => hit.state = State::Forgotten,
            State::Free | State::Plain | State::UnderWay | State::Done | State::Forgotten => return None,
        }
        Some(outcome)
    }

    pub(in crate::node) fn is_done(&self, id: HitId) -> bool {
        let hit = self.all.get(id.at as usize).filter(|hit| hit.generation == id.generation);
        hit.is_some_and(|hit| matches!(hit.state, State::Done | State::Over | State::GivenUp))
    }

    /// Whether one is at the transport, and has no outcome yet.
    pub(in crate::node) fn is_under_way(&self, id: HitId) -> bool {
        let hit = self.all.get(id.at as usize).filter(|hit| hit.generation == id.generation);
        hit.is_some_and(|hit| hit.state.is_under_way())
    }

    /// Those without an outcome, with their peers and deadlines.
    pub(in crate::node) fn under_way(&self) -> impl Iterator<Item = (HitId, Rank, Option<Nanos>)> {
        (0..)
            .zip(&self.all)
            .filter(|(_, hit)| hit.state.is_under_way())
            .map(|(at, hit)| (HitId { at, generation: hit.generation }, hit.peer, hit.deadline))
    }
}

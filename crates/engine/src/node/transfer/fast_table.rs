//! The table of the fast transfers.
//!
//! They have one of their own: to enter one and to take it out is a few words each, where an operation of any
//! kind, that may become another's part, takes many.

use crate::node::operations::op::Interest;
use crate::op_id::FastId;
use crate::registration::RegId;
use crate::registration::firehose::HoseId;
use crate::{Nanos, OpError, Rank};

/// No place.
const NONE: u32 = u32::MAX;

/// The fast transfers, by their places.
pub(in crate::node) struct FastTable {
    all: Vec<FastTransfer>,
    /// The first free place; each names the next.
    free: u32,
}

impl Default for FastTable {
    fn default() -> FastTable {
        FastTable { all: Vec::new(), free: NONE }
    }
}

/// One of them.
pub(in crate::node) struct FastTransfer {
    /// How often its place was used before, as [`FastId`] counts it.
    pub(in crate::node) generation: u32,
    pub(in crate::node) state: State,
    pub(in crate::node) interest: Interest,
    /// The client that started it.
    pub(in crate::node) client: u8,
    /// Whether it uses `local`. Apart from it, as 72 bytes are found by one instruction less than 80.
    registered: bool,
    /// In a free place: the next one.
    pub(in crate::node) peer: Rank,
    /// The firehose and the registration that it uses until the transport is done with it.
    pub(in crate::node) hose: HoseId,
    local: RegId,
    pub(in crate::node) deadline: Option<Nanos>,
    /// Once it is given up or over.
    pub(in crate::node) outcome: Result<u64, OpError>,
}

const _: () = assert!(size_of::<FastTransfer>() <= 72);

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

impl FastTransfer {
    /// The registration that it uses until the transport is done with it.
    pub(in crate::node) fn local(&self) -> Option<RegId> {
        self.registered.then_some(self.local)
    }
}

impl FastTable {
    /// Enters a transfer that is about to be submitted.
    #[inline(always)]
    pub(in crate::node) fn insert(
        &mut self,
        peer: Rank,
        hose: HoseId,
        local: Option<RegId>,
        deadline: Option<Nanos>,
        client: u8,
    ) -> FastId {
        let at = if self.free == NONE { self.grow(hose) } else { self.free };
        let fast = &mut self.all[at as usize];
        self.free = fast.peer;
        let state = if local.is_none() { State::Plain } else { State::UnderWay };
        (fast.state, fast.interest, fast.client, fast.registered) =
            (state, Interest::Asks, client, local.is_some());
        (fast.peer, fast.hose, fast.deadline) = (peer, hose, deadline);
        if let Some(local) = local {
            fast.local = local;
        }
        FastId { at, generation: fast.generation }
    }

    #[cold]
    fn grow(&mut self, hose: HoseId) -> u32 {
        let at = u32::try_from(self.all.len()).expect("so many would fill all memory");
        self.all.push(FastTransfer {
            generation: FastId::FIRST,
            state: State::Free,
            interest: Interest::Asks,
            client: 0,
            registered: false,
            peer: NONE,
            hose,
            local: RegId { index: 0, generation: 0 },
            deadline: None,
            outcome: Ok(0),
        });
        at
    }

    #[inline(always)]
    pub(in crate::node) fn get(&mut self, id: FastId) -> Option<&mut FastTransfer> {
        let fast = self.all.get_mut(id.at as usize)?;
        if fast.generation == id.generation { Some(fast) } else { None }
    }

    #[inline(always)]
    pub(in crate::node) fn remove(&mut self, at: u32) {
        let fast = &mut self.all[at as usize];
        fast.state = State::Free;
        fast.generation = FastId::after(fast.generation);
        fast.peer = std::mem::replace(&mut self.free, at);
    }

    /// Takes the outcome of one that has one.
    #[inline(always)]
    pub(in crate::node) fn take(&mut self, id: FastId) -> Option<Result<u64, OpError>> {
        let state = self.get(id)?.state;
        if state == State::Done {
            self.remove(id.at);
            return Some(Ok(0));
        }
        if state == State::Plain { None } else { self.take_other(id) }
    }

    #[cold]
    fn take_other(&mut self, id: FastId) -> Option<Result<u64, OpError>> {
        let fast = self.get(id)?;
        let outcome = fast.outcome;
        match fast.state {
            State::Over => self.remove(id.at),
            State::GivenUp => fast.state = State::Forgotten,
            State::Free | State::Plain | State::UnderWay | State::Done | State::Forgotten => return None,
        }
        Some(outcome)
    }

    /// Has it told of when it ends. `false` where it has ended, or there is none of that name.
    pub(in crate::node) fn watch(&mut self, id: FastId) -> bool {
        let Some(fast) = self.get(id).filter(|fast| fast.state.is_under_way()) else { return false };
        // Plain ones are asked about alone.
        (fast.state, fast.interest) = (State::UnderWay, Interest::Watches);
        true
    }

    pub(in crate::node) fn is_done(&self, id: FastId) -> bool {
        let fast = self.all.get(id.at as usize).filter(|fast| fast.generation == id.generation);
        fast.is_some_and(|fast| matches!(fast.state, State::Done | State::Over | State::GivenUp))
    }

    /// Whether one is at the transport, and has no outcome yet.
    pub(in crate::node) fn is_under_way(&self, id: FastId) -> bool {
        let fast = self.all.get(id.at as usize).filter(|fast| fast.generation == id.generation);
        fast.is_some_and(|fast| fast.state.is_under_way())
    }

    /// That client's that have no outcome yet, with their peers.
    pub(in crate::node) fn under_way_of(&self, client: u8) -> impl Iterator<Item = (FastId, Rank)> {
        let ids = self.under_way().map(|(id, peer, _)| (id, peer));
        ids.filter(move |(id, _)| self.all[id.at as usize].client == client)
    }

    /// Those without an outcome, with their peers and deadlines.
    pub(in crate::node) fn under_way(&self) -> impl Iterator<Item = (FastId, Rank, Option<Nanos>)> {
        (0..)
            .zip(&self.all)
            .filter(|(_, fast)| fast.state.is_under_way())
            .map(|(at, fast)| (FastId { at, generation: fast.generation }, fast.peer, fast.deadline))
    }
}

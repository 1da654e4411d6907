//! The barrier of the whole job: a counter, and a message from whoever arrives last.
//!
//! Every rank adds one to a word of rank 0's control memory. The rank that completes a round tells all
//! others. A rank is woken once, by the message that it waits for: with more processes than cores this costs
//! what a bare futex barrier costs, where rounds of messages would wake everyone several times.

pub(super) mod state;

use self::state::KEEPER;
use crate::node::Node;
use crate::node::operations::op::{OpKind, Outcome};
use crate::op_id::{OpId, OpKey};
use crate::wire::{self, Message};
use crate::{Atomic, Lane, Mechanism, MemId, Nanos, OpError, Operation, Place, Rank, Submit, Transport};

/// Where the counter lies at the keeper.
const COUNTER: Place = Place::new(MemId::Control, 0);

/// Ranks, at most, for who polls for a barrier to look at each of the others: any of them may be the last to
/// come.
const LOOKED_AT: u32 = 4;

/// Polls, at most, between two trials to tell a peer that a barrier is open.
const PAUSE_POLLS_MAX: u32 = 31;

impl<T: Transport> Node<T> {
    /// Arrives at the next barrier, or waits on for the one whose wait ended early by timeout or
    /// cancellation. The outcome is `Ok` once every rank has arrived, and [`OpError::PeerLost`] if one cannot
    /// come any more, then and ever after: the barrier is that of the processes that the job began with, and
    /// whoever takes the place of one that was lost has none.
    ///
    /// Call it again only after the outcome of the call before.
    pub fn barrier(&mut self, deadline: Option<Nanos>) -> OpId {
        let arrives = self.barrier.arrived == self.barrier.passed && self.barrier.lost.is_empty();
        if arrives {
            self.barrier.arrived += 1;
        }
        let key = self.ops.insert(OpKind::BarrierWait, deadline);
        if let Some(error) = self.barrier.broken {
            // Others may yet come to the barrier that this rank has given up: what was said once stays true.
            self.finish(key, Err(error));
        } else if self.barrier.arrived > self.barrier.passed && self.barrier.arrived == self.barrier.opened {
            self.pass_barrier();
        } else if self.barrier.arrived > self.barrier.passed && !self.barrier.lost.is_empty() {
            self.recount();
        } else if let Some(&peer) = self.barrier.lost.first() {
            self.break_barrier(OpError::PeerLost { peer });
        } else if arrives {
            self.arrive();
        }
        OpId::of(key)
    }

    /// Arrives at the next barrier without an operation, or is there already: for whoever polls for it
    /// anyway, and asks [`Node::is_open`] of the barrier that is returned, between polls. [`Node::barrier`]
    /// waits on for the same one, unless it is open by then. `None`: there is nothing to poll for.
    pub fn arrive_polling(&mut self) -> Option<u64> {
        let barrier = &mut self.barrier;
        if barrier.broken.is_some() || !barrier.lost.is_empty() {
            return None;
        }
        if barrier.arrived == barrier.passed {
            barrier.arrived += 1;
            self.arrive();
        }
        Some(self.barrier.arrived)
    }

    /// Whether that barrier, which this rank has arrived at, is open. It is passed then.
    pub fn is_open(&mut self, epoch: u64) -> bool {
        if self.barrier.opened < epoch && self.core.size <= LOOKED_AT {
            self.look_for_opening(epoch);
        }
        let is_open = self.barrier.opened >= epoch;
        if is_open {
            self.barrier.passed = self.barrier.passed.max(epoch);
        }
        is_open
    }

    /// Looks for the notice that this barrier is open right where it would come from.
    fn look_for_opening(&mut self, epoch: u64) {
        let open = Message::BarrierOpen { epoch }.encode(0);
        let head = wire::head(&open);
        let me = self.core.rank;
        let mut others = (0..self.core.size).filter(|peer| *peer != me);
        if others.any(|peer| self.core.transport.take_like(peer, head).is_some()) {
            self.settle_barrier(epoch);
        }
    }

    /// Adds this rank to the counter, unless that must wait: who sees it there may know of what it did
    /// before.
    pub(in crate::node) fn arrive(&mut self) {
        if self.mail.hold_arrival() {
            return;
        }
        // Who waited has been told; the counter that is there now, if any, is another process's.
        if self.barrier.lost.contains(&KEEPER) {
            return;
        }
        let epoch = self.barrier.arrived;
        let key = self.ops.insert(OpKind::BarrierArrival { epoch }, None);
        match self.core.transport.atomic(OpId::of(key), KEEPER, COUNTER, Atomic::fetch_add(1)) {
            Submit::Pending => {}
            Submit::Done(before) => self.on_arrival(key, epoch, Ok(before)),
            Submit::Unreachable(why) => {
                self.on_arrival(key, epoch, Err(OpError::Unsupported { peer: KEEPER, why }));
            }
            Submit::Failed(error) => self.on_arrival(key, epoch, Err(error)),
        }
        if !self.barrier.lost.is_empty() {
            self.recount();
        }
    }

    /// Takes the counter's value from before this rank arrived at barrier `epoch`. That barrier may be open
    /// by now, and this rank waiting at the next: the message that opens it can overtake the counter's
    /// answer.
    pub(in crate::node) fn on_arrival(&mut self, key: OpKey, epoch: u64, counted: Outcome) {
        self.ops.remove(key);
        let size = u64::from(self.core.size);
        match counted {
            Ok(before) if Some(before / size) != epoch.checked_sub(1) => {
                let what = "the barrier's counter is not where this rank left it";
                self.break_barrier(OpError::Protocol { peer: KEEPER, what });
            }
            Ok(before) if before % size == size - 1 => self.open_barrier(epoch),
            Ok(_) => {}
            Err(error) => self.break_barrier(error),
        }
    }

    /// A rank that was needed at the barrier is gone. If it had arrived, and all others too, the barrier is
    /// open whoever was to say so: the counter knows.
    pub(in crate::node) fn recount(&mut self) {
        let waiting =
            self.ops.iter().any(|(_, op)| op.outcome.is_none() && matches!(op.kind, OpKind::BarrierWait));
        // It does not know of this rank yet: `Node::arrive` asks it.
        let early = self.mail.holds_arrival() && !self.barrier.lost.contains(&KEEPER);
        if !waiting || early {
            return;
        }
        let key = self.ops.insert(OpKind::BarrierCount, None);
        match self.core.transport.atomic(OpId::of(key), KEEPER, COUNTER, Atomic::fetch_add(0)) {
            // The counter of a keeper that is gone can be read if it lies here; no answer will ever come from
            // there.
            Submit::Pending if self.barrier.lost.contains(&KEEPER) => {
                self.core.transport.abandon(OpId::of(key));
                self.on_count(key, Err(OpError::PeerLost { peer: KEEPER }));
            }
            Submit::Pending => {}
            Submit::Done(count) => self.on_count(key, Ok(count)),
            Submit::Unreachable(why) => {
                self.on_count(key, Err(OpError::Unsupported { peer: KEEPER, why }));
            }
            Submit::Failed(error) => self.on_count(key, Err(error)),
        }
    }

    /// Takes the counter's value for [`Node::recount`].
    pub(in crate::node) fn on_count(&mut self, key: OpKey, counted: Outcome) {
        self.ops.remove(key);
        let epoch = self.barrier.arrived;
        match counted {
            Ok(count) if count / u64::from(self.core.size) >= epoch => self.settle_barrier(epoch),
            _ => {
                let peer = self.barrier.lost.first().copied().unwrap_or(KEEPER);
                self.break_barrier(OpError::PeerLost { peer });
            }
        }
    }

    fn open_barrier(&mut self, epoch: u64) {
        self.tell_all(Message::BarrierOpen { epoch });
        self.settle_barrier(epoch);
    }

    /// Tells all others again which barrier has opened last: for the counter's keeper, before it leaves and
    /// takes that with it. Somebody may still wait for the word of whoever came last.
    pub fn retell_barrier(&mut self) {
        let epoch = self.barrier.opened;
        if self.core.rank == KEEPER && epoch > 0 {
            self.tell_all(Message::BarrierOpen { epoch });
        }
    }

    /// Tells all others that this rank has given up `peer`, whose process may be `gone`, and comes to no
    /// barrier any more.
    pub(in crate::node) fn tell_broken(&mut self, peer: Rank, gone: bool) {
        self.tell_all(Message::BarrierBroken { peer: Some(peer), gone });
    }

    fn tell_all(&mut self, notice: Message) {
        let me = self.core.rank;
        for peer in (0..self.core.size).filter(|peer| *peer != me) {
            // Whoever has the rank of one that was lost waits for no barrier.
            if self.barrier.lost.contains(&peer) {
                continue;
            }
            if self.mail.send_soon(&mut self.core, peer, Lane::Request, notice).is_err() {
                self.unsent_notices.keep(peer, notice);
            }
        }
    }

    /// Tries again to tell those that could not be told about the barrier. Returns whether one has been.
    pub(in crate::node) fn retry_notices(&mut self) -> bool {
        let (unsent, transport) = (&mut self.unsent_notices, &mut self.core.transport);
        if unsent.polls_left > 0 {
            unsent.polls_left -= 1;
            return false;
        }
        let before = unsent.by_peer.len();
        unsent
            .by_peer
            .retain(|peer, notice| transport.send(*peer, Lane::Request, &notice.encode(0), &[]).is_err());
        // A trial may cost a talk with a directory, and the reason seldom goes away within a few polls.
        unsent.pause = (2 * unsent.pause + 1).min(PAUSE_POLLS_MAX);
        unsent.polls_left = unsent.pause;
        unsent.by_peer.len() < before
    }

    pub(in crate::node) fn on_barrier_open(&mut self, epoch: u64) {
        // Nobody can open a barrier that this rank has not arrived at.
        if epoch == 0 || epoch > self.barrier.arrived {
            self.core.counters.malformed += 1;
            return;
        }
        self.settle_barrier(epoch);
    }

    /// Takes a peer's word that it has given up another, which may well run, and be heard from here.
    pub(in crate::node) fn on_barrier_broken(&mut self, given_up: Option<Rank>, gone: bool) {
        match given_up {
            // Whoever gives this rank up does not tell it so: the transport does.
            Some(given_up) if given_up < self.core.size && given_up != self.core.rank => {
                self.barrier.lost.insert(given_up);
                self.break_teams_of(given_up);
                if gone {
                    self.core.transport.doubt(given_up);
                }
                self.recount();
            }
            _ => self.core.counters.malformed += 1,
        }
    }

    fn settle_barrier(&mut self, epoch: u64) {
        // An old notice must not open the barrier that this rank waits at now.
        if epoch <= self.barrier.opened {
            return;
        }
        self.barrier.opened = epoch;
        self.core.counters.add(Operation::Barrier, Mechanism::Message, 0);
        self.pass_barrier();
    }

    /// Tells whoever waits that the barrier is open. With nobody waiting, the next call will be told.
    fn pass_barrier(&mut self) {
        if self.end_waits(Ok(0)) {
            self.barrier.passed = self.barrier.opened;
        }
    }

    fn break_barrier(&mut self, error: OpError) {
        let first = *self.barrier.broken.get_or_insert(error);
        self.end_waits(Err(first));
    }

    /// Ends every wait for the barrier. Returns whether there was one.
    fn end_waits(&mut self, outcome: Outcome) -> bool {
        let waits = |kind: &OpKind| matches!(kind, OpKind::BarrierWait);
        let mut any = false;
        loop {
            let waiting = self.ops.iter().find(|(_, op)| op.outcome.is_none() && waits(&op.kind));
            let Some(key) = waiting.map(|(key, _)| key) else { break };
            self.finish(key, outcome);
            any = true;
        }
        any
    }
}

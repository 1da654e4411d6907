//! The barrier of the whole job: a counter, and a message from whoever arrives last.
//!
//! Every rank adds one to a word of rank 0's control memory. The rank that completes a round tells all
//! others. A rank is woken once, by the message that it waits for. With more processes than cores this costs
//! what a bare futex barrier costs, where rounds of messages would wake everyone several times.
//!
//! A caller [arrives](Barrier::arrive_at_next), and waits by an operation or [polls](Barrier::is_open). The
//! loop brings what happens:
//!
//! | what | to |
//! |---|---|
//! | the counter's value, for an arrival or a count | [`on_report`](Barrier::on_report) |
//! | a peer's word that a barrier is open, or that it has given up another | [`on_open`](Barrier::on_open), [`on_broken`](Barrier::on_broken) |
//! | a notice that could not be sent after all | [`keep_notice`](Barrier::keep_notice) |
//! | the loss of a peer | [`forget`](Barrier::forget), and once its operations have ended [`recount`](Barrier::recount) |
//! | nothing held back any more | [`arrive`](Barrier::arrive) |
//!
//! A poll that finds nothing calls [`retry_notices`](Barrier::retry_notices). Time does nothing here.

mod notices;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use self::notices::UnsentNotices;
use super::core::Core;
use super::lent::Lent;
use super::operations::Operations;
use super::operations::op::{KEEPER, OpKind, Outcome};
use crate::op_id::{OpId, OpKey};
use crate::wire::{self, Message};
use crate::{Atomic, Lane, Mechanism, MemId, Nanos, OpError, Operation, Place, Rank, Submit, Transport};

/// Where the counter lies at the keeper.
const COUNTER: Place = Place::new(MemId::Control, 0);

/// Ranks, at most, for who polls for a barrier to look at each of the others: any of them may be the last to
/// come.
const LOOKED_AT: u32 = 4;

/// How far this rank has come with barriers.
#[derive(Default)]
pub(in crate::node) struct Barrier {
    /// Barriers that this rank has arrived at.
    arrived: u64,
    /// The last barrier known to be open.
    opened: u64,
    /// Barriers whose opening this rank's caller has been told of. A barrier may open after a wait for it
    /// timed out; the next call is then still about that one.
    passed: u64,
    /// Why this rank could not be counted in: no later barrier can work either.
    broken: Option<OpError>,
    /// Ranks whose first process is lost. Others may have their ranks by now; the barrier is not theirs.
    lost: BTreeSet<Rank>,
    /// Waits for it to open: some may have ended otherwise.
    waits: Vec<OpKey>,
    /// The transport is to report these: which barrier this rank arrives at by each, or `None` where it only
    /// counts.
    asked: Vec<(OpKey, Option<u64>)>,
    unsent: UnsentNotices,
}

/// Calls.
impl Barrier {
    /// Arrives at the next barrier, or waits on for the one whose wait ended early.
    pub(in crate::node) fn wait<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        deadline: Option<Nanos>,
    ) -> OpId {
        let arrives = self.arrived == self.passed && self.lost.is_empty();
        if arrives {
            self.arrived += 1;
        }
        let key = lent.ops.insert(OpKind::BarrierWait, deadline);
        self.waits.retain(|wait| lent.ops.is_under_way(*wait));
        self.waits.push(key);
        if let Some(error) = self.broken {
            // Others may yet come to the barrier that this rank has given up: what was said once stays true.
            lent.ops.finish(key, Err(error));
        } else if self.arrived > self.passed && self.arrived == self.opened {
            self.pass(lent.ops);
        } else if self.arrived > self.passed && !self.lost.is_empty() {
            self.recount(lent);
        } else if let Some(&peer) = self.lost.first() {
            self.give_up(lent.ops, OpError::PeerLost { peer });
        } else if arrives {
            self.arrive(lent);
        }
        OpId::of(key)
    }

    /// Arrives at the next barrier without an operation, or is there already: for who asks
    /// [`Barrier::is_open`] of the barrier that is returned. `None`: there is nothing to poll for.
    pub(in crate::node) fn arrive_at_next<T: Transport>(&mut self, lent: &mut Lent<'_, T>) -> Option<u64> {
        if self.broken.is_some() || !self.lost.is_empty() {
            return None;
        }
        if self.arrived == self.passed {
            self.arrived += 1;
            self.arrive(lent);
        }
        Some(self.arrived)
    }

    /// Whether that barrier, which this rank has arrived at, is open. It is passed then.
    #[inline]
    pub(in crate::node) fn is_open<T: Transport>(&mut self, lent: &mut Lent<'_, T>, epoch: u64) -> bool {
        if self.opened < epoch && lent.core.size <= LOOKED_AT {
            self.look_for_opening(lent, epoch);
        }
        let is_open = self.opened >= epoch;
        if is_open {
            self.passed = self.passed.max(epoch);
        }
        is_open
    }

    /// Looks for the notice that this barrier is open right where it would come from.
    fn look_for_opening<T: Transport>(&mut self, lent: &mut Lent<'_, T>, epoch: u64) {
        let open = Message::BarrierOpen { epoch }.encode(0);
        let head = wire::head(&open);
        let me = lent.core.rank;
        let mut others = (0..lent.core.size).filter(|peer| *peer != me);
        if others.any(|peer| lent.core.transport.take_like(peer, head).is_some()) {
            self.settle(lent, epoch);
        }
    }

    /// Tells all others again which barrier has opened last.
    pub(in crate::node) fn retell<T: Transport>(&mut self, lent: &mut Lent<'_, T>) {
        if lent.core.rank == KEEPER && self.opened > 0 {
            self.tell_all(lent, Message::BarrierOpen { epoch: self.opened });
        }
    }

    /// The first rank whose process of the job's beginning is lost, if any is.
    pub(in crate::node) fn first_lost(&self) -> Option<Rank> {
        self.lost.first().copied()
    }

    /// Whether that rank's is.
    pub(in crate::node) fn has_lost(&self, rank: Rank) -> bool {
        self.lost.contains(&rank)
    }
}

/// The counter.
impl Barrier {
    /// Adds this rank to the counter, unless that must wait: who sees it there may know of what it did
    /// before.
    pub(in crate::node) fn arrive<T: Transport>(&mut self, lent: &mut Lent<'_, T>) {
        if lent.mail.hold_arrival() {
            return;
        }
        // Waiting callers have been told; the counter that is there now, if any, is another process's.
        if self.lost.contains(&KEEPER) {
            return;
        }
        let key = self.ask(lent.ops, Some(self.arrived));
        let submitted = lent.core.transport.atomic(OpId::of(key), KEEPER, COUNTER, Atomic::fetch_add(1));
        self.on_submitted(lent, (key, submitted));
        if !self.lost.is_empty() {
            self.recount(lent);
        }
    }

    /// A rank that was needed at the barrier is gone. If it had arrived, and all others too, the barrier is
    /// open whoever was to say so: the counter knows.
    pub(in crate::node) fn recount<T: Transport>(&mut self, lent: &mut Lent<'_, T>) {
        self.waits.retain(|wait| lent.ops.is_under_way(*wait));
        // It does not know of this rank yet: `arrive` asks it.
        let early = lent.mail.holds_arrival() && !self.lost.contains(&KEEPER);
        if self.waits.is_empty() || early {
            return;
        }
        let key = self.ask(lent.ops, None);
        let mut submitted = lent.core.transport.atomic(OpId::of(key), KEEPER, COUNTER, Atomic::fetch_add(0));
        // The counter of a keeper that is gone can be read if it lies here; no answer will ever come from
        // there.
        if submitted == Submit::Pending && self.lost.contains(&KEEPER) {
            lent.core.transport.abandon(OpId::of(key));
            submitted = Submit::Failed(OpError::PeerLost { peer: KEEPER });
        }
        self.on_submitted(lent, (key, submitted));
    }

    /// Enters an operation by whose name the transport reports the counter.
    fn ask(&mut self, ops: &mut Operations, arrives_at: Option<u64>) -> OpKey {
        // A rank that has given one up does not report it.
        self.asked.retain(|(key, _)| ops.get(*key).is_some());
        let key = ops.insert(OpKind::BarrierCount, None);
        self.asked.push((key, arrives_at));
        key
    }

    fn on_submitted<T: Transport>(&mut self, lent: &mut Lent<'_, T>, (key, submitted): (OpKey, Submit)) {
        match submitted {
            Submit::Pending => {}
            Submit::Done(count) => self.on_report(lent, (key, Ok(count))),
            Submit::Unreachable(why) => {
                let error = OpError::Unsupported { peer: KEEPER, why };
                self.on_report(lent, (key, Err(error)));
            }
            Submit::Failed(error) => self.on_report(lent, (key, Err(error))),
        }
    }

    /// The transport reports what the counter was.
    pub(in crate::node) fn on_report<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (key, counted): (OpKey, Outcome),
    ) {
        lent.ops.remove(key);
        let Some(at) = self.asked.iter().position(|(asked, _)| *asked == key) else { return };
        match self.asked.swap_remove(at).1 {
            Some(epoch) => self.on_arrival(lent, (epoch, counted)),
            None => self.on_count(lent, counted),
        }
    }

    /// Takes the counter's value from before this rank arrived at barrier `epoch`. That barrier may be open
    /// by now, and this rank waiting at the next: the message that opens it can overtake the counter's
    /// answer.
    fn on_arrival<T: Transport>(&mut self, lent: &mut Lent<'_, T>, (epoch, counted): (u64, Outcome)) {
        let size = u64::from(lent.core.size);
        match counted {
            Ok(before) if Some(before / size) != epoch.checked_sub(1) => {
                let what = "the barrier's counter is not where this rank left it";
                self.give_up(lent.ops, OpError::Protocol { peer: KEEPER, what });
            }
            Ok(before) if before % size == size - 1 => {
                self.tell_all(lent, Message::BarrierOpen { epoch });
                self.settle(lent, epoch);
            }
            Ok(_) => {}
            Err(error) => self.give_up(lent.ops, error),
        }
    }

    /// Takes the counter's value for [`Barrier::recount`].
    fn on_count<T: Transport>(&mut self, lent: &mut Lent<'_, T>, counted: Outcome) {
        let epoch = self.arrived;
        match counted {
            Ok(count) if count / u64::from(lent.core.size) >= epoch => self.settle(lent, epoch),
            // The transport knows that the keeper has ended before this rank is told, as messages come first.
            // Its last word may be that the barrier is open. If not, its loss counts again.
            Err(OpError::PeerLost { peer: KEEPER }) if !self.lost.contains(&KEEPER) => {}
            _ => {
                let peer = self.lost.first().copied().unwrap_or(KEEPER);
                self.give_up(lent.ops, OpError::PeerLost { peer });
            }
        }
    }
}

/// News from peers, and to them.
impl Barrier {
    /// A peer says which barrier is open.
    pub(in crate::node) fn on_open<T: Transport>(&mut self, lent: &mut Lent<'_, T>, epoch: u64) {
        // Nobody can open a barrier that this rank has not arrived at.
        if epoch == 0 || epoch > self.arrived {
            lent.core.counters.malformed += 1;
            return;
        }
        self.settle(lent, epoch);
    }

    /// A peer says that it has given up another, which may well run, and be heard from here. Returns that
    /// one, if it can be: [`Barrier::recount`] follows.
    pub(in crate::node) fn on_broken<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        given_up: Option<Rank>,
    ) -> Option<Rank> {
        // A rank that gives this one up does not tell it so: the transport does.
        let given_up = given_up.filter(|given_up| *given_up < core.size && *given_up != core.rank);
        match given_up {
            Some(given_up) => _ = self.lost.insert(given_up),
            None => core.counters.malformed += 1,
        }
        given_up
    }

    /// Tells all others that this rank has given up `peer`, whose process may be `gone`, and comes to no
    /// barrier any more.
    pub(in crate::node) fn tell_broken<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (peer, gone): (Rank, bool),
    ) {
        self.tell_all(lent, Message::BarrierBroken { peer: Some(peer), gone });
    }

    fn tell_all<T: Transport>(&mut self, lent: &mut Lent<'_, T>, notice: Message) {
        let me = lent.core.rank;
        for peer in (0..lent.core.size).filter(|peer| *peer != me) {
            // A process that has the rank of one that was lost waits for no barrier.
            if self.lost.contains(&peer) {
                continue;
            }
            if lent.mail.send_soon(lent.core, peer, Lane::Request, notice).is_err() {
                self.unsent.keep(peer, notice);
            }
        }
    }

    /// Keeps a notice for a peer that could not be told, and is not lost.
    pub(in crate::node) fn keep_notice(&mut self, peer: Rank, notice: Message) {
        self.unsent.keep(peer, notice);
    }

    /// Whether somebody is still to be told something.
    #[inline(always)]
    pub(in crate::node) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Tries again to tell those that could not be told. Returns whether one has been.
    pub(in crate::node) fn retry_notices<T: Transport>(&mut self, core: &mut Core<T>) -> bool {
        self.unsent
            .retry(|peer, notice| core.transport.send(peer, Lane::Request, &notice.encode(0), &[]).is_ok())
    }

    /// A peer is gone. It breaks the barrier only where it was `of_job`.
    pub(in crate::node) fn forget(&mut self, peer: Rank, of_job: bool) {
        if of_job {
            self.lost.insert(peer);
        }
        self.unsent.forget(peer);
    }
}

/// Ends of waits.
impl Barrier {
    fn settle<T: Transport>(&mut self, lent: &mut Lent<'_, T>, epoch: u64) {
        // An old notice must not open the barrier that this rank waits at now.
        if epoch <= self.opened {
            return;
        }
        assert!(epoch <= self.arrived, "barrier {epoch} opens, and this rank has come to {}", self.arrived);
        self.opened = epoch;
        lent.core.counters.add(Operation::Barrier, Mechanism::Message, 0);
        self.pass(lent.ops);
    }

    /// Tells whoever waits that the barrier is open. With nobody waiting, the next call will be told.
    fn pass(&mut self, ops: &mut Operations) {
        if self.end_waits(ops, Ok(0)) {
            self.passed = self.opened;
        }
    }

    fn give_up(&mut self, ops: &mut Operations, error: OpError) {
        let first = *self.broken.get_or_insert(error);
        self.end_waits(ops, Err(first));
    }

    /// Ends every wait for the barrier. Returns whether there was one.
    fn end_waits(&mut self, ops: &mut Operations, outcome: Outcome) -> bool {
        self.waits.retain(|wait| ops.is_under_way(*wait));
        let any = !self.waits.is_empty();
        self.waits.drain(..).for_each(|wait| ops.finish(wait, outcome));
        any
    }
}

//! Progress: what a poll, and what arrives, does to the operations under way.

use super::Node;
use super::messages::active_message::{Polled, Refused};
use super::op::OpKind;
use super::registration::state::Registration;
use super::settling::Awaited;
use crate::op_id::OpId;
use crate::wire::{Am, AmForm, AmHead, Message};
use crate::{Copied, Event, Inbox, Lane, OpError, Rank, Transport};

/// Polls, at most, that may bring news in turn before what could not be sent is tried again: otherwise that
/// is when nothing has come.
const BUSY_POLLS_MAX: u32 = 64;

impl<T: Transport> Node<T> {
    /// Makes progress; see [`Polled`]. `inbox` is overwritten by what arrives.
    #[inline(always)]
    pub fn poll(&mut self, inbox: &mut Inbox) -> Polled {
        let retried = self.busy_polls >= BUSY_POLLS_MAX && self.go_on();
        self.busy_polls += 1;
        let event = match self.core.transport.poll_copied() {
            Copied::Done(op) => {
                self.on_copied(op);
                return Polled::Progressed;
            }
            Copied::Nothing => None,
            Copied::Unknown => self.core.transport.poll(inbox),
        };
        match event {
            Some(Event::Message { peer, lane }) => self.on_message(peer, lane, inbox),
            Some(Event::Completed { op, result }) => {
                self.on_completed(op, result);
                Polled::Progressed
            }
            Some(event) => self.on_rare(event),
            None if self.go_on() | retried => Polled::Progressed,
            None => self.next_local().map_or(Polled::Idle, Polled::Local),
        }
    }

    /// Takes an event that is neither a message nor the end of an operation: apart, so that these are found
    /// by a comparison.
    #[cold]
    fn on_rare(&mut self, event: Event) -> Polled {
        match event {
            Event::Message { .. } | Event::Completed { .. } => {}
            Event::Unreachable { op, why } => self.on_unreachable(op, why),
            Event::Garbled { peer } => self.on_garbled(peer),
            Event::Returned { peer, incarnation } => self.on_returned(peer, incarnation),
            Event::Registered { reg, result } => self.on_registered(reg, result),
            Event::Deregistered { reg } => self.on_deregistered(reg),
        }
        Polled::Progressed
    }

    /// Goes on with what could not be done before. Returns whether anything moved.
    #[inline(always)]
    fn go_on(&mut self) -> bool {
        self.busy_polls = 0;
        let tends =
            self.registration.as_ref().is_some_and(|registration| self.has_registration_work(registration));
        (self.waits() && self.retry()) | (tends && self.advance_registration())
    }

    /// Whether something could not be sent.
    #[inline(always)]
    fn waits(&self) -> bool {
        !(self.stalled.is_empty()
            && self.outbox.is_empty()
            && self.unsent_notices.by_peer.is_empty()
            && self.teams.unsent.is_empty())
    }

    /// Whether a poll may do something though the transport has no news: something could not be sent yet, or
    /// is to be gone on with.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.waits()
            || !self.teams.local.is_empty()
            || self.registration.as_ref().is_some_and(|registration| self.has_registration_work(registration))
    }

    #[inline(always)]
    fn on_message(&mut self, peer: Rank, lane: Lane, inbox: &Inbox) -> Polled {
        let head = AmHead::of(&inbox.header);
        if head.is_short() && inbox.payload.is_empty() {
            return self.deliver(peer, lane, head, 0);
        }
        self.on_long_message(peer, lane, inbox)
    }

    /// Takes any message but a short Active Message.
    #[inline(never)]
    fn on_long_message(&mut self, peer: Rank, lane: Lane, inbox: &Inbox) -> Polled {
        match Message::decode(&inbox.header, inbox.payload.len()) {
            Ok(Message::Am(Am { form, .. })) => {
                let len = match form {
                    AmForm::Short => 0,
                    AmForm::Medium => inbox.payload.len() as u64,
                    AmForm::Long(_, len) => u64::from(len),
                };
                self.deliver(peer, lane, AmHead::of(&inbox.header), len)
            }
            Ok(Message::AmDone { stamp: stamp @ 1.. }) if lane == Lane::Reply => Polled::Acknowledged(stamp),
            Ok(message) => self.on_service(peer, lane, &message, &inbox.payload),
            Err(_) => {
                self.core.counters.malformed += 1;
                Polled::Progressed
            }
        }
    }

    /// Whether registration has anything to see to.
    #[inline]
    fn has_registration_work(&self, registration: &Registration) -> bool {
        !(registration.deferred.is_empty() && self.ready.is_empty()) || self.actions_due || self.has_held()
    }

    #[inline]
    fn has_held(&self) -> bool {
        self.held_arrival || !(self.held.is_empty() && self.held_starts.is_empty())
    }

    /// Sees to registration. Returns whether anything moved.
    #[inline(never)]
    fn advance_registration(&mut self) -> bool {
        self.give_up_slow_holders();
        let mut moved = self.send_deferred();
        if self.has_held() && !self.holds_back() {
            moved = true;
            self.ready.extend(std::mem::take(&mut self.held));
            self.submit_held();
            if self.held_arrival {
                self.arrive();
            }
        }
        if self.actions_due || !self.ready.is_empty() {
            moved = true;
            self.run_actions();
        }
        moved
    }

    /// Takes a message that is for the engine itself, if it is one.
    #[inline(always)]
    fn on_service(&mut self, peer: Rank, lane: Lane, message: &Message, payload: &[u8]) -> Polled {
        match (message, lane) {
            (Message::Put(chunk), Lane::Request) => self.serve_put(peer, chunk, payload),
            (Message::PutSignal(chunk, signal), Lane::Request) => {
                self.serve_put_signal(peer, chunk, signal, payload);
            }
            (Message::Get(chunk, len), Lane::Request) => self.serve_get(peer, chunk, *len),
            (Message::ChunkDone(done), Lane::Reply) => self.on_chunk(peer, done, payload),
            (Message::Bounce(ask), Lane::Request) => self.serve_bounce(peer, ask),
            (Message::BounceGive { buffer }, Lane::Request) => self.on_bounce_give(peer, *buffer),
            (Message::Bounced(bounced), Lane::Reply) => self.on_bounced(peer, bounced),
            (Message::BarrierOpen { epoch }, Lane::Request) if self.core.is_of_job(peer) => {
                self.on_barrier_open(*epoch);
            }
            (Message::BarrierBroken { peer: given_up, gone }, Lane::Request) if self.core.is_of_job(peer) => {
                self.on_barrier_broken(*given_up, *gone);
            }
            (Message::Team(team, said), Lane::Request) if self.core.is_of_job(peer) => {
                self.on_team_message(peer, *team, said, payload);
                return self.next_local().map_or(Polled::Progressed, Polled::Local);
            }
            (Message::HandlerAsk(ask), Lane::Request) => self.serve_handler_ask(peer, ask),
            (Message::HandlerIs(answer), Lane::Reply) => self.on_handler_is(peer, answer),
            (Message::AmRefused { handler, client }, _) => {
                return self.on_refused(Refused { peer, handler: *handler, client: *client });
            }
            (Message::Move(ask), Lane::Request)
                if self.registration.is_none() && !self.core.is_gone(peer) =>
            {
                self.refuse_move(peer, ask, payload);
            }
            _ if self.registration.is_none() => self.core.counters.malformed += 1,
            // What it sent before it was lost must not be given anything any more: it would never come back.
            _ if self.core.is_gone(peer) => {}
            (Message::Move(ask), Lane::Request) => self.serve_move(peer, ask, payload),
            (Message::Moved(moved), Lane::Reply) => self.on_moved(peer, moved, payload),
            (Message::Revoke { holder }, Lane::Request) => self.on_revoke(peer, *holder),
            (Message::Recall { bytes }, Lane::Request) => self.on_recall(peer, *bytes),
            (Message::Release(release), Lane::Request) => self.on_release(peer, release),
            _ => self.core.counters.malformed += 1,
        }
        Polled::Progressed
    }

    #[inline(never)]
    pub(super) fn on_completed(&mut self, id: OpId, result: Result<u64, OpError>) {
        if let Some(fast) = id.fast() {
            // Also one that was given up: it uses what it does until now.
            return self.on_fast(fast, result);
        }
        let key = id.key();
        let Some(op) = self.ops.get_mut(key).filter(|op| op.outcome.is_none()) else {
            self.has_settled(Awaited::Report(id), None);
            return;
        };
        match &mut op.kind {
            OpKind::BarrierArrival { epoch } => {
                let epoch = *epoch;
                self.on_arrival(key, epoch, result);
            }
            OpKind::BarrierCount => self.on_count(key, result),
            OpKind::OneSided { peer, on_complete } => match (on_complete.take(), result) {
                (Some(on_complete), Ok(_)) => {
                    let peer = *peer;
                    self.conclude(key, peer, Some(*on_complete));
                }
                (_, result) => self.finish(key, result),
            },
            OpKind::Part(_) => self.on_part(key, result),
            OpKind::Bounce(_) => self.on_bounce_copied(key, result),
            OpKind::ByMessage(_)
            | OpKind::Keyed(_)
            | OpKind::HandlerAsk { .. }
            | OpKind::BarrierWait
            | OpKind::Collective(_) => {}
        }
    }

    /// Tries again what found no room. Returns whether anything moved.
    #[inline(never)]
    fn retry(&mut self) -> bool {
        let mut moved = !self.outbox.is_empty() && self.drain_outbox();
        moved |= !self.unsent_notices.by_peer.is_empty() && self.retry_notices();
        moved |= !self.teams.unsent.is_empty() && self.retry_collectives();
        let mut at = 0;
        while let Some((peer, _)) = self.stalled.nth(at) {
            moved |= self.retry_stalled(peer, at);
            at += 1;
        }
        self.stalled.tidy();
        moved
    }

    /// Goes on with the transfers to `peer` until its lane is full again. Returns whether anything moved.
    fn retry_stalled(&mut self, peer: Rank, at: usize) -> bool {
        let mut moved = false;
        while !self.must_wait(peer, Lane::Request) && self.core.transport.has_room(peer, Lane::Request) {
            let Some(key) = self.stalled.nth(at).and_then(|(_, list)| list.pop_front()) else { break };
            let Some(OpKind::ByMessage(transfer)) = self.ops.get_mut(key).map(|op| &mut op.kind) else {
                continue;
            };
            transfer.stalled = false;
            moved |= self.pump(key);
            // It is back: a message of its size found no room.
            if self.stalled.nth(at).is_some_and(|(_, list)| list.back() == Some(&key)) {
                break;
            }
        }
        moved
    }
}

//! Progress: what a poll, and what arrives, does to the operations under way.

use super::Node;
use super::mail::active_message::{Polled, Refused};
use super::mail::{Held, Unsent};
use super::operations::op::OpKind;
use super::operations::settling::Awaited;
use crate::op_id::OpId;
use crate::wire::{Am, AmForm, AmHead, Message};
use crate::{Copied, Event, Inbox, Lane, OpError, Place, Rank, Transport};

/// Polls, at most, that may bring news in turn before what could not be sent is tried again: otherwise that
/// is when nothing has come.
const BUSY_POLLS_MAX: u32 = 64;

impl<T: Transport> Node<T> {
    /// Makes progress; see [`Polled`]. `inbox` is overwritten by what arrives.
    #[inline(always)]
    pub fn poll(&mut self, inbox: &mut Inbox) -> Polled {
        debug_assert!(self.is_idle(), "a call has left something to be handed on");
        let retried = self.busy_polls >= BUSY_POLLS_MAX && self.go_on();
        self.busy_polls += 1;
        let event = match self.core.transport.poll_copied() {
            Copied::Done(op) => {
                if !self.on_copied(op) {
                    self.complete(op, Ok(0));
                }
                return Polled::Progressed;
            }
            Copied::Nothing => None,
            Copied::Unknown => {
                inbox.hold(0);
                self.core.transport.poll(inbox)
            }
        };
        match event {
            Some(Event::Message { peer, lane }) => self.on_message(peer, lane, inbox),
            Some(Event::Completed { op, result }) => {
                self.complete(op, result);
                Polled::Progressed
            }
            Some(event) => self.on_rare(event),
            None if self.go_on() | retried => Polled::Progressed,
            None => self.teams.next_local().map_or(Polled::Idle, Polled::Local),
        }
    }

    /// Takes an event that is neither a message nor the end of an operation: apart, so that these are found
    /// by a comparison.
    #[cold]
    fn on_rare(&mut self, event: Event) -> Polled {
        match event {
            Event::Message { .. } | Event::Completed { .. } => {}
            Event::Unreachable { op, why } => self.on_unreachable(op, why),
            Event::Garbled { peer } => self.core.on_garbled(peer),
            Event::Returned { peer, incarnation } => self.on_returned(peer, incarnation),
            Event::Registered { reg, result } => self.on_registered(reg, result),
            Event::Deregistered { reg } => self.on_deregistered(reg),
        }
        self.work();
        Polled::Progressed
    }

    /// Goes on with what could not be done before. Returns whether anything moved.
    #[inline(always)]
    fn go_on(&mut self) -> bool {
        self.busy_polls = 0;
        let tends = self.has_registration_work();
        let moved = (self.waits() && self.retry()) | (tends && self.advance_registration());
        if moved {
            self.work();
        }
        moved
    }

    /// Whether something could not be sent.
    #[inline(always)]
    fn waits(&self) -> bool {
        self.mail.waits() || self.barrier.has_unsent() || self.teams.has_unsent()
    }

    /// Whether a poll may do something though the transport has no news: something could not be sent yet, or
    /// is to be gone on with.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.waits() || self.teams.has_local() || self.has_registration_work()
    }

    #[inline(always)]
    fn on_message(&mut self, peer: Rank, lane: Lane, inbox: &mut Inbox) -> Polled {
        let head = AmHead::of(&inbox.header);
        if head.is_short() && inbox.payload_len() == 0 {
            return self.mail.deliver(&mut self.core, (peer, lane), head, 0);
        }
        self.on_long_message(peer, lane, inbox)
    }

    /// Takes any message but a short Active Message.
    #[inline(never)]
    fn on_long_message(&mut self, peer: Rank, lane: Lane, inbox: &mut Inbox) -> Polled {
        match Message::decode(&inbox.header, inbox.payload_len()) {
            Ok(Message::Am(Am { form, .. })) => {
                let len = match form {
                    AmForm::Short => 0,
                    AmForm::Medium => inbox.payload_len() as u64,
                    AmForm::Long(_, len) => u64::from(len),
                };
                self.mail.deliver(&mut self.core, (peer, lane), AmHead::of(&inbox.header), len)
            }
            Ok(Message::AmDone { stamp: stamp @ 1.. }) if lane == Lane::Reply => Polled::Acknowledged(stamp),
            Ok(message) => {
                self.fetch_payload(inbox);
                let polled = self.on_service(peer, lane, &message, &inbox.payload);
                self.work();
                polled
            }
            Err(_) => {
                self.core.counters.malformed += 1;
                Polled::Progressed
            }
        }
    }

    /// Copies the payload of the message in the inbox out of the transport, if it was left there: before the
    /// next poll, and by the same thread as that.
    pub fn fetch_payload(&mut self, inbox: &mut Inbox) {
        if inbox.held() > 0 {
            inbox.fetch(|bytes| self.core.transport.read_held(0, bytes));
        }
    }

    /// Reads of the payload of the message that the last poll handed on, from byte `at` on, where it was left
    /// with the transport ([`Inbox::held`]).
    pub fn read_held(&mut self, at: usize, into: &mut [u8]) {
        self.core.transport.read_held(at, into);
    }

    /// Copies the payload of the message in the inbox, which the last poll handed on, to a place in this
    /// process's memory: once, from where it lies.
    ///
    /// # Errors
    /// [`OpError::Fault`] of this rank where that is not accessible; then some of it may have been copied.
    pub fn copy_payload_to(&mut self, inbox: &Inbox, to: Place) -> Result<(), OpError> {
        let (peer, transport) = (self.core.rank, &mut self.core.transport);
        let copied = match inbox.here() {
            Some(bytes) => transport.write(to, bytes),
            None => transport.copy_held(0, inbox.payload_len(), to),
        };
        copied.map_err(|error| match error {
            OpError::LocalFault { mem, addr, len } => OpError::Fault { peer, mem, addr, len },
            error => error,
        })
    }

    /// Whether registration has anything to see to.
    #[inline]
    fn has_registration_work(&self) -> bool {
        self.registration.is_some()
            && (self.mail.has_deferred()
                || !self.ready.is_empty()
                || self.actions_due
                || self.mail.has_held())
    }

    /// Sees to registration. Returns whether anything moved.
    #[inline(never)]
    fn advance_registration(&mut self) -> bool {
        let mut moved = self.give_up_slow_holders();
        moved |= self.mail.send_deferred(&mut self.core);
        if let Some(Held { puts, starts, arrival }) = self.mail.let_go() {
            moved = true;
            self.ready.extend(puts);
            self.submit_held(starts);
            if arrival {
                let (barrier, mut lent) = self.barrier_lent();
                barrier.arrive(&mut lent);
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
                let (barrier, mut lent) = self.barrier_lent();
                barrier.on_open(&mut lent, *epoch);
            }
            (Message::BarrierBroken { peer: given_up, gone }, Lane::Request) if self.core.is_of_job(peer) => {
                self.on_barrier_broken(*given_up, *gone);
            }
            (Message::Team(team, said), Lane::Request) if self.core.is_of_job(peer) => {
                let (teams, barrier, mut lent) = self.teams_lent();
                let from = (peer, barrier.first_lost());
                teams.on_message(&mut lent, from, (*team, said), payload);
                self.work();
                return self.teams.next_local().map_or(Polled::Progressed, Polled::Local);
            }
            (Message::HandlerAsk(ask), Lane::Request) => {
                self.mail.serve_handler_ask(&mut self.core, peer, ask)
            }
            (Message::HandlerIs(answer), Lane::Reply) => self.on_handler_is(peer, answer),
            (Message::AtomicAsk(ask), Lane::Request) => self.serve_atomic(peer, ask),
            (Message::AtomicDone(done), Lane::Reply) => self.on_atomic_done(peer, done),
            (Message::GrantAsk(ask), Lane::Request) => self.serve_grant_ask(peer, ask),
            (Message::GrantIs(answer), Lane::Reply) => {
                if let (Some(direction), Some(found)) = (answer.ask.direction, answer.found) {
                    self.core.transport.learn_grant(peer, direction, found);
                }
            }
            (Message::AmRefused { handler, client }, _) => {
                return self.on_refused(Refused { peer, handler: *handler, client: *client });
            }
            (Message::Move(ask), Lane::Request)
                if self.registration.is_none() && !self.core.is_gone(peer) =>
            {
                self.refuse_move(peer, ask, payload);
            }
            (Message::KeyAsk(ask), Lane::Request)
                if self.registration.is_none() && !self.core.is_gone(peer) =>
            {
                self.refuse_key(peer, ask, payload);
            }
            _ if self.registration.is_none() => self.core.counters.malformed += 1,
            // A request that it sent before it was lost gets nothing any more: that would never come back.
            _ if self.core.is_gone(peer) => {}
            (Message::Move(ask), Lane::Request) => self.serve_move(peer, ask, payload),
            (Message::Moved(moved), Lane::Reply) => self.on_moved(peer, moved, payload),
            (Message::KeyAsk(ask), Lane::Request) => self.serve_key_ask(peer, ask, payload),
            (Message::KeyIs(answer), Lane::Reply) => self.on_key_is(peer, answer),
            (Message::Revoke { holder }, Lane::Request) => self.on_revoke(peer, *holder),
            (Message::Recall { bytes }, Lane::Request) => self.on_recall(peer, *bytes),
            (Message::Release(release), Lane::Request) => self.on_release(peer, release),
            _ => self.core.counters.malformed += 1,
        }
        Polled::Progressed
    }

    /// Takes the end of an operation of the transport's, and hands on what ends with it.
    #[inline(never)]
    fn complete(&mut self, id: OpId, result: Result<u64, OpError>) {
        self.on_completed(id, result);
        self.work();
    }

    fn on_completed(&mut self, id: OpId, result: Result<u64, OpError>) {
        if let Some(fast) = id.fast() {
            // Also one that was given up: it uses what it does until now.
            return self.on_fast(fast, result);
        }
        let key = id.key();
        let Some(op) = self.ops.under_way(key) else {
            self.ops.has_settled(Awaited::Report(id), None);
            return;
        };
        match &mut op.kind {
            OpKind::BarrierCount => {
                let (barrier, mut lent) = self.barrier_lent();
                barrier.on_report(&mut lent, (key, result));
            }
            OpKind::OneSided { peer, on_complete } => match (on_complete.take(), result) {
                (Some(on_complete), Ok(_)) => {
                    let peer = *peer;
                    self.conclude(key, peer, Some(*on_complete));
                }
                (_, result) => self.ops.finish(key, result),
            },
            OpKind::Part(_) => self.on_part(key, result),
            OpKind::Bounce(_) => self.on_bounce_copied(key, result),
            OpKind::ByMessage(_)
            | OpKind::Keyed(_)
            | OpKind::Atomic(_)
            | OpKind::HandlerAsk { .. }
            | OpKind::BarrierWait
            | OpKind::Collective => {}
        }
    }

    /// Tries again what found no room. Returns whether anything moved.
    #[inline(never)]
    fn retry(&mut self) -> bool {
        let mut moved = self.drain_outbox();
        moved |= self.barrier.retry_notices(&mut self.core);
        if self.teams.has_unsent() {
            let (teams, _, mut lent) = self.teams_lent();
            moved |= teams.retry(&mut lent);
        }
        let mut at = 0;
        while let Some(peer) = self.mail.stalled_peer(at) {
            moved |= self.retry_stalled(peer, at);
            at += 1;
        }
        self.mail.tidy_stalled();
        moved
    }

    /// Sends what waits in the outbox. Returns whether anything moved.
    fn drain_outbox(&mut self) -> bool {
        let mut unsent = Vec::new();
        let moved = self.mail.drain_outbox(&mut self.core, &mut unsent);
        unsent.into_iter().for_each(|unsent| self.on_unsent(unsent));
        moved
    }

    /// A message that had waited could not be sent: most are announcements of operations that have ended, and
    /// `quiet` reports it.
    #[cold]
    fn on_unsent(&mut self, Unsent { peer, message, error }: Unsent) {
        match message {
            Message::BarrierOpen { .. } | Message::BarrierBroken { .. } => {
                self.barrier.keep_notice(peer, message);
            }
            Message::Bounce(ask) => self.on_unsent_request(ask.op, error),
            Message::HandlerAsk(ask) => self.on_unsent_request(ask.op, error),
            // A peer that is gone has its bounce buffer back, and wants no answer.
            Message::BounceGive { .. } | Message::AmDone { .. } | Message::AmRefused { .. } => {}
            // Nobody waits for an answer.
            Message::GrantAsk(_) | Message::GrantIs(_) => {}
            Message::Am(am) => self.ops.note_failure(am.client, peer, Err(error)),
            _ => self.ops.note_failure(0, peer, Err(error)),
        }
    }

    /// Goes on with the transfers to `peer`, and atomics in its grants, until its lane is full again. Returns
    /// whether anything moved.
    fn retry_stalled(&mut self, peer: Rank, at: usize) -> bool {
        let mut moved = false;
        while !self.mail.must_wait(peer, Lane::Request) && self.core.transport.has_room(peer, Lane::Request) {
            let Some(key) = self.mail.next_stalled(at) else { break };
            match self.ops.get_mut(key).map(|op| &mut op.kind) {
                Some(OpKind::ByMessage(transfer)) => {
                    transfer.stalled = false;
                    moved |= self.pump(key);
                }
                Some(OpKind::Atomic(_)) => moved |= self.send_atomic(key),
                _ => continue,
            }
            // It is back: a message of its size found no room.
            if self.mail.is_last_stalled(at, key) {
                break;
            }
        }
        moved
    }
}

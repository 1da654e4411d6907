//! Mail: what goes to peers as messages, and all that waits to go.
//!
//! A part that has something to say calls one of these, and keeps nothing of it:
//!
//! | call | for | where it cannot go now |
//! |---|---|---|
//! | [`send_am`](Mail::send_am) | an Active Message | a request is `Busy`, a reply is kept |
//! | [`send_soon`](Mail::send_soon) | a message without payload | it is kept in the *outbox* |
//! | [`post`](Mail::post) | a message of registration's own | it is *deferred*, with its payload |
//! | [`answer`](Mail::answer) | the answer to a request, from the scratch space | likewise |
//! | [`stall`](Mail::stall) | a transfer that has more to send, or an atomic in a grant | the transfer is told by [`next_stalled`](Mail::next_stalled) |
//!
//! Chunks and steps of collectives are sent by their owners. These ask [`is_taken`](Mail::is_taken) first, as
//! what waits for a lane goes before what comes later.
//!
//! While a peer may still use what is no longer this process's memory, messages are *held back*: registration
//! says so by [`hold_back`](Mail::hold_back). Puts, atomics and the arrival at a barrier wait, too
//! ([`Held`]); the answers to peers are deferred. Registration's own messages go nonetheless, as they end
//! that.
//!
//! A poll that finds nothing calls [`send_deferred`](Mail::send_deferred) and
//! [`drain_outbox`](Mail::drain_outbox), goes on with what is stalled, and with what
//! [`let_go`](Mail::let_go) gives. [`forget`](Mail::forget) drops what waits for a peer that is gone. Time
//! does nothing here.

pub(super) mod active_message;
mod deferred;
mod held;
mod outbox;
#[cfg(test)]
mod tests;
mod wait_queues;

pub(in crate::node) use held::Held;
pub(in crate::node) use outbox::Unsent;

use self::active_message::{AmSend, Delivery, Polled};
use self::deferred::DeferredMessages;
use self::outbox::Outbox;
use self::wait_queues::WaitQueues;
use super::core::Core;
use super::transfer::state::HeldStart;
use crate::handlers::{HandlerKey, HandlerTable};
use crate::op_id::OpKey;
use crate::wire::{AmHead, Found, HandlerAsk, HandlerIs, Message};
use crate::{Lane, Mechanism, OpError, Operation, Rank, SendError, Transport};

/// Messages that wait to be sent, and the handlers of those that arrive.
#[derive(Default)]
pub(in crate::node) struct Mail {
    handlers: HandlerTable,
    outbox: Outbox,
    deferred: DeferredMessages,
    /// Some peer may still use what is no longer this process's memory.
    holds_back: bool,
    held: Held,
    /// By peer: transfers that found the lane full and go on at a later poll, in turn.
    stalled: WaitQueues<Rank, OpKey>,
}

impl Mail {
    /// With so many handlers, whose numbers begin with 0.
    pub(in crate::node) fn new(handlers: u32) -> Mail {
        let mut mail = Mail::default();
        for number in 0..handlers {
            let added = mail.handlers.add(HandlerKey { number, check: 0 }, u64::from(number));
            added.expect("numbers that are all different");
        }
        mail
    }

    /// Whether something could not be sent that a poll may try again: deferred messages apart.
    #[inline(always)]
    pub(in crate::node) fn waits(&self) -> bool {
        !(self.stalled.is_empty() && self.outbox.is_empty())
    }

    /// Whether a message must wait: messages are held back, or others are deferred to go the same way.
    #[inline]
    pub(in crate::node) fn must_wait(&self, peer: Rank, lane: Lane) -> bool {
        self.holds_back || self.deferred.has(peer, lane)
    }

    /// Whether others are to go that way first, or nothing may.
    #[inline]
    pub(in crate::node) fn is_taken(&self, peer: Rank, lane: Lane) -> bool {
        self.must_wait(peer, lane) || self.outbox.has(peer, lane)
    }

    /// Drops all that waits for a peer that is gone.
    pub(in crate::node) fn forget(&mut self, peer: Rank) {
        self.outbox.forget(peer);
        self.deferred.forget(peer);
    }

    /// A transfer has more to send to a peer, or an atomic is to be asked of it, and found its lane full.
    pub(in crate::node) fn stall(&mut self, peer: Rank, op: OpKey) {
        self.stalled.push(peer, op);
    }

    /// The peer that the `at`th list of stalled transfers is for. Nothing moves lists but new ones, and
    /// [`Mail::tidy_stalled`].
    pub(in crate::node) fn stalled_peer(&mut self, at: usize) -> Option<Rank> {
        self.stalled.nth(at).map(|(peer, _)| peer)
    }

    /// Takes the transfer that has been stalled for longest in that list.
    pub(in crate::node) fn next_stalled(&mut self, at: usize) -> Option<OpKey> {
        self.stalled.nth(at)?.1.pop_front()
    }

    /// Whether that transfer was the last to stall in that list.
    pub(in crate::node) fn is_last_stalled(&mut self, at: usize, op: OpKey) -> bool {
        self.stalled.nth(at).is_some_and(|(_, list)| list.back() == Some(&op))
    }

    /// Drops the lists that have become empty.
    pub(in crate::node) fn tidy_stalled(&mut self) {
        self.stalled.tidy();
    }
}

/// Sending.
impl Mail {
    /// Sends a message without payload now, or as soon as the lane has room.
    ///
    /// # Errors
    /// That the peer is gone, or why the transport cannot reach it.
    pub(in crate::node) fn send_soon<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        peer: Rank,
        lane: Lane,
        message: Message,
    ) -> Result<(), OpError> {
        if core.is_gone(peer) {
            return Err(OpError::PeerLost { peer });
        }
        let sent = if self.is_taken(peer, lane) {
            Err(SendError::Busy)
        } else {
            core.transport.send(peer, lane, &message.encode(0), &[])
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Busy) => self.outbox.push(peer, lane, message),
            Err(SendError::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    /// Sends what waits in the outbox, unless messages are held back. Returns whether anything moved, and
    /// adds what failed to `unsent`.
    pub(in crate::node) fn drain_outbox<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        unsent: &mut Vec<Unsent>,
    ) -> bool {
        !self.outbox.is_empty() && !self.holds_back && self.outbox.drain(core, unsent)
    }

    /// Messages that wait in the outbox.
    #[inline]
    pub(in crate::node) fn outbox_len(&self) -> usize {
        self.outbox.len()
    }

    /// Those for a peer.
    pub(in crate::node) fn unsent_to(&self, peer: Rank) -> impl Iterator<Item = &Message> {
        self.outbox.to(peer)
    }

    /// Puts what `both` says in the place of the first message to a peer in the outbox of which it says
    /// anything. Returns whether there was one.
    pub(in crate::node) fn amend(
        &mut self,
        peer: Rank,
        both: impl FnMut(&Message) -> Option<Message>,
    ) -> bool {
        self.outbox.amend(peer, both)
    }

    /// Takes such messages back that wait in the outbox. Returns whether there were any.
    pub(in crate::node) fn take_back(&mut self, is_it: impl Fn(&Message) -> bool) -> bool {
        self.outbox.take_back(is_it)
    }

    /// Sends a message of registration's own now, or, where anything waits, at a poll that finds room; after
    /// those deferred to the same lane. It is not held back.
    pub(in crate::node) fn post<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        peer: Rank,
        lane: Lane,
        message: Message,
        payload: &[u8],
    ) {
        if core.is_gone(peer) {
            return;
        }
        let sent = if self.deferred.has(peer, lane) || !self.outbox.is_empty() {
            Err(SendError::Busy)
        } else {
            core.transport.send(peer, lane, &message.encode(payload.len()), payload)
        };
        if sent == Err(SendError::Busy) {
            self.deferred.push((peer, lane), message, payload, false);
        }
    }

    /// Answers a request with `len` bytes of the scratch space.
    #[inline(always)]
    pub(in crate::node) fn answer<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        peer: Rank,
        message: Message,
        len: usize,
    ) {
        if self.answer_must_wait(core, peer) {
            return self.deferred.push((peer, Lane::Reply), message, &core.scratch[..len], true);
        }
        // The transport handed the request out, so there is room; only a peer that corrupts its own lane sees
        // none, and it alone then waits in vain.
        if core.transport.send(peer, Lane::Reply, &message.encode(len), &core.scratch[..len]).is_err() {
            core.counters.malformed += 1;
        }
    }

    /// Whether an answer to a peer must wait. Messages that wait for the same peer go first, if they may.
    /// Each request leaves room for one answer, so that no more wait than came while answers were held back.
    #[inline(always)]
    fn answer_must_wait<T: Transport>(&mut self, core: &mut Core<T>, peer: Rank) -> bool {
        self.must_wait(peer, Lane::Reply) && self.answer_waits(core, peer)
    }

    /// The rest of it, where something waits.
    #[cold]
    fn answer_waits<T: Transport>(&mut self, core: &mut Core<T>, peer: Rank) -> bool {
        if !self.holds_back {
            self.deferred.send_to(core, (peer, Lane::Reply), false);
        }
        // The room that this request left may be taken by now.
        self.must_wait(peer, Lane::Reply) || !core.transport.has_room(peer, Lane::Reply)
    }

    /// Whether more is held back than peers make wait that give back what they are asked for.
    pub(in crate::node) fn holds_too_much(&self) -> bool {
        self.deferred.are_too_many()
    }

    /// Whether anything is deferred.
    #[inline]
    pub(in crate::node) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// The messages deferred on that way.
    pub(in crate::node) fn deferred(&self, peer: Rank, lane: Lane) -> impl Iterator<Item = &Message> {
        self.deferred.to(peer, lane)
    }

    /// Sends what is deferred and may go. Returns whether anything moved.
    pub(in crate::node) fn send_deferred<T: Transport>(&mut self, core: &mut Core<T>) -> bool {
        self.deferred.send(core, self.holds_back)
    }

    /// Looks at all that waits anew.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(in crate::node) fn audit(&self) -> Result<(), String> {
        self.deferred.audit()
    }
}

/// Holding back.
impl Mail {
    /// Whether messages are held back.
    #[inline(always)]
    pub(in crate::node) fn holds_back(&self) -> bool {
        self.holds_back
    }

    /// Messages are held back from now on, or no more.
    pub(in crate::node) fn hold_back(&mut self, holds_back: bool) {
        self.holds_back = holds_back;
    }

    /// Keeps a put by keys until nothing is held back.
    pub(in crate::node) fn hold_put(&mut self, op: OpKey) {
        self.held.puts.push(op);
    }

    /// Keeps a put or an atomic without a key likewise.
    pub(in crate::node) fn hold_start(&mut self, op: OpKey, start: HeldStart) {
        self.held.starts.push((op, start));
    }

    /// Keeps this rank's arrival at the barrier if anything is held back. Returns whether it is.
    pub(in crate::node) fn hold_arrival(&mut self) -> bool {
        self.held.arrival = self.holds_back;
        self.holds_back
    }

    /// Whether this rank's arrival waits.
    pub(in crate::node) fn holds_arrival(&self) -> bool {
        self.held.arrival
    }

    /// Whether anything waits until nothing is held back.
    #[inline]
    pub(in crate::node) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes what waited, if nothing is held back any more.
    pub(in crate::node) fn let_go(&mut self) -> Option<Held> {
        (self.has_held() && !self.holds_back).then(|| std::mem::take(&mut self.held))
    }
}

/// Active Messages.
impl Mail {
    /// Sends an Active Message of a client's. A reply to the request being handled that must wait is kept.
    ///
    /// # Errors
    /// `Busy`: the lane is full, or others are to go first. That the peer is lost, or cannot be reached.
    #[inline(always)]
    pub(in crate::node) fn send_am<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        message: &AmSend<'_>,
        (client, stamp): (u8, u64),
    ) -> Result<(), SendError> {
        let &AmSend { peer, lane, .. } = message;
        // The reply goes to the process that has asked.
        let is_reply = lane == Lane::Reply;
        if core.has_lost() && (core.is_gone(peer) || !is_reply && core.is_lost(peer)) {
            return Err(SendError::Failed(OpError::PeerLost { peer }));
        }
        let payload = message.payload();
        if is_reply {
            // Messages that wait in the outbox do not keep it: it has room by contract.
            if self.answer_must_wait(core, peer) {
                let am = Message::Am(message.am(client, stamp));
                self.deferred.push((peer, lane), am, payload, true);
                count_am(core, lane, payload.len() as u64);
                return Ok(());
            }
        } else if self.is_taken(peer, lane) {
            return Err(SendError::Busy);
        }
        core.transport.send(peer, lane, &message.encode(client, stamp), payload)?;
        count_am(core, lane, payload.len() as u64);
        Ok(())
    }

    /// Whether it is worth while to try a message to the peer by that lane: `false` where others wait for the
    /// lane, or it is full.
    pub(in crate::node) fn may_send<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        peer: Rank,
        lane: Lane,
    ) -> bool {
        !self.is_taken(peer, lane) && core.transport.has_room(peer, lane)
    }

    /// Hands an Active Message, which brought so many bytes, to its handler, if it names one.
    #[inline(always)]
    pub(in crate::node) fn deliver<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        (peer, lane): (Rank, Lane),
        head: AmHead,
        bytes: u64,
    ) -> Polled {
        let Some(handler) = self.handlers.entry(head.handler()) else {
            self.refuse(core, peer, lane, head);
            return Polled::Progressed;
        };
        core.counters.add(Operation::Handled, Mechanism::Message, bytes);
        Polled::Deliver(Delivery { peer, lane, handler })
    }

    /// Tells the sender of an Active Message that its handler is not here: nothing is kept for one that may
    /// come.
    #[cold]
    pub(in crate::node) fn refuse<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        peer: Rank,
        lane: Lane,
        head: AmHead,
    ) {
        core.counters.refused += 1;
        let message = Message::AmRefused { handler: head.handler(), client: head.client() };
        match lane {
            // There is room for the reply that is not made.
            Lane::Request => self.answer(core, peer, message, 0),
            // Nobody keeps room for answers to replies: a full lane loses the news, which the counter has.
            Lane::Reply if core.is_gone(peer) || self.is_taken(peer, Lane::Request) => {}
            Lane::Reply => _ = core.transport.send(peer, Lane::Request, &message.encode(0), &[]),
        }
    }

    /// Adds a handler. The error is the check of the one that has its number already.
    pub(in crate::node) fn add_handler(&mut self, key: HandlerKey, entry: u64) -> Result<(), u32> {
        self.handlers.add(key, entry)
    }

    /// Removes a handler.
    pub(in crate::node) fn remove_handler(&mut self, key: HandlerKey) {
        self.handlers.remove(key);
    }

    /// Tells a peer whether there is such a handler.
    pub(in crate::node) fn serve_handler_ask<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        peer: Rank,
        ask: &HandlerAsk,
    ) {
        let found = match self.handlers.check(ask.key.number) {
            None => Found::Nothing,
            Some(check) if check == ask.key.check => Found::It,
            Some(_) => Found::Another,
        };
        self.answer(core, peer, Message::HandlerIs(HandlerIs { op: ask.op, found: Some(found) }), 0);
    }
}

/// Counts an Active Message with a payload of so many bytes.
pub(in crate::node) fn count_am<T: Transport>(core: &mut Core<T>, lane: Lane, bytes: u64) {
    let operation = match lane {
        Lane::Request => Operation::Request,
        Lane::Reply => Operation::Reply,
    };
    core.counters.add(operation, Mechanism::Message, bytes);
}

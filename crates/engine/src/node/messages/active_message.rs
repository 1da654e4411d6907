//! Active Messages: requests and replies that name a handler at the receiver.

use crate::handlers::HandlerKey;
use crate::node::Node;
use crate::node::op::OpKind;
use crate::node::transfer::state::OnComplete;
use crate::op_id::OpId;
use crate::wire::{Am, AmForm, AmHead, Found, HandlerAsk, HandlerIs, Message};
use crate::{
    Direction, Header, Inbox, Lane, Mechanism, Nanos, OpError, Operation, Piece, Place, Rank, SendError,
    Transport,
};

/// What an Active Message carries besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmBody<'a> {
    /// Nothing.
    Short,
    /// A payload inside the message, at most [`Transport::payload_max`] bytes.
    Medium(&'a [u8]),
    /// A payload that already lies in the receiver's memory: where, and how many bytes.
    Long(Place, u32),
}

/// An Active Message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct AmSend<'a> {
    /// The receiver.
    pub peer: Rank,
    /// Request, or the reply to the request being handled.
    pub lane: Lane,
    /// The handler's number.
    pub handler: u32,
    /// Arguments, passed as they are.
    pub args: [u64; 4],
    /// The payload.
    pub body: AmBody<'a>,
}

/// An Active Message that arrived, and lies in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sender.
    pub peer: Rank,
    /// Whether it is a request, which may be replied to, or a reply.
    pub lane: Lane,
    /// The entry that the handler was [added](Node::add_handler) with.
    pub handler: u64,
}

/// A message of this node's that a peer has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The peer.
    pub peer: Rank,
    /// The number of the handler that it has not.
    pub handler: u32,
    /// The client that sent it.
    pub client: u8,
}

/// What one call of [`Node::poll`] did.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing: no message, no completion, nothing that waited could go on.
    Idle,
    /// Something moved; operations may have completed.
    Progressed,
    /// An Active Message for a handler. The message is in the inbox given to `poll`; the handler must
    /// have run, and sent its reply if it sends one, before the next call of `poll`.
    Deliver(Delivery),
    /// The handler of a stamped request of this node's has run at the peer, and has not replied; the stamp.
    Acknowledged(u64),
    /// A peer has refused a message of this node's, whose handler it has not. `quiet` reports it, too.
    Refused(Refused),
    /// A collective that was started with [`Start::steps_told`](crate::node::Start::steps_told) has come to a
    /// step in this process's own memory: see [`Node::local_step`].
    Local(OpId),
}

impl AmSend<'_> {
    #[inline(always)]
    fn am(&self, client: u8, stamp: u64) -> Am {
        match self.body {
            AmBody::Short => self.in_form(client, stamp, AmForm::Short),
            AmBody::Medium(_) => self.in_form(client, stamp, AmForm::Medium),
            AmBody::Long(place, len) => self.in_form(client, stamp, AmForm::Long(place, len)),
        }
    }

    /// As [`Am::encode`] of [`AmSend::am`], with the form looked at once.
    #[inline(always)]
    fn encode(&self, client: u8, stamp: u64) -> [u64; Header::WORDS] {
        match self.body {
            AmBody::Short => self.in_form(client, stamp, AmForm::Short).encode(0),
            AmBody::Medium(payload) => self.in_form(client, stamp, AmForm::Medium).encode(payload.len()),
            AmBody::Long(place, len) => self.in_form(client, stamp, AmForm::Long(place, len)).encode(0),
        }
    }

    #[inline(always)]
    const fn in_form(&self, client: u8, stamp: u64, form: AmForm) -> Am {
        Am { handler: self.handler, client, args: self.args, stamp, form }
    }

    fn payload(&self) -> &[u8] {
        match self.body {
            AmBody::Medium(payload) => payload,
            AmBody::Short | AmBody::Long(..) => &[],
        }
    }
}

impl<T: Transport> Node<T> {
    /// Sends an Active Message. `Busy`: the lane is full, poll and try again; a reply to the request being
    /// handled is never `Busy`.
    #[inline(always)]
    pub fn send_am(&mut self, message: &AmSend<'_>) -> Result<(), SendError> {
        self.send_am_stamped(message, 0)
    }

    /// As [`Node::send_am`], with a stamp: a number of [`STAMP_BITS`](crate::wire::STAMP_BITS) bits that is
    /// echoed by the reply's sender, who passes here what [`Inbox::stamp`](crate::Inbox::stamp) says, or,
    /// where the handler does not reply, by [`Node::acknowledge`]. 0 is none.
    #[inline(always)]
    pub fn send_am_stamped(&mut self, message: &AmSend<'_>, stamp: u64) -> Result<(), SendError> {
        // Who is replied to is the process that has asked.
        let is_reply = message.lane == Lane::Reply;
        if self.core.has_lost()
            && (self.core.is_gone(message.peer) || !is_reply && self.core.is_lost(message.peer))
        {
            return Err(SendError::Failed(OpError::PeerLost { peer: message.peer }));
        }
        // An announcement that found the lane full goes first. Replies are exempt: they have room by
        // contract.
        if message.lane == Lane::Request && self.waits_in_outbox(message.peer, message.lane) {
            return Err(SendError::Busy);
        }
        let payload = message.payload();
        let waits = self.registration.is_some()
            && match message.lane {
                Lane::Request => self.must_wait(message.peer, message.lane),
                Lane::Reply => self.answer_must_wait(message.peer),
            };
        if waits {
            if message.lane == Lane::Request {
                return Err(SendError::Busy);
            }
            self.hold(
                message.peer,
                message.lane,
                Message::Am(message.am(self.clients.acting, stamp)),
                payload,
            );
            self.count_am(message.lane, payload.len() as u64);
            return Ok(());
        }
        self.core.transport.send(
            message.peer,
            message.lane,
            &message.encode(self.clients.acting, stamp),
            payload,
        )?;
        self.count_am(message.lane, payload.len() as u64);
        Ok(())
    }

    /// Whether it is worth while to try a message to the peer by that lane: `false` where others wait for the
    /// lane, or it is full.
    pub fn may_send(&mut self, peer: Rank, lane: Lane) -> bool {
        let waits = self.registration.is_some() && self.must_wait(peer, lane);
        !waits && !self.waits_in_outbox(peer, lane) && self.core.transport.has_room(peer, lane)
    }

    /// Tells the sender of a stamped request that its handler has run. For whoever has run it, before the
    /// next poll, and only where it has not replied.
    #[cold]
    pub fn acknowledge(&mut self, peer: Rank, stamp: u64) {
        // Who is gone wants no answer.
        let _ = self.send_soon(peer, Lane::Reply, Message::AmDone { stamp });
    }

    /// Puts `pieces` and then sends the Active Message, which must be long, so that its handler runs after
    /// the bytes lie in place. The operation is complete when the message has been sent or queued.
    pub fn transfer_then_am(
        &mut self,
        pieces: &[Piece],
        message: &AmSend<'_>,
        deadline: Option<Nanos>,
    ) -> OpId {
        self.transfer_then_am_stamped(pieces, message, 0, deadline)
    }

    /// As [`Node::transfer_then_am`], with a stamp as [`Node::send_am_stamped`] takes one.
    pub fn transfer_then_am_stamped(
        &mut self,
        pieces: &[Piece],
        message: &AmSend<'_>,
        stamp: u64,
        deadline: Option<Nanos>,
    ) -> OpId {
        assert!(matches!(message.body, AmBody::Long(..)), "only a long message's payload goes ahead of it");
        let announce = OnComplete::Notify(message.lane, message.am(self.clients.acting, stamp));
        self.count_am(message.lane, 0);
        self.start_transfer(message.peer, Direction::Put, pieces, deadline, Some(announce))
    }

    fn count_am(&mut self, lane: Lane, bytes: u64) {
        let operation = match lane {
            Lane::Request => Operation::Request,
            Lane::Reply => Operation::Reply,
        };
        self.core.counters.add(operation, Mechanism::Message, bytes);
    }

    /// Hands an Active Message, which brought so many bytes, to its handler, if it names one.
    #[inline(always)]
    pub(in crate::node) fn deliver(&mut self, peer: Rank, lane: Lane, head: AmHead, bytes: u64) -> Polled {
        let Some(handler) = self.handlers.entry(head.handler()) else {
            self.refuse(peer, lane, head);
            return Polled::Progressed;
        };
        self.core.counters.add(Operation::Handled, Mechanism::Message, bytes);
        Polled::Deliver(Delivery { peer, lane, handler })
    }
}

/// Which handlers there are, and what comes of messages for those that are not.
impl<T: Transport> Node<T> {
    /// Adds a handler: its messages are delivered from now on, and name it by `entry`. The error is the
    /// [check](HandlerKey::check) of the handler that has its number already.
    pub fn add_handler(&mut self, key: HandlerKey, entry: u64) -> Result<(), u32> {
        self.handlers.add(key, entry)
    }

    /// Removes a handler: its messages are refused from now on.
    pub fn remove_handler(&mut self, key: HandlerKey) {
        self.handlers.remove(key);
    }

    /// Asks a peer whether it has a handler. The outcome is what it says: see [`Found`].
    pub fn ask_for_handler(&mut self, peer: Rank, key: HandlerKey, deadline: Option<Nanos>) -> OpId {
        let asked = self.insert(OpKind::HandlerAsk { peer }, deadline);
        let op = OpId::of(asked);
        if self.core.is_lost(peer) {
            self.finish(asked, Err(OpError::PeerLost { peer }));
            return op;
        }
        let ask = Message::HandlerAsk(HandlerAsk { op, key });
        if let Err(error) = self.send_soon(peer, Lane::Request, ask) {
            self.finish(asked, Err(error));
        }
        op
    }

    pub(in crate::node) fn serve_handler_ask(&mut self, peer: Rank, ask: &HandlerAsk) {
        let found = match self.handlers.check(ask.key.number) {
            None => Found::Nothing,
            Some(check) if check == ask.key.check => Found::It,
            Some(_) => Found::Another,
        };
        self.answer(peer, Message::HandlerIs(HandlerIs { op: ask.op, found: Some(found) }), 0);
    }

    pub(in crate::node) fn on_handler_is(&mut self, peer: Rank, answer: &HandlerIs) {
        let is_asked = |kind: &OpKind| matches!(kind, OpKind::HandlerAsk { peer: of } if *of == peer);
        let key = answer.op.key();
        match (self.ops.get(key).map(|op| is_asked(&op.kind)), answer.found) {
            (Some(true), Some(found)) => self.finish(key, Ok(found as u64)),
            // Its asker has given up.
            (None, Some(_)) => {}
            _ => self.core.counters.malformed += 1,
        }
    }

    /// Tells the sender of an Active Message that its handler is not here: nothing is kept for one that may
    /// come.
    #[cold]
    pub(in crate::node) fn refuse(&mut self, peer: Rank, lane: Lane, head: AmHead) {
        self.core.counters.refused += 1;
        let message = Message::AmRefused { handler: head.handler(), client: head.client() };
        match lane {
            // There is room for the reply that is not made.
            Lane::Request => self.answer(peer, message, 0),
            // Nobody keeps room for answers to replies: a full lane loses the news, which the counter has.
            Lane::Reply if self.core.is_gone(peer) || self.must_wait(peer, Lane::Request) => {}
            Lane::Reply if self.waits_in_outbox(peer, Lane::Request) => {}
            Lane::Reply => _ = self.core.transport.send(peer, Lane::Request, &message.encode(0), &[]),
        }
    }

    /// As if a message that [`Polled::Deliver`] names had not been delivered: its handler has gone since.
    #[cold]
    pub fn refuse_delivered(&mut self, delivery: Delivery, inbox: &Inbox) {
        self.refuse(delivery.peer, delivery.lane, AmHead::of(&inbox.header));
    }

    /// A peer has refused a message of this node's.
    #[cold]
    pub(in crate::node) fn on_refused(&mut self, refused: Refused) -> Polled {
        let Refused { peer, handler, client } = refused;
        self.ended.note(client, peer, OpError::NoSuchHandler { peer, handler });
        Polled::Refused(refused)
    }
}

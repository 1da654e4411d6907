//! Which handlers a node has, and what comes of messages for those that it has not.

use crate::handlers::HandlerKey;
use crate::node::Node;
use crate::node::messages::active_message::{Delivery, Polled};
use crate::node::op::OpKind;
use crate::op_id::OpId;
use crate::wire::{AmHead, Found, HandlerAsk, HandlerIs, Message};
use crate::{Inbox, Lane, Nanos, OpError, Rank, Transport};

/// A message of this node's that a peer has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The peer.
    pub peer: Rank,
    /// The number of the handler that it has not.
    pub handler: u32,
    /// Whose message it was.
    pub client: u8,
}

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
        if self.is_lost(peer) {
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
            _ => self.counters.malformed += 1,
        }
    }

    /// Tells the sender of an Active Message that its handler is not here: nothing is kept for one that may
    /// come.
    #[cold]
    pub(in crate::node) fn refuse(&mut self, peer: Rank, lane: Lane, head: AmHead) {
        self.counters.refused += 1;
        let message = Message::AmRefused { handler: head.handler(), client: head.client() };
        match lane {
            // There is room for the reply that is not made.
            Lane::Request => self.answer(peer, message, 0),
            // Nobody keeps room for answers to replies: a full lane loses the news, which the counter has.
            Lane::Reply if self.is_gone(peer) || self.must_wait(peer, Lane::Request) => {}
            Lane::Reply if self.waits_in_outbox(peer, Lane::Request) => {}
            Lane::Reply => _ = self.transport.send(peer, Lane::Request, &message.encode(0), &[]),
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
        self.ended.note(client, OpError::NoSuchHandler { peer, handler });
        Polled::Refused(refused)
    }
}

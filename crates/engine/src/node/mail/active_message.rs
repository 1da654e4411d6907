//! Active Messages: requests and replies that name a handler at the receiver.

use crate::op_id::OpId;
use crate::wire::{Am, AmForm};
use crate::{Header, Lane, Place, Rank};

/// The contents of an Active Message besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmBody<'a> {
    /// Nothing.
    Short,
    /// A payload inside the message, at most [`Transport::payload_max`](crate::Transport::payload_max) bytes.
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
    /// The entry that the handler was [added](crate::Node::add_handler) with.
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

/// The result of one call of [`Node::poll`](crate::Node::poll).
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
    /// step in this process's own memory: see [`Node::local_step`](crate::Node::local_step).
    Local(OpId),
}

impl AmSend<'_> {
    #[inline(always)]
    pub(in crate::node) fn am(&self, client: u8, stamp: u64) -> Am {
        match self.body {
            AmBody::Short => self.in_form(client, stamp, AmForm::Short),
            AmBody::Medium(_) => self.in_form(client, stamp, AmForm::Medium),
            AmBody::Long(place, len) => self.in_form(client, stamp, AmForm::Long(place, len)),
        }
    }

    /// As [`Am::encode`] of [`AmSend::am`], with the form looked at once.
    #[inline(always)]
    pub(super) fn encode(&self, client: u8, stamp: u64) -> [u64; Header::WORDS] {
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

    pub(super) fn payload(&self) -> &[u8] {
        match self.body {
            AmBody::Medium(payload) => payload,
            AmBody::Short | AmBody::Long(..) => &[],
        }
    }
}

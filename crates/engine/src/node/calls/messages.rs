//! The node's calls about Active Messages; what is done with these is in [`mail`](crate::node::mail).

use crate::handlers::HandlerKey;
use crate::node::Node;
use crate::node::mail::active_message::{AmBody, AmSend, Delivery, Polled, Refused};
use crate::node::mail::count_am;
use crate::node::operations::op::OpKind;
use crate::node::transfer::state::OnComplete;
use crate::op_id::OpId;
use crate::wire::{AmHead, HandlerAsk, HandlerIs, Message};
use crate::{Direction, Inbox, Lane, Nanos, OpError, Piece, Rank, SendError, Transport};

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
        self.mail.send_am(&mut self.core, message, (self.ops.acting(), stamp))
    }

    /// Whether it is worth while to try a message to the peer by that lane: `false` where others wait for the
    /// lane, or it is full.
    pub fn may_send(&mut self, peer: Rank, lane: Lane) -> bool {
        self.mail.may_send(&mut self.core, peer, lane)
    }

    /// Tells the sender of a stamped request that its handler has run. For whoever has run it, before the
    /// next poll, and only where it has not replied.
    #[cold]
    pub fn acknowledge(&mut self, peer: Rank, stamp: u64) {
        // A peer that is gone wants no answer.
        let _ = self.mail.send_soon(&mut self.core, peer, Lane::Reply, Message::AmDone { stamp });
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
        let announce = OnComplete::Notify(message.lane, message.am(self.ops.acting(), stamp));
        count_am(&mut self.core, message.lane, 0);
        let id = self.start_transfer(message.peer, Direction::Put, pieces, deadline, Some(announce));
        self.work();
        id
    }
}

/// Which handlers there are, and what comes of messages for those that are not.
impl<T: Transport> Node<T> {
    /// Adds a handler: its messages are delivered from now on, and name it by `entry`. The error is the
    /// [check](HandlerKey::check) of the handler that has its number already.
    pub fn add_handler(&mut self, key: HandlerKey, entry: u64) -> Result<(), u32> {
        self.mail.add_handler(key, entry)
    }

    /// Removes a handler: its messages are refused from now on.
    pub fn remove_handler(&mut self, key: HandlerKey) {
        self.mail.remove_handler(key);
    }

    /// Asks a peer whether it has a handler. The outcome is what it says: see [`Found`](crate::wire::Found).
    pub fn ask_for_handler(&mut self, peer: Rank, key: HandlerKey, deadline: Option<Nanos>) -> OpId {
        let asked = self.ops.insert(OpKind::HandlerAsk { peer }, deadline);
        let op = OpId::of(asked);
        if self.core.is_lost(peer) {
            self.ops.finish(asked, Err(OpError::PeerLost { peer }));
            return op;
        }
        let ask = Message::HandlerAsk(HandlerAsk { op, key });
        if let Err(error) = self.mail.send_soon(&mut self.core, peer, Lane::Request, ask) {
            self.ops.finish(asked, Err(error));
        }
        op
    }

    pub(in crate::node) fn on_handler_is(&mut self, peer: Rank, answer: &HandlerIs) {
        let is_asked = |kind: &OpKind| matches!(kind, OpKind::HandlerAsk { peer: of } if *of == peer);
        let key = answer.op.key();
        match (self.ops.get(key).map(|op| is_asked(&op.kind)), answer.found) {
            (Some(true), Some(found)) => self.ops.finish(key, Ok(found as u64)),
            // Its asker has given up.
            (None, Some(_)) => {}
            _ => self.core.counters.malformed += 1,
        }
    }

    /// As if a message that [`Polled::Deliver`] names had not been delivered: its handler has gone since.
    #[cold]
    pub fn refuse_delivered(&mut self, delivery: Delivery, inbox: &Inbox) {
        self.mail.refuse(&mut self.core, delivery.peer, delivery.lane, AmHead::of(&inbox.header));
    }

    /// A peer has refused a message of this node's.
    #[cold]
    pub(in crate::node) fn on_refused(&mut self, refused: Refused) -> Polled {
        let Refused { peer, handler, client } = refused;
        self.ops.note_failure(client, peer, Err(OpError::NoSuchHandler { peer, handler }));
        Polled::Refused(refused)
    }
}

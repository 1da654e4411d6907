//! Requests: sent to their end, tried, or started.

use engine::{AmBody, AmSend, Lane, OpError, OpId, Rank, SendError};

use crate::api::node::Node;
use crate::api::ops::buffer::{PutBuffer, source};
use crate::api::ops::event::Event;
use crate::api::ops::message::Long;
use crate::api::ops::rma::wraps;
use crate::base::error::Error;
use crate::base::handler_id::HandlerId;
use crate::base::pointers::Remote;
use crate::transport::peers::Peer;
use crate::transport::shm::{Lent, PieceList};

/// Requests. Any thread may send them, except in a handler; they wait while the lane to the peer is full.
impl Node {
    /// Sends a request without payload.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::NoSuchPeer`], [`Error::Timeout`] while the lane is full,
    /// [`Error::InHandler`], and at the first contact with the peer what [`Node::connect`] says.
    /// [`Error::NoSuchHandler`] where the peer has not the handler: a peer on another host is asked at its
    /// first use. A handler that goes just then has the peer refuse the message: [`Node::quiet`] tells.
    #[inline]
    pub fn request(&self, peer: Rank, handler: HandlerId, args: [u64; 4]) -> Result<(), Error> {
        self.request_with(peer, handler, args, AmBody::Short)
    }

    /// Sends a request with a payload of at most [`Node::medium_max`] bytes, which may be reused at return.
    ///
    /// # Errors
    /// As for [`Node::request`], and [`Error::PayloadTooLong`].
    pub fn request_medium(
        &self,
        peer: Rank,
        handler: HandlerId,
        args: [u64; 4],
        payload: &[u8],
    ) -> Result<(), Error> {
        self.check_medium(peer, payload)?;
        self.request_with(peer, handler, args, AmBody::Medium(payload))
    }

    /// Puts the payload at `to` and then runs the handler there. The payload may be reused at return.
    ///
    /// # Errors
    /// As for [`Node::request`] and [`Node::put_bytes`]; then the handler does not run.
    pub fn request_long(
        &self,
        handler: HandlerId,
        args: [u64; 4],
        to: impl Into<Remote>,
        payload: &[u8],
    ) -> Result<(), Error> {
        let to = to.into();
        self.may_wait("a request")?;
        let long = Long { lane: Lane::Request, handler, args, to, payload, stamp: self.core.stamp() };
        match self.send_long(to.peer, &long)? {
            Some(op) => self.finish(op).map(|_| ()),
            None => Ok(()),
        }
    }

    #[inline]
    fn request_with(
        &self,
        peer: Rank,
        handler: HandlerId,
        args: [u64; 4],
        body: AmBody<'_>,
    ) -> Result<(), Error> {
        self.may_wait("a request")?;
        // Nearly all are to near peers whose handlers have been used: that shows in a few looks.
        match self.core.near.get(peer) {
            Some(near) if near.handlers.has_had(handler.0) && !near.is_lost() => {}
            _ => self.require(peer, handler)?,
        }
        let stamp = self.core.stamp();
        self.send(&AmSend { peer, lane: Lane::Request, handler: handler.number(), args, body }, stamp)
    }

    /// Refuses a peer that is not to be had, and a handler that it has not.
    #[cold]
    #[inline(never)]
    fn require(&self, peer: Rank, handler: HandlerId) -> Result<(), Error> {
        let known = self.core.peers.get(peer, self.timeout)?;
        self.require_handler(known, handler)
    }

    /// Refuses a handler that the peer has not; a far peer may be asked.
    #[inline(always)]
    fn require_handler(&self, peer: Peer<'_>, handler: HandlerId) -> Result<(), Error> {
        if peer.handlers().has_had(handler.0) { Ok(()) } else { self.find_handler(peer, handler) }
    }

    /// The same, as far as it shows without a wait.
    #[inline(always)]
    fn expect_handler(&self, peer: Peer<'_>, handler: HandlerId) -> Result<(), Error> {
        if peer.handlers().has_had(handler.0) { Ok(()) } else { self.core.look_for_handler(peer, handler) }
    }

    #[inline]
    fn send(&self, message: &AmSend<'_>, stamp: u64) -> Result<(), Error> {
        let first = self.engine().send_am_stamped(message, stamp);
        match first {
            Ok(()) => Ok(()),
            Err(SendError::Failed(error)) => Err(self.core.error_of(error)),
            // A copy, so that the message need not be in memory on the other way.
            Err(SendError::Busy) => {
                let message = *message;
                self.send_when_there_is_room(&message, stamp)
            }
        }
    }

    #[cold]
    fn send_when_there_is_room(&self, message: &AmSend<'_>, stamp: u64) -> Result<(), Error> {
        let send = || match self.engine().send_am_stamped(message, stamp) {
            Ok(()) => Some(Ok(())),
            Err(SendError::Failed(error)) => Some(Err(self.core.error_of(error))),
            Err(SendError::Busy) => None,
        };
        let ends = || send().or_else(|| self.may_call("a request").err().map(Err));
        let sent = self.core.wait_for_room(self.timeout, ends);
        let late = || Err(self.gave_up("a request", self.core.peers.late(message.peer)));
        sent.unwrap_or_else(late)
    }

    /// Puts a long message's payload and sends the message after it. `Some`: the payload goes by message,
    /// from a copy that is kept; the operation ends when the Active Message has been sent.
    pub(super) fn send_long(&self, peer: Rank, long: &Long<'_>) -> Result<Option<OpId>, Error> {
        let message = long_message(long.lane, long.handler, long.args, long.to, long.payload.len())?;
        if long.to.peer != peer {
            return Err(Error::Elsewhere { peer: long.to.peer, expected: peer });
        }
        let known = self.core.peers.get(peer, self.timeout)?;
        match long.lane {
            Lane::Request => self.require_handler(known, long.handler)?,
            Lane::Reply => self.expect_handler(known, long.handler)?,
        }
        if !self.copy_timed(known, long.to, Lent::source(long.payload), None)? {
            self.core.peers.request_progress(known);
            return self.send_long_by_message(long, &message);
        }
        match long.lane {
            Lane::Request => self.send(&message, long.stamp).map(|()| None),
            Lane::Reply => match self.engine().send_am_stamped(&message, long.stamp) {
                Ok(()) => Ok(None),
                Err(SendError::Failed(error)) => Err(self.core.error_of(error)),
                Err(SendError::Busy) => Err(self.core.error_of(OpError::PeerLost { peer })),
            },
        }
    }

    fn send_long_by_message(&self, long: &Long<'_>, message: &AmSend<'_>) -> Result<Option<OpId>, Error> {
        let copy = long.payload.to_vec();
        let op = self.start_long(message, long.stamp, long.to, Lent::source(&copy))?;
        if long.lane == Lane::Reply {
            self.core.engine().detach(op);
        }
        self.core.keep(op, Box::new(copy));
        Ok((long.lane == Lane::Request).then_some(op))
    }
}

/// Requests that never wait, also in handlers.
impl Node {
    /// Sends a request without payload, if the lane to the peer has room: whether it did. If not, make
    /// progress, and try again.
    ///
    /// # Errors
    /// [`Error::PeerLost`]. [`Error::NotConnected`] before the first contact with the peer, which may wait:
    /// [`Node::connect`] makes it. [`Error::NoSuchHandler`] where that shows without a wait; a peer on
    /// another host refuses the message otherwise, and [`Node::quiet`] tells.
    #[inline]
    pub fn try_request(&self, peer: Rank, handler: HandlerId, args: [u64; 4]) -> Result<bool, Error> {
        self.try_request_with(peer, handler, args, AmBody::Short)
    }

    /// As [`Node::try_request`], with a payload of at most [`Node::medium_max`] bytes, which may be reused at
    /// return.
    ///
    /// # Errors
    /// As for [`Node::try_request`], and [`Error::PayloadTooLong`].
    pub fn try_request_medium(
        &self,
        peer: Rank,
        handler: HandlerId,
        args: [u64; 4],
        payload: &[u8],
    ) -> Result<bool, Error> {
        self.check_medium(peer, payload)?;
        self.try_request_with(peer, handler, args, AmBody::Medium(payload))
    }

    /// Starts to put the payload at `to`, and has the handler run there after it, if the lane to the peer has
    /// room: whether it did. The payload may be reused at return: what goes by message is copied first. If
    /// that fails later, the handler does not run, and [`Node::quiet`] tells.
    ///
    /// # Errors
    /// As for [`Node::try_request`]; [`Error::PayloadTooLong`] for 4 GiB and more; and where it shows at
    /// once, what [`Node::put_bytes`] says.
    pub fn try_request_long(
        &self,
        handler: HandlerId,
        args: [u64; 4],
        to: impl Into<Remote>,
        payload: &[u8],
    ) -> Result<bool, Error> {
        let to = to.into();
        let known = self.in_contact(to.peer)?;
        self.expect_handler(known, handler)?;
        if !self.core.engine().may_send(to.peer, Lane::Request) {
            self.core.tried_in_vain();
            return Ok(false);
        }
        let message = long_message(Lane::Request, handler, args, to, payload.len())?;
        let stamp = self.core.stamp();
        if self.copy_timed(known, to, Lent::source(payload), None)? {
            return self.try_send(&message, stamp);
        }
        self.core.peers.request_progress(known);
        let mut copy = payload.to_vec();
        let op = self.start_long(&message, stamp, to, source(&mut copy))?;
        drop(Event::new(self, to.peer, Ok(Some(op)), copy));
        Ok(true)
    }

    /// Starts to put a buffer's bytes at `to`, and has the handler run there after them. The event is over
    /// when they lie in place and the message has been sent, or is the next to be sent when there is room in
    /// the lane. Bound how many are under way.
    pub fn request_long_nb<B: PutBuffer>(
        &self,
        handler: HandlerId,
        args: [u64; 4],
        to: impl Into<Remote>,
        mut buffer: B,
    ) -> Event<B> {
        let to = to.into();
        let local = source(&mut buffer);
        let started = self.in_contact(to.peer).and_then(|known| {
            self.expect_handler(known, handler)?;
            let message = long_message(Lane::Request, handler, args, to, local.len())?;
            let stamp = self.core.stamp();
            if !self.is_copied_apart(local.len()) && self.copy_timed(known, to, local, None)? {
                if self.try_send(&message, stamp)? {
                    return Ok(None);
                }
                // The message alone is left, which the engine keeps until the lane has room.
                return self.start_long(&message, stamp, to, local.part(0, 0)).map(Some);
            }
            let mut list = PieceList::new(engine::Direction::Put);
            list.push(to.place, local).ok_or_else(|| wraps(to, local.len()))?;
            self.ask_for_progress(known, &list);
            self.start_long(&message, stamp, to, local).map(Some)
        });
        Event::new(self, to.peer, started, buffer)
    }

    #[inline]
    fn try_request_with(
        &self,
        peer: Rank,
        handler: HandlerId,
        args: [u64; 4],
        body: AmBody<'_>,
    ) -> Result<bool, Error> {
        let known = self.in_contact(peer)?;
        self.expect_handler(known, handler)?;
        let stamp = self.core.stamp();
        self.try_send(&AmSend { peer, lane: Lane::Request, handler: handler.number(), args, body }, stamp)
    }

    #[inline]
    fn try_send(&self, message: &AmSend<'_>, stamp: u64) -> Result<bool, Error> {
        // The engine is free again before this thread may give its processor away.
        let sent = self.engine().send_am_stamped(message, stamp);
        match sent {
            Ok(()) => Ok(true),
            Err(SendError::Busy) => {
                self.core.tried_in_vain();
                Ok(false)
            }
            Err(SendError::Failed(error)) => Err(self.core.error_of(error)),
        }
    }

    /// The peer, with which there has been contact: to make it may take a wait.
    #[inline]
    fn in_contact(&self, peer: Rank) -> Result<Peer<'_>, Error> {
        self.may_call("a request")?;
        match self.core.peers.known(peer) {
            Some(known) => Ok(known),
            None => Err(self.out_of_contact(peer)),
        }
    }

    #[cold]
    fn out_of_contact(&self, peer: Rank) -> Error {
        match peer < self.size() {
            true if self.core.peers.is_gone(peer) => self.core.error_of(OpError::PeerLost { peer }),
            true => Error::NotConnected { peer },
            false => Error::NoSuchPeer { peer, size: self.size() },
        }
    }

    /// Has the engine put a long message's payload, whose owner keeps it, and send the message after it.
    fn start_long(
        &self,
        message: &AmSend<'_>,
        stamp: u64,
        to: Remote,
        payload: Lent<'_>,
    ) -> Result<OpId, Error> {
        let mut list = PieceList::new(engine::Direction::Put);
        list.push(to.place, payload).ok_or_else(|| wraps(to, payload.len()))?;
        let deadline = self.deadline();
        Ok(self.engine().transfer_then_am_stamped(list.pieces(), message, stamp, deadline))
    }
}

/// A long message to that place's rank, for a payload of so many bytes.
fn long_message(
    lane: Lane,
    handler: HandlerId,
    args: [u64; 4],
    to: Remote,
    bytes: usize,
) -> Result<AmSend<'static>, Error> {
    let (given, most) = (bytes as u64, u64::from(u32::MAX));
    let len = u32::try_from(given).map_err(|_| Error::PayloadTooLong { given, most })?;
    Ok(AmSend { peer: to.peer, lane, handler: handler.number(), args, body: AmBody::Long(to.place, len) })
}

//! Active Messages: small requests that run a named handler at the peer, which may reply.
//!
//! Handlers are registered by name before the node opens; a node and a peer compare names when they first
//! talk, and refuse each other if they differ. A node's handlers run one at a time, on whichever thread makes
//! progress, and in the order in which one peer sent its requests (and, apart from these, its replies).
//! Generic Active Messages are the model: a request may be replied to once, from its handler, and a reply's
//! handler sends nothing.

use std::sync::Arc;

use engine::{AmBody, AmSend, Inbox, Lane, MemId, Rank, SendError};

use crate::api::node::Node;
use crate::api::ops::message::{HandlerId, Long, check_medium};
use crate::base::error::Error;
use crate::base::handler_names;
use crate::base::pointers::{GlobalPtr, Remote};
use crate::runtime::core::{Handler, NodeCore};
use crate::runtime::payloads::Payloads;
use crate::transport::shm::control::NAMES_MAX;

/// Handlers that a node may have.
const HANDLERS_MAX: usize = 4096;

/// A node's handlers, sorted by name, so that equal sets of names give equal numbers everywhere.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    sorted: Vec<(String, Handler)>,
}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.sorted.iter().map(|(name, _)| name)).finish()
    }
}

impl Handlers {
    pub(crate) fn add(&mut self, name: &str, handler: impl Fn(&mut Call<'_>) + Send + Sync + 'static) {
        // One call through a pointer and no more: the call is made up where the handler itself is compiled
        // in.
        let handler: Handler = Arc::new(move |core, inbox, peer, lane| {
            let mut call = Call { core, inbox, peer, lane, replied: false };
            handler(&mut call);
            call.replied
        });
        self.insert(name, handler);
    }

    fn insert(&mut self, name: &str, handler: Handler) {
        assert!(!name.is_empty() && name.len() <= 255, "a handler's name has 1 to 255 bytes: {name:?}");
        assert!(!name.contains('\0'), "a handler's name has no zero byte: {name:?}");
        assert!(self.sorted.len() < HANDLERS_MAX, "a node has at most {HANDLERS_MAX} handlers");
        match self.sorted.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(_) => panic!("a handler named {name:?} is registered already"),
            Err(at) => self.sorted.insert(at, (name.to_owned(), handler)),
        }
        let bytes = self.names().len();
        assert!(bytes <= NAMES_MAX, "the handlers' names take {bytes} bytes, of at most {NAMES_MAX}");
    }

    pub(crate) fn len(&self) -> u16 {
        u16::try_from(self.sorted.len()).expect("HANDLERS_MAX fits")
    }

    /// All names as they are shared.
    pub(crate) fn names(&self) -> Vec<u8> {
        handler_names::join(self.sorted.iter().map(|(name, _)| name.as_str()))
    }

    /// The handlers, by the numbers that messages name them by.
    pub(crate) fn into_table(self) -> Box<[Handler]> {
        self.sorted.into_iter().map(|(_, handler)| handler).collect()
    }
}

/// A message being handled.
///
/// # What a handler may do
/// - reply, once, if the message is a [request](Call::is_request);
/// - put to and get from heaps, and private memory where cross-memory attach reaches it; atomics;
/// - look at [`Call::node`]'s rank, size, statistics and its own heap's arrays, allocate and free there;
/// - [try](Node::try_request) to send requests, and [start](Node::request_long_nb) long ones;
/// - anything that does not wait for other threads of the job: change its own program's state, wake its own
///   threads, take a lock that nobody holds while calling something of this library that waits.
///
/// What waits ends with [`Error::InHandler`]: requests that are not tried, barrier, quiet, waiting for
/// events, transfers that would have to go by message, first contact with a peer other than the sender. A
/// handler that panics ends the call that made progress.
pub struct Call<'a> {
    core: &'a Arc<NodeCore>,
    inbox: &'a mut Inbox,
    peer: Rank,
    lane: Lane,
    replied: bool,
}

impl Call<'_> {
    /// The rank that sent the message.
    #[inline]
    pub fn from(&self) -> Rank {
        self.peer
    }

    /// The message's four arguments.
    #[inline]
    pub fn args(&self) -> [u64; 4] {
        self.inbox.args()
    }

    /// A medium message's payload, in memory of this process that nobody else writes; empty otherwise.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.inbox.payload
    }

    /// Where a long message's payload lies in this process's memory, and how many bytes it has, as the sender
    /// says. `None` for other messages.
    pub fn landed(&self) -> Option<(Landed, u64)> {
        let (place, len) = self.inbox.landed()?;
        let landed = match place.mem {
            MemId::Space => Landed::Private(place.offset),
            MemId::Heap => Landed::Heap(GlobalPtr::new(self.core.peers.own().rank, place.offset)),
            // No correct sender names that.
            MemId::Control => return None,
        };
        Some((landed, u64::from(len)))
    }

    /// Whether the message is a request, which may be replied to.
    pub fn is_request(&self) -> bool {
        self.lane == Lane::Request
    }

    /// The payloads that its node has, and that of this message.
    pub(super) fn payloads(&mut self) -> (&Arc<Payloads>, &mut Vec<u8>) {
        (&self.core.payloads, &mut self.inbox.payload)
    }

    /// The node that received the message.
    pub fn node(&self) -> Node {
        Node::from_inner(self.core)
    }

    /// Replies without payload. A reply that fails does not count: another may be tried.
    ///
    /// # Errors
    /// [`Error::NoReplyDue`] to a reply, or the second time; [`Error::PeerLost`].
    #[inline]
    pub fn reply(&mut self, handler: HandlerId, args: [u64; 4]) -> Result<(), Error> {
        self.reply_with(handler, args, AmBody::Short)
    }

    /// Replies with a payload of at most [`MEDIUM_MAX`](crate::MEDIUM_MAX) bytes.
    ///
    /// # Errors
    /// As for [`Call::reply`], and [`Error::PayloadTooLong`].
    pub fn reply_medium(&mut self, handler: HandlerId, args: [u64; 4], payload: &[u8]) -> Result<(), Error> {
        check_medium(payload)?;
        self.reply_with(handler, args, AmBody::Medium(payload))
    }

    /// Puts the payload at `to`, which must be the requester's memory, and then runs the reply's handler
    /// there.
    ///
    /// # Errors
    /// As for [`Call::reply`] and [`Node::put_bytes`]; where the payload must go by message, a later failure
    /// of it is reported by [`Node::quiet`], and the handler does not run.
    pub fn reply_long(
        &mut self,
        handler: HandlerId,
        args: [u64; 4],
        to: impl Into<Remote>,
        payload: &[u8],
    ) -> Result<(), Error> {
        self.reply_is_due()?;
        let long =
            Long { lane: Lane::Reply, handler, args, to: to.into(), payload, stamp: self.inbox.stamp() };
        self.node().send_long(self.peer, &long)?;
        self.replied = true;
        Ok(())
    }

    #[inline]
    fn reply_with(&mut self, handler: HandlerId, args: [u64; 4], body: AmBody<'_>) -> Result<(), Error> {
        self.reply_is_due()?;
        let message = AmSend { peer: self.peer, lane: Lane::Reply, handler: handler.0, args, body };
        match self.core.engine().send_am_stamped(&message, self.inbox.stamp()) {
            Ok(()) => {
                self.replied = true;
                Ok(())
            }
            Err(SendError::Failed(error)) => Err(error.into()),
            // The transport kept room for the reply; only a peer that garbles its ring takes it away.
            Err(SendError::Busy) => Err(Error::PeerLost { peer: message.peer }),
        }
    }

    fn reply_is_due(&self) -> Result<(), Error> {
        self.core.may_call("a reply")?;
        if self.is_request() && !self.replied { Ok(()) } else { Err(Error::NoReplyDue) }
    }
}

/// Where a long message's payload lies at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Landed {
    /// In the receiver's heap.
    Heap(GlobalPtr<u8>),
    /// At this virtual address. The sender says so: check it against what you told that sender.
    Private(u64),
}

impl Node {
    /// The handler registered under `name`.
    pub fn handler(&self, name: &str) -> Option<HandlerId> {
        let at = handler_names::find(&self.core.peers.own().names, name)?;
        Some(HandlerId(u16::try_from(at).expect("HANDLERS_MAX fits")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handlers(names: &[&str]) -> Handlers {
        let mut handlers = Handlers::default();
        for name in names {
            handlers.add(name, |_| {});
        }
        handlers
    }

    #[test]
    fn the_order_of_registration_does_not_matter() {
        let (a, b) = (handlers(&["x", "aa", "m"]), handlers(&["m", "x", "aa"]));
        assert_eq!(a.names(), b.names());
    }

    #[test]
    #[should_panic(expected = "registered already")]
    fn a_name_is_taken_once() {
        handlers(&["twice", "twice"]);
    }
}

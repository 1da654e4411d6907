//! Active Messages: small requests that run a named handler at the peer, which may reply.
//!
//! Handlers are registered by name, with the configuration or at any time, and messages name them by a hash
//! of their names. So a sender need not have the handler, and is told where the receiver has not. A node's
//! handlers run one at a time, on whichever thread makes progress, and in the order in which one peer sent
//! its requests (and, apart from these, its replies). Generic Active Messages are the model: a request may be
//! replied to once, from its handler, and a reply's handler sends nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::wire::Found;
use engine::{AmBody, AmSend, Inbox, Lane, MemId, OpError, Rank, SendError};

use crate::api::node::Node;
use crate::api::ops::message::{Long, MEDIUM_MAX};
use crate::api::ops::room::Room;
use crate::base::error::Error;
use crate::base::grant_name::GrantName;
use crate::base::handler_id::HandlerId;
use crate::base::pointers::{GlobalPtr, Remote};
use crate::runtime::core::{Handler, NodeCore};
use crate::runtime::handlers::{Runnable, check_names};
use crate::runtime::payloads::Payloads;
use crate::transport::peers::{Peer, Standing};
use crate::transport::shm::control::HANDLERS_MAX;

/// The handlers that a configuration brings, in the order in which they were added.
#[derive(Clone, Default)]
pub(crate) struct ConfigHandlers(Vec<(String, Handler)>);

impl std::fmt::Debug for ConfigHandlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl ConfigHandlers {
    pub(crate) fn add(&mut self, name: &str, handler: impl Fn(&mut Call<'_>) + Send + Sync + 'static) {
        if let Err(error) = self.may_add(name) {
            panic!("{error}");
        }
        self.0.push((name.to_owned(), runnable(handler)));
    }

    /// Whether a handler of that name may be added.
    pub(crate) fn may_add(&self, name: &str) -> Result<(), Error> {
        check_names("", name)?;
        let id = HandlerId::of("", name);
        let taken = self.0.iter().find(|(known, _)| HandlerId::of("", known).number() == id.number());
        if let Some((by, _)) = taken {
            return Err(Error::HandlerTaken { name: name.to_owned(), by: by.clone() });
        }
        if self.0.len() >= HANDLERS_MAX {
            return Err(Error::HandlersFull { most: HANDLERS_MAX as u64 });
        }
        Ok(())
    }

    /// Each with its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Handler)> {
        self.0.iter().map(|(name, handler)| (name.as_str(), handler))
    }
}

/// A handler as it is called. One call through a pointer and no more: the call is made up where the handler
/// itself is compiled in.
fn runnable(handler: impl Fn(&mut Call<'_>) + Send + Sync + 'static) -> Handler {
    Arc::new(move |core, inbox, peer, lane, client| {
        let mut call = Call { core, inbox, peer, lane, client, replied: false };
        handler(&mut call);
        call.replied
    })
}

/// A message being handled.
///
/// # What a handler may do
/// - reply, once, if the message is a [request](Call::is_request);
/// - put to and get from heaps, and private memory where cross-memory attach reaches it; atomics;
/// - look at [`Call::node`]'s rank, size, statistics and its own heap's arrays, allocate and free there;
/// - [try](Node::try_request) to send requests, and [start](Node::request_long_nb) long ones;
/// - anything that does not wait for other threads of the job. It may change its own program's state, wake
///   its own threads, and take a lock that nobody holds while calling something of this library that waits.
///
/// Calls that wait end with [`Error::InHandler`]. They are requests that are not tried, barrier, quiet,
/// waiting for events, transfers that would have to go by message, and first contact with a peer other than
/// the sender. A handler that panics ends the call that made progress.
pub struct Call<'a> {
    core: &'a Arc<NodeCore>,
    inbox: &'a mut Inbox,
    peer: Rank,
    lane: Lane,
    /// The client that registered the handler.
    client: u8,
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
    ///
    /// Between processes of a host, one of 512 bytes or more is copied at the first call, and not at all if
    /// nobody calls this. [`Call::read_payload`] copies to where the bytes belong instead.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.inbox.whole(|bytes| self.core.engine().read_held(0, bytes))
    }

    /// How many bytes a medium message's payload has; 0 for others.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.inbox.payload_len()
    }

    /// Copies of a medium message's payload, from byte `at` on: all that `into` has room for.
    ///
    /// Read each byte once, or call [`Call::payload`] first, whose bytes stay as they are: this then reads
    /// those. Else bytes that are read twice may differ if the sender breaks the protocol.
    ///
    /// # Errors
    /// [`Error::Length`] where the payload has not so many bytes; then nothing is copied.
    pub fn read_payload(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        let left = self.payload_len().saturating_sub(at);
        if into.len() > left {
            let what = "bytes of a payload from the place that was named on";
            return Err(Error::Length { what, given: into.len() as u64, expected: left as u64 });
        }
        if into.is_empty() {
            return Ok(());
        }
        match self.inbox.here() {
            Some(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            None => self.core.engine().read_held(at, into),
        }
        Ok(())
    }

    /// Copies a medium message's payload to a place of this rank: an array of its heap, a pointer into that
    /// heap, or an address of this process. It is copied once, from where it came in.
    ///
    /// The sender says how long the payload is. So name an array, or a [`Room`] of so many bytes, where other
    /// values lie behind.
    ///
    /// # Errors
    /// [`Error::PayloadTooLong`] where the room has fewer bytes; [`Error::Elsewhere`] for memory of another
    /// rank: then nothing is copied. [`Error::Fault`] of this rank where the heap, or memory at the address,
    /// ends before; then some of it may have been copied. [`Error::Forked`] in a child that the handler has
    /// forked.
    pub fn copy_payload_to<'a>(&self, room: impl Into<Room<'a>>) -> Result<(), Error> {
        self.core.may_call("copying a payload")?;
        let (room, given) = (room.into(), self.payload_len() as u64);
        let (peer, expected) = (room.at().peer(), self.core.peers.own().rank);
        if peer != expected {
            return Err(Error::Elsewhere { peer, expected });
        }
        if given > room.bytes() {
            return Err(Error::PayloadTooLong { given, most: room.bytes() });
        }
        let copied = self.core.engine().copy_payload_to(self.inbox, room.at().place);
        copied.map_err(|error| self.core.error_of(error))
    }

    /// Where a long message's payload lies in this process's memory, and how many bytes it has, as the sender
    /// says. `None` for other messages, and where it was put into a grant that is revoked by now.
    #[inline]
    pub fn landed(&self) -> Option<(Landed, u64)> {
        self.landed_at(self.inbox.landed()?)
    }

    fn landed_at(&self, (place, len): (engine::Place, u32)) -> Option<(Landed, u64)> {
        let landed = match place.mem {
            MemId::Space => Landed::Private(place.offset),
            MemId::Heap => Landed::Heap(GlobalPtr::new(self.core.peers.own().rank, place.offset)),
            // No correct sender names that.
            MemId::Control => return None,
            MemId::Grant(_) => {
                let (name, offset) = self.core.landed_in_grant(self.peer, (place, u64::from(len)))?;
                Landed::Granted(name, offset)
            }
        };
        Some((landed, u64::from(len)))
    }

    /// Whether the message is a request, which may be replied to.
    pub fn is_request(&self) -> bool {
        self.lane == Lane::Request
    }

    /// The payloads that its node has, and that of this message.
    pub(super) fn payloads(&mut self) -> (&Arc<Payloads>, &mut Vec<u8>) {
        self.core.engine().fetch_payload(self.inbox);
        (&self.core.payloads, &mut self.inbox.payload)
    }

    /// The node that received the message, as the client has it that registered the handler: what is started
    /// by it is that client's.
    pub fn node(&self) -> Node {
        Node::from_inner(self.core, self.client)
    }

    /// Replies without payload. A reply that fails does not count: another may be tried. A requester has the
    /// handler mostly, so that is not looked at. Where it has not, it refuses the reply, and [`Node::quiet`]
    /// tells this client.
    ///
    /// # Errors
    /// [`Error::NoReplyDue`] to a reply, or the second time; [`Error::PeerLost`].
    #[inline]
    pub fn reply(&mut self, handler: HandlerId, args: [u64; 4]) -> Result<(), Error> {
        self.reply_with(handler, args, AmBody::Short)
    }

    /// Replies with a payload of at most [`Node::medium_max`] bytes.
    ///
    /// # Errors
    /// As for [`Call::reply`], and [`Error::PayloadTooLong`].
    pub fn reply_medium(&mut self, handler: HandlerId, args: [u64; 4], payload: &[u8]) -> Result<(), Error> {
        if payload.len() > MEDIUM_MAX {
            self.node().check_medium(self.peer, payload)?;
        }
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
        let message = AmSend { peer: self.peer, lane: Lane::Reply, handler: handler.number(), args, body };
        let mut engine = self.core.engine();
        engine.act_for(self.client);
        match engine.send_am_stamped(&message, self.inbox.stamp()) {
            Ok(()) => {
                self.replied = true;
                Ok(())
            }
            Err(SendError::Failed(error)) => Err(self.core.error_of(error)),
            // The transport kept room for the reply; only a peer that garbles its ring takes it away.
            Err(SendError::Busy) => Err(self.core.error_of(OpError::PeerLost { peer: message.peer })),
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
    /// In this grant of the receiver's, so many bytes behind its start.
    Granted(GrantName, u64),
}

/// Handlers.
impl Node {
    /// Registers a handler under a name in a namespace, for this handle's client. It runs for messages to
    /// [`HandlerId::of`] these, from now on, until the client [closes](Node::close) or its last handle is
    /// dropped. [`Call`] says what a handler may do. Through it, the handler has the node: a handle of its
    /// own client's that it kept would keep that from ever being the last one dropped.
    ///
    /// Any thread may call this at any time, also a handler. It does not wait.
    ///
    /// # Errors
    /// [`Error::HandlerTaken`] where the name is registered in this process already, or another one that has
    /// the same hash. [`Error::BadName`] for an empty name, a name or namespace of more than 255 bytes, and
    /// one with a zero byte. [`Error::HandlersFull`] beyond 4,096 in a node. [`Error::System`] where the
    /// system gives no thread for those who come from without.
    pub fn register(
        &self,
        namespace: &str,
        name: &str,
        handler: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
    ) -> Result<HandlerId, Error> {
        self.may_call("registering a handler")?;
        self.add_handler((namespace, name), runnable(handler))
    }

    /// Adds a handler of this handle's client.
    pub(in crate::api) fn add_handler(
        &self,
        names: (&str, &str),
        handler: Handler,
    ) -> Result<HandlerId, Error> {
        let (core, client) = (&self.core, self.client);
        let (own, runnable) = (&core.peers.own().handlers, Runnable { handler, client });
        let may_add = || self.may_call("registering a handler");
        let id = core.handlers.add(own, names, runnable, may_add, || core.engine())?;
        if core.peers.peer_listener().is_none() {
            core.stand_by();
        } else if let Err(error) = core.attend_to_callers() {
            core.remove_handlers(|owner, added| owner == client && added == id);
            return Err(Error::System { what: "thread for handlers", why: error.to_string() });
        }
        Ok(id)
    }

    /// Withdraws a handler of this handle's client: whether it had it. Messages for it are refused from now
    /// on; one that its handler is at, on another thread, is handled to its end.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn withdraw(&self, handler: HandlerId) -> Result<bool, Error> {
        self.may_call("withdrawing a handler")?;
        Ok(self.core.remove_handlers(|client, id| client == self.client && id == handler))
    }

    /// The handler that was registered by this name in the empty namespace, as [`Config::handler`] does.
    ///
    /// A handler may still run while its node closes, and asks this for another one: it gets the id of any
    /// name then, and is refused what it does with it.
    ///
    /// [`Config::handler`]: crate::Config::handler
    pub fn handler(&self, name: &str) -> Option<HandlerId> {
        let id = HandlerId::of("", name);
        let is_closing = || {
            self.may_call("asking for a handler").is_err() || self.core.threads.closing.load(Ordering::SeqCst)
        };
        // A child looks at no lock; whatever it does with the name is refused.
        (self.core.is_forked() || self.core.handlers.has(id) || is_closing()).then_some(id)
    }

    /// Whether a peer has a handler. Of a peer on this host it is one look; another one is asked, unless it
    /// had it when the two met, or has said so since.
    ///
    /// # Errors
    /// [`Error::HandlersDiffer`] where the peer has another one of its number; at the first contact what
    /// [`Node::connect`] says; [`Error::PeerLost`], [`Error::Timeout`], [`Error::InHandler`].
    pub fn has_handler(&self, peer: Rank, handler: HandlerId) -> Result<bool, Error> {
        self.may_wait("asking for a handler")?;
        let known = self.core.peers.get(peer, self.timeout)?;
        match self.find_handler(known, handler) {
            Ok(()) => Ok(true),
            Err(Error::NoSuchHandler { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the peer has a handler, of which it is not known that it does; asks a far one. For calls that
    /// may wait.
    #[cold]
    pub(super) fn find_handler(&self, peer: Peer<'_>, handler: HandlerId) -> Result<(), Error> {
        let Peer::Far(far) = peer else { return self.core.look_for_handler(peer, handler) };
        let rank = far.rank;
        if far.handlers.told(handler.0) == Standing::There {
            return Ok(());
        }
        let op = self.engine().ask_for_handler(rank, handler.0, self.deadline());
        match self.finish(op)? {
            found if found == Found::It as u64 => {
                far.handlers.learn(handler.0);
                Ok(())
            }
            found if found == Found::Another as u64 => Err(self.core.handler_differs(rank, handler.number())),
            _ => Err(self.core.no_such_handler(rank, handler)),
        }
    }
}

impl NodeCore {
    /// Whether the peer has a handler, of which it is not known that it does, as far as that shows without a
    /// wait: a far peer may have got it since.
    #[cold]
    pub(super) fn look_for_handler(&self, peer: Peer<'_>, handler: HandlerId) -> Result<(), Error> {
        let standing = match peer {
            Peer::Near(near) => near.handlers.look(handler.0, &near.control),
            Peer::Far(far) => Some(far.handlers.told(handler.0)).filter(|told| *told != Standing::NotThere),
        };
        match standing {
            Some(Standing::There) => Ok(()),
            // A receiver that has it does not refuse the message.
            None => Ok(()),
            Some(Standing::NotThere) => Err(self.no_such_handler(peer.rank(), handler)),
            Some(Standing::Another) => Err(self.handler_differs(peer.rank(), handler.number())),
        }
    }

    fn no_such_handler(&self, peer: Rank, handler: HandlerId) -> Error {
        Error::NoSuchHandler { peer, handler: self.handlers.name_of(handler.number()) }
    }

    /// The error of a peer that has given a number of this process's to another handler.
    pub(in crate::api) fn handler_differs(&self, peer: Rank, number: u32) -> Error {
        Error::HandlersDiffer { peer, handler: self.handlers.name_of(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "cannot be registered: it is already")]
    fn a_name_is_taken_once() {
        let mut handlers = ConfigHandlers::default();
        for _ in 0..2 {
            handlers.add("twice", |_| {});
        }
    }

    #[test]
    #[should_panic(expected = "it is empty")]
    fn a_name_is_not_empty() {
        ConfigHandlers::default().add("", |_| {});
    }
}

//! Payloads of messages in memory of the library's: kept from a handler on, and written before they are sent.

use std::fmt;
use std::ops::{Deref, DerefMut};

use engine::Rank;

use crate::api::node::Node;
use crate::api::ops::active_message::Call;
use crate::api::ops::message::MEDIUM_MAX;
use crate::base::error::Error;
use crate::base::handler_id::HandlerId;
use crate::runtime::payloads::{Kept, PAYLOADS_MAX};

/// A medium message's payload that its handler has [kept](Call::take_payload). Any thread may have it, for as
/// long as it likes; its memory goes back to the node when it is dropped. It is a buffer that can be put
/// from.
pub struct Payload(Kept);

impl Payload {
    /// Its bytes as a vector of the caller's.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("len", &self.len()).finish()
    }
}

impl Call<'_> {
    /// Keeps a medium message's payload beyond the handler: [`Call::payload`] is empty from then on. This
    /// copies what is still where it came in, as that says, and hands over all else. Empty for other
    /// messages.
    ///
    /// # Errors
    /// [`Error::PayloadsKept`] where the payloads that this node keeps take 1,024 places already, or too many
    /// for this one: a payload takes one for each 8 KiB. The handler can still copy it.
    pub fn take_payload(&mut self) -> Result<Payload, Error> {
        let (payloads, payload) = self.payloads();
        payloads.take(payload).map(Payload).ok_or_else(too_many)
    }
}

#[cold]
fn too_many() -> Error {
    Error::PayloadsKept { most: PAYLOADS_MAX as u64 }
}

/// A medium request's payload that is written in the library's memory, and sent by [`Prepared::commit`]. Its
/// bytes are 0 at first. Dropping it sends nothing.
///
/// It holds no place in the lane to its peer, so that nobody waits for who prepares one and never commits it.
#[must_use = "nothing is sent before it is committed"]
pub struct Prepared {
    node: Node,
    peer: Rank,
    payload: Kept,
}

impl Node {
    /// Prepares a medium request to a peer, with room for at least `least` bytes of payload, and at most
    /// `most`: [`MEDIUM_MAX`] or `least`, where the greater of these is less. The length of what it gives
    /// says which. Also in handlers.
    ///
    /// GASNet-EX calls it a negotiated payload.
    ///
    /// # Errors
    /// [`Error::PayloadTooLong`] where `least` is more than [`Node::medium_max`] of the peer, or `most`, and
    /// [`Error::PayloadsKept`] where as many payloads are prepared or kept as may be.
    pub fn prepare_medium(&self, peer: Rank, least: usize, most: usize) -> Result<Prepared, Error> {
        self.may_call("preparing a request")?;
        let most = most.min(self.medium_max(peer));
        if least > most {
            return Err(Error::PayloadTooLong { given: least as u64, most: most as u64 });
        }
        let room = most.min(least.max(MEDIUM_MAX));
        let payload = self.core.payloads.zeroed(room).ok_or_else(too_many)?;
        Ok(Prepared { node: self.clone(), peer, payload })
    }
}

impl Prepared {
    /// Sends the request with the first `len` bytes; waits as [`Node::request_medium`] does.
    ///
    /// # Errors
    /// As for [`Node::request_medium`], and [`Error::PayloadTooLong`] where it has not so many bytes.
    pub fn commit(self, handler: HandlerId, args: [u64; 4], len: usize) -> Result<(), Error> {
        self.node.request_medium(self.peer, handler, args, self.first(len)?)
    }

    /// Sends the request with the first `len` bytes, if that needs no waiting; else gives it back, to be
    /// tried again. Also in handlers.
    ///
    /// # Errors
    /// As for [`Node::try_request_medium`], and [`Error::PayloadTooLong`] where it has not so many bytes.
    pub fn try_commit(
        self,
        handler: HandlerId,
        args: [u64; 4],
        len: usize,
    ) -> Result<Option<Prepared>, Error> {
        let is_sent = self.node.try_request_medium(self.peer, handler, args, self.first(len)?)?;
        Ok((!is_sent).then_some(self))
    }

    fn first(&self, len: usize) -> Result<&[u8], Error> {
        let most = self.len() as u64;
        self.get(..len).ok_or(Error::PayloadTooLong { given: len as u64, most })
    }
}

impl Deref for Prepared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.payload.bytes()
    }
}

impl DerefMut for Prepared {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.payload.bytes_mut()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Prepared");
        shown.field("node", &self.node).field("peer", &self.peer).field("len", &self.len()).finish()
    }
}

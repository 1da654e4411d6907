//! Parts that messages are made of.

use engine::{Lane, Rank};

use crate::api::node::Node;
use crate::base::error::Error;
use crate::base::handler_id::HandlerId;
use crate::base::pointers::Remote;
use crate::transport::shm::control::{NEAR_PAYLOAD_MAX, PAYLOAD_MAX};

/// Bytes that a medium message's payload may have, to any peer. [`Node::medium_max`] says of each how many
/// more.
pub const MEDIUM_MAX: usize = PAYLOAD_MAX;

/// A long message.
pub(super) struct Long<'a> {
    pub(super) lane: Lane,
    pub(super) handler: HandlerId,
    pub(super) args: [u64; 4],
    pub(super) to: Remote,
    pub(super) payload: &'a [u8],
    /// As [`engine::Node::send_am_stamped`] takes it.
    pub(super) stamp: u64,
}

impl Node {
    /// Bytes that the payload of a medium message between this node and a peer may have: 64 KiB to a
    /// [near](Node::is_near) peer, [`MEDIUM_MAX`] to any other. Both ends say the same, as those whose rings
    /// differ refuse each other when they meet. Any thread, and handlers; it never waits.
    pub fn medium_max(&self, peer: Rank) -> usize {
        if self.is_near(peer) { NEAR_PAYLOAD_MAX } else { MEDIUM_MAX }
    }

    /// Refuses a payload that is too long for a medium message to a peer.
    #[inline]
    pub(super) fn check_medium(&self, peer: Rank, payload: &[u8]) -> Result<(), Error> {
        if payload.len() <= MEDIUM_MAX { Ok(()) } else { self.check_long_medium(peer, payload.len()) }
    }

    #[cold]
    fn check_long_medium(&self, peer: Rank, len: usize) -> Result<(), Error> {
        let (given, most) = (len as u64, self.medium_max(peer) as u64);
        if given > most { Err(Error::PayloadTooLong { given, most }) } else { Ok(()) }
    }
}

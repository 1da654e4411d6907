//! Parts that messages are made of.

use engine::Lane;

use crate::base::error::Error;
use crate::base::handler_id::HandlerId;
use crate::base::pointers::Remote;
use crate::transport::shm::control::PAYLOAD_MAX;

/// Bytes that a medium message's payload may have.
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

pub(super) fn check_medium(payload: &[u8]) -> Result<(), Error> {
    let (given, most) = (payload.len() as u64, MEDIUM_MAX as u64);
    if given > most { Err(Error::PayloadTooLong { given, most }) } else { Ok(()) }
}

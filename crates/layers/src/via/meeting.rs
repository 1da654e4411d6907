//! Calls and requests from which connections come about.

use std::collections::HashMap;
use std::time::Instant;

use standpipe::Rank;

use super::error::ViaError;
use super::wire::{Greeting, Link, Terms};

/// Requests of equals that nobody here has answered, at most; later ones are forgotten.
pub(super) const STRANGERS_MAX: usize = 1024;

/// A call that waits for a client.
pub(super) struct Waiter {
    pub(super) id: u32,
    pub(super) nic: u32,
    pub(super) discriminator: Vec<u8>,
    /// The connection that has come, by its number.
    pub(super) came: Option<u32>,
}

/// A client that wants to be connected.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) nic: u32,
    pub(super) peer: Rank,
    pub(super) link: Link,
    pub(super) greeting: Greeting,
}

/// A VI's request for a connection.
pub(super) struct Asked {
    /// The processes that may answer.
    pub(super) peers: Vec<Rank>,
    pub(super) attempt: u32,
    /// Between equals: both discriminators, and until when.
    pub(super) equal: Option<Equal>,
    /// How it has ended: with the other end's attributes, or not.
    pub(super) answer: Option<Result<Terms, ViaError>>,
}

impl Asked {
    /// Whether that process may answer, and none has.
    pub(super) fn is_open_to(&self, peer: Rank) -> bool {
        let is_any = self.equal.as_ref().is_some_and(|equal| equal.is_any);
        self.answer.is_none() && (is_any || self.peers.contains(&peer))
    }
}

/// An equal's part of a request.
pub(super) struct Equal {
    pub(super) own: Vec<u8>,
    pub(super) wanted: Vec<u8>,
    /// `None`: it waits for ever.
    pub(super) until: Option<Instant>,
    /// Whether any process may answer, also one that comes later.
    pub(super) is_any: bool,
    /// This process's number, for the other.
    pub(super) process: u32,
    /// The processes that have been told.
    pub(super) told: Vec<Rank>,
}

/// All of this process.
#[derive(Default)]
pub(super) struct Meeting {
    pub(super) waiters: Vec<Waiter>,
    pub(super) requests: HashMap<u32, Request>,
    /// By VI.
    pub(super) asked: HashMap<u32, Asked>,
    /// Requests of equals for which nobody has asked here yet.
    pub(super) strangers: Vec<(Rank, Link, Greeting)>,
    /// VIs that have accepted a client: their attempts, and whether the client still wanted it.
    pub(super) accepting: HashMap<u32, (u32, Option<bool>)>,
}

/// Whether two VIs may be connected: what does not match, if not.
pub(super) fn agree(one: &Terms, other: &Terms) -> Result<(), ViaError> {
    if one.reliability != other.reliability {
        return Err(ViaError::InvalidReliability);
    }
    if one.max_transfer != other.max_transfer {
        return Err(ViaError::InvalidMtu);
    }
    if one.qos == other.qos { Ok(()) } else { Err(ViaError::InvalidQos) }
}

//! A VI: two work queues, and the connection that they have.

use std::collections::{HashMap, VecDeque};

use standpipe::Rank;

use super::queue::WorkQueue;
use super::regions::Reachable;
use super::wire::{Link, Terms};

/// `VIP_SERVICE_UNRELIABLE`: a send may be lost, and its loss breaks nothing.
pub const UNRELIABLE: u16 = 1;
/// `VIP_SERVICE_RELIABLE_DELIVERY`.
pub const RELIABLE_DELIVERY: u16 = 2;
/// `VIP_SERVICE_RELIABLE_RECEPTION`: the next send begins when the one before lies in its receiver's memory.
pub const RELIABLE_RECEPTION: u16 = 4;

/// `VIP_VI_ATTRIBUTES`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The part that the other end is told.
    pub terms: Terms,
    /// The protection tag of all memory that the VI's descriptors name.
    pub ptag: u32,
}

/// `VIP_VI_STATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViState {
    /// Not connected.
    Idle = 0,
    /// Connected.
    Connected = 1,
    /// A connection is asked for.
    ConnectPending = 2,
    /// The connection is broken; only a disconnect leads out of it.
    Error = 3,
}

/// One of a VI's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// A program's handler for one descriptor: it is called with the descriptor's address.
pub type Notify = Box<dyn FnOnce(u64) + Send>;

/// A queue with what is told of it.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) works: WorkQueue,
    /// The completion queue's number; 0: none.
    pub(super) cq: u32,
    pub(super) notifies: VecDeque<Notify>,
}

/// The other end.
pub(super) struct Connection {
    pub(super) peer: Rank,
    /// The other end's VI and attempt.
    pub(super) link: Link,
    /// Memory of the other end that has been asked for, by handle and whether it is to be written.
    pub(super) found: HashMap<(u32, bool), Reachable>,
}

/// A VI.
pub(super) struct Vi {
    pub(super) nic: u32,
    pub(super) attributes: Attributes,
    pub(super) state: ViState,
    /// Counts attempts to connect: messages of an older one are not of this.
    pub(super) attempt: u32,
    pub(super) connection: Option<Connection>,
    pub(super) send: Queue,
    pub(super) receive: Queue,
    /// A word of the program's own.
    pub(super) user_data: u64,
}

impl Vi {
    pub(super) fn queue(&mut self, side: Side) -> &mut Queue {
        match side {
            Side::Send => &mut self.send,
            Side::Receive => &mut self.receive,
        }
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.attributes.terms.reliability != UNRELIABLE
    }

    /// Whether this is the VI's connection at the moment, with that peer.
    pub(super) fn is_at(&self, attempt: u32, peer: Rank) -> bool {
        self.state == ViState::Connected
            && self.attempt == attempt
            && self.connection.as_ref().is_some_and(|connection| connection.peer == peer)
    }
}

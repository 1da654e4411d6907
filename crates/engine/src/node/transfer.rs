//! A transfer by messages: what is still to be sent of it, and what is under way.

use super::after::After;
use crate::limits::{RELAYS_MAX, WINDOW};
use crate::{Atomic, Direction, MemId, Nanos, OpError, Piece, Place, Rank};

/// A transfer by messages.
pub(super) struct Transfer {
    pub(super) peer: Rank,
    pub(super) direction: Direction,
    /// What is still to be sent, last piece first.
    pub(super) rest: Vec<Piece>,
    /// What has been sent and not answered.
    pub(super) window: [Option<Piece>; WINDOW],
    pub(super) error: Option<OpError>,
    /// Relays at work for it, and how many there may be.
    pub(super) relays: u8,
    pub(super) relays_max: u8,
    /// Whether it stands among those of the node that found a lane full.
    pub(super) stalled: bool,
    /// Since when it has been on its way, if that is to be known when it ends.
    pub(super) since: Option<Nanos>,
    /// What comes after it.
    pub(super) after: Option<After>,
    /// Its last chunk brings with it what comes after it, a [signal](After::Signal): the word from before, once that is known.
    pub(super) signalled: Option<u64>,
}

impl Transfer {
    /// A transfer that has not begun. `rest` is what there is to move, last piece first.
    pub(super) fn new(peer: Rank, direction: Direction, rest: Vec<Piece>, after: Option<After>) -> Transfer {
        Transfer {
            peer,
            direction,
            rest,
            window: [None; WINDOW],
            error: None,
            relays: 0,
            relays_max: RELAYS_MAX,
            stalled: false,
            since: None,
            after,
            signalled: None,
        }
    }

    pub(super) fn is_locally_done(&self) -> bool {
        self.direction == Direction::Put && self.rest.is_empty() && self.relays == 0
    }

    /// The word of the target's heap that changes after it, and how, where what is sent now may bring that with it: the whole
    /// rest of what there is to move, while nothing else is under way that may fail yet.
    pub(super) fn signal_now(&self) -> Option<(Place, Atomic)> {
        match self.after {
            Some(After::Signal(word, atomic))
                if self.rest.len() == 1
                    && self.relays == 0
                    && word.mem == MemId::Heap
                    && self.window.iter().all(Option::is_none) =>
            {
                Some((word, atomic))
            }
            _ => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        (self.rest.is_empty() || self.error.is_some())
            && self.relays == 0
            && self.window.iter().all(Option::is_none)
    }
}

//! The node's state of transfers under way, and what comes after their bytes. Nothing here decides what
//! happens next.

use crate::limits::{BOUNCES_MAX, WINDOW};
use crate::registration::RegId;
use crate::registration::firehose::HoseId;
use crate::wire::Am;
use crate::{Atomic, Direction, KeyedPiece, Lane, MemId, Nanos, OpError, Piece, Place, Rank};

/// The action at the target of a transfer when that is complete.
#[derive(Clone, Copy)]
pub(in crate::node) enum OnComplete {
    /// An Active Message announces it.
    Notify(Lane, Am),
    /// A word of the target's heap, or of what it has granted, is changed.
    Signal(Place, Atomic),
}

/// An atomic on a word in a grant, which its owner is asked for.
#[derive(Clone, Copy)]
pub(in crate::node) struct AskedAtomic {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) word: Place,
    pub(in crate::node) atomic: Atomic,
    /// Otherwise it has found no room so far.
    pub(in crate::node) sent: bool,
}

/// An operation that is not started before nothing is held back any more.
pub(in crate::node) enum HeldStart {
    Atomic(Place, Atomic),
    Put(Vec<Piece>, Option<OnComplete>),
}

/// A transfer by messages.
pub(in crate::node) struct MessageTransfer {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) direction: Direction,
    /// The pieces that are still to be sent, last piece first.
    pub(in crate::node) rest: Vec<Piece>,
    /// The pieces that have been sent and not answered.
    pub(in crate::node) window: [Option<Piece>; WINDOW],
    pub(in crate::node) error: Option<OpError>,
    /// Bounces at work for it, and how many there may be.
    pub(in crate::node) bounces: u8,
    pub(in crate::node) bounces_max: u8,
    /// Whether it stands among those of the node that found a lane full.
    pub(in crate::node) stalled: bool,
    /// Since when it has been on its way, if that is to be known when it ends.
    pub(in crate::node) since: Option<Nanos>,
    /// The action after it.
    pub(in crate::node) on_complete: Option<OnComplete>,
    /// Its last chunk brings with it what comes after it, a [signal](OnComplete::Signal): the word from
    /// before, once that is known.
    pub(in crate::node) signalled: Option<u64>,
}

impl MessageTransfer {
    /// A transfer that has not begun. `rest` is what there is to move, last piece first.
    pub(in crate::node) fn new(
        peer: Rank,
        direction: Direction,
        rest: Vec<Piece>,
        on_complete: Option<OnComplete>,
    ) -> MessageTransfer {
        MessageTransfer {
            peer,
            direction,
            rest,
            window: [None; WINDOW],
            error: None,
            bounces: 0,
            bounces_max: BOUNCES_MAX,
            stalled: false,
            since: None,
            on_complete,
            signalled: None,
        }
    }

    pub(in crate::node) fn is_locally_done(&self) -> bool {
        self.direction == Direction::Put && self.rest.is_empty() && self.bounces == 0
    }

    /// The word of the target's heap that changes after it, and how, where what is sent now may bring that
    /// with it: the whole rest of what there is to move, while nothing else is under way that may fail yet.
    pub(in crate::node) fn signal_now(&self) -> Option<(Place, Atomic)> {
        match self.on_complete {
            Some(OnComplete::Signal(word, atomic))
                if self.rest.len() == 1
                    && self.bounces == 0
                    && word.mem == MemId::Heap
                    && self.window.iter().all(Option::is_none) =>
            {
                Some((word, atomic))
            }
            _ => None,
        }
    }

    pub(in crate::node) fn is_over(&self) -> bool {
        (self.rest.is_empty() || self.error.is_some())
            && self.bounces == 0
            && self.window.iter().all(Option::is_none)
    }
}

/// A transfer by keys.
pub(in crate::node) struct KeyedTransfer {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) direction: Direction,
    /// The pieces that have not been submitted, last piece first.
    pub(in crate::node) todo: Vec<Piece>,
    /// It has been counted as an operation.
    pub(in crate::node) counted: bool,
    /// Parts, pieces by message and moves with data that are under way.
    pub(in crate::node) children: usize,
    pub(in crate::node) error: Option<OpError>,
    /// The action after it.
    pub(in crate::node) on_complete: Option<OnComplete>,
    /// The part that went with a move.
    pub(in crate::node) riding: Option<Piece>,
    /// Registrations of this process, kept for the next part.
    pub(in crate::node) pins: Vec<RegId>,
    /// The next piece has been asked for; and its local end.
    pub(in crate::node) asked: bool,
    pub(in crate::node) pinned: bool,
}

/// A part of a transfer by keys.
#[derive(Default)]
pub(in crate::node) struct Part {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) pieces: Vec<KeyedPiece>,
    pub(in crate::node) bytes: u64,
    /// The firehoses and registrations that it uses until it is over.
    pub(in crate::node) hoses: Vec<HoseId>,
    pub(in crate::node) locals: Vec<RegId>,
}

impl KeyedTransfer {
    pub(in crate::node) fn new(peer: Rank, direction: Direction) -> KeyedTransfer {
        KeyedTransfer {
            peer,
            direction,
            todo: Vec::new(),
            counted: false,
            children: 0,
            error: None,
            on_complete: None,
            riding: None,
            pins: Vec::new(),
            asked: false,
            pinned: false,
        }
    }
}

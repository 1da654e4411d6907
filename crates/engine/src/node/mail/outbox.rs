//! Messages of the engine's own without payload.

use std::collections::VecDeque;

use hashbrown::HashSet;

use crate::node::core::Core;
use crate::wire::Message;
use crate::{Lane, OpError, Rank, SendError, Transport};

/// Messages that found their lane full.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<(Rank, Lane, Message)>,
    /// For lanes that are found full while others are tried.
    full: HashSet<(Rank, Lane)>,
}

/// A message that had waited and could not be sent in the end: whoever it was of is to be told.
pub(in crate::node) struct Unsent {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) message: Message,
    pub(in crate::node) error: OpError,
}

impl Outbox {
    /// Keeps a message.
    pub(super) fn push(&mut self, peer: Rank, lane: Lane, message: Message) {
        self.waiting.push_back((peer, lane, message));
    }

    /// Sends what waits, in order within each (peer, lane). Returns whether anything moved, and adds what
    /// failed to `unsent`.
    pub(super) fn drain<T: Transport>(&mut self, core: &mut Core<T>, unsent: &mut Vec<Unsent>) -> bool {
        let before = self.waiting.len();
        let full = &mut self.full;
        full.clear();
        self.waiting.retain(|(peer, lane, message)| {
            // A lane that was full may have room again by now; what comes later must still not overtake.
            if full.contains(&(*peer, *lane)) {
                return true;
            }
            match core.transport.send(*peer, *lane, &message.encode(0), &[]) {
                Err(SendError::Busy) => return full.insert((*peer, *lane)),
                Err(SendError::Failed(error)) => {
                    unsent.push(Unsent { peer: *peer, message: *message, error });
                }
                Ok(()) => {}
            }
            false
        });
        self.waiting.len() < before
    }

    /// Whether none waits.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether any is to go that way.
    #[inline]
    pub(super) fn has(&self, peer: Rank, lane: Lane) -> bool {
        self.waiting.iter().any(|(to, by, _)| (*to, *by) == (peer, lane))
    }

    /// Those for a peer.
    pub(super) fn to(&self, peer: Rank) -> impl Iterator<Item = &Message> {
        self.waiting.iter().filter(move |(to, ..)| *to == peer).map(|(.., message)| message)
    }

    /// Puts what `both` says in the place of the first message to a peer of which it says anything. Returns
    /// whether there was one.
    pub(super) fn amend(&mut self, peer: Rank, mut both: impl FnMut(&Message) -> Option<Message>) -> bool {
        for (to, _, waiting) in &mut self.waiting {
            if *to == peer
                && let Some(both) = both(waiting)
            {
                *waiting = both;
                return true;
            }
        }
        false
    }

    /// Drops such messages. Returns whether there were any.
    pub(super) fn take_back(&mut self, is_it: impl Fn(&Message) -> bool) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(.., message)| !is_it(message));
        self.waiting.len() < before
    }

    /// Drops those for a peer.
    pub(super) fn forget(&mut self, peer: Rank) {
        self.waiting.retain(|(to, ..)| *to != peer);
    }
}

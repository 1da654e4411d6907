//! Messages with payload that wait for room, or until nothing is held back.

use super::wait_queues::WaitQueues;
use crate::node::core::Core;
use crate::wire::Message;
use crate::{Lane, Rank, SendError, Transport};

/// Bytes of answers, at most, that wait for revoked rights to be given back, but for those of a few polls. A
/// peer that gives a right back at all does so at its next poll, or at the end of an operation. That
/// takes a tenth of a second, say, in which an owner that copied without pause would answer so much. Without
/// this bound peers could fill its memory while one of them is silent.
const HELD_BYTES_MAX: usize = 256 << 20;

/// Messages with payload that wait, by the way that they are to go, in turn.
#[derive(Default)]
pub(super) struct DeferredMessages {
    lists: WaitQueues<(Rank, Lane), Deferred>,
    /// Bytes of those that are held back.
    held_bytes: usize,
}

/// A message that waits.
struct Deferred {
    message: Message,
    payload: Vec<u8>,
    /// It waits until nothing is held back.
    held: bool,
}

impl Deferred {
    /// The part that it adds to [`DeferredMessages::held_bytes`].
    fn held_bytes(&self) -> usize {
        if self.held { size_of::<Deferred>() + self.payload.len() } else { 0 }
    }
}

impl DeferredMessages {
    /// Whether none waits.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Whether any waits to go that way.
    #[inline]
    pub(super) fn has(&self, peer: Rank, lane: Lane) -> bool {
        self.lists.has((peer, lane))
    }

    /// The messages that wait to go that way.
    pub(super) fn to(&self, peer: Rank, lane: Lane) -> impl Iterator<Item = &Message> {
        self.lists.get((peer, lane)).into_iter().flatten().map(|deferred| &deferred.message)
    }

    /// Keeps a message until there is room, and where it is `held`, until nothing is held back either.
    #[cold]
    pub(super) fn push(&mut self, way: (Rank, Lane), message: Message, payload: &[u8], held: bool) {
        let deferred = Deferred { message, payload: payload.to_vec(), held };
        self.held_bytes += deferred.held_bytes();
        self.lists.push(way, deferred);
    }

    /// Whether more is held back than peers make wait that give back what they are asked for.
    pub(super) fn are_too_many(&self) -> bool {
        self.held_bytes > HELD_BYTES_MAX
    }

    /// Sends what may go. Returns whether anything moved.
    pub(super) fn send<T: Transport>(&mut self, core: &mut Core<T>, holds_back: bool) -> bool {
        let (mut moved, mut at) = (false, 0);
        while let Some(moves) = self.send_list(core, at, holds_back) {
            moved |= moves;
            at += 1;
        }
        self.lists.tidy();
        moved
    }

    /// The same with what is to go one way.
    pub(super) fn send_to<T: Transport>(&mut self, core: &mut Core<T>, way: (Rank, Lane), holds_back: bool) {
        if let Some(at) = self.lists.place(way) {
            self.send_list(core, at, holds_back);
            self.lists.tidy();
        }
    }

    /// Sends what waits in that list and may go. Returns whether anything moved; `None`: there is no such
    /// list.
    fn send_list<T: Transport>(&mut self, core: &mut Core<T>, at: usize, holds_back: bool) -> Option<bool> {
        let ((peer, lane), waiting) = self.lists.nth(at)?;
        if core.is_gone(peer) {
            self.held_bytes -= waiting.drain(..).map(|deferred| deferred.held_bytes()).sum::<usize>();
            return Some(false);
        }
        if !core.transport.has_room(peer, lane) {
            return Some(false);
        }
        let (mut moved, mut next) = (false, 0);
        while let Some(deferred) = waiting.get(next) {
            if deferred.held && holds_back {
                next += 1;
                continue;
            }
            let words = deferred.message.encode(deferred.payload.len());
            if core.transport.send(peer, lane, &words, &deferred.payload) == Err(SendError::Busy) {
                break;
            }
            moved = true;
            self.held_bytes -= deferred.held_bytes();
            waiting.remove(next);
        }
        Some(moved)
    }

    /// Drops what waits for a peer.
    pub(super) fn forget(&mut self, peer: Rank) {
        let mut at = 0;
        while let Some(((to, _), waiting)) = self.lists.nth(at) {
            at += 1;
            if to == peer {
                self.held_bytes -= waiting.drain(..).map(|deferred| deferred.held_bytes()).sum::<usize>();
            }
        }
        self.lists.forget(|(to, _)| to == peer);
    }

    /// Looks at all that waits anew.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(super) fn audit(&self) -> Result<(), String> {
        let held: usize = self.lists.all().map(Deferred::held_bytes).sum();
        if held == self.held_bytes {
            Ok(())
        } else {
            Err(format!("{held} bytes of answers are held back, and {} are counted", self.held_bytes))
        }
    }
}

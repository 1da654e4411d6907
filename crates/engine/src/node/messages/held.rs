//! What waits to be sent: for room, or until no peer uses memory any more that is not this process's.

use crate::node::Node;
use crate::node::registration::state::DeferredMessage;
use crate::wire::Message;
use crate::{Lane, Rank, SendError, Transport};

impl<T: Transport> Node<T> {
    /// Whether messages are held back: some peer may still use what is no longer this process's memory.
    pub(in crate::node) fn holds_back(&self) -> bool {
        self.registration.as_ref().is_some_and(|registration| registration.revocations.are_out())
    }

    /// Whether a message must wait: messages are held back, or others wait to go the same way before it.
    pub(in crate::node) fn must_wait(&self, peer: Rank, lane: Lane) -> bool {
        let Some(registration) = &self.registration else { return false };
        self.holds_back() || registration.deferred.has((peer, lane))
    }

    /// Sends a message of registration's own now, or as soon as the lane has room; after those that wait
    /// already.
    pub(in crate::node) fn post(&mut self, peer: Rank, lane: Lane, message: Message, payload: &[u8]) {
        if self.core.is_gone(peer) {
            return;
        }
        let Some(registration) = &mut self.registration else { return };
        let sent = if registration.deferred.has((peer, lane)) || !self.outbox.is_empty() {
            Err(SendError::Busy)
        } else {
            self.core.transport.send(peer, lane, &message.encode(payload.len()), payload)
        };
        if sent == Err(SendError::Busy) {
            registration
                .deferred
                .push((peer, lane), DeferredMessage { message, payload: payload.to_vec(), held: false });
        }
    }

    /// Keeps a message until nothing is held back any more.
    pub(in crate::node) fn hold(&mut self, peer: Rank, lane: Lane, message: Message, payload: &[u8]) {
        let Some(registration) = &mut self.registration else { return };
        let deferred = DeferredMessage { message, payload: payload.to_vec(), held: true };
        registration.held_bytes += deferred.held_bytes();
        registration.deferred.push((peer, lane), deferred);
    }

    /// Sends what waits and may go. Returns whether anything moved.
    pub(in crate::node) fn send_deferred(&mut self) -> bool {
        let (mut moved, mut at) = (false, 0);
        while let Some(moves) = self.send_waiting(at) {
            moved |= moves;
            at += 1;
        }
        if let Some(registration) = &mut self.registration {
            registration.deferred.tidy();
        }
        moved
    }

    /// Sends what waits in that list and may go. Returns whether anything moved; `None`: there is no such
    /// list.
    fn send_waiting(&mut self, at: usize) -> Option<bool> {
        let holds = self.holds_back();
        let registration = self.registration.as_mut()?;
        let held_bytes = &mut registration.held_bytes;
        let ((peer, lane), waiting) = registration.deferred.nth(at)?;
        if self.core.is_gone(peer) {
            *held_bytes -= waiting.drain(..).map(|deferred| deferred.held_bytes()).sum::<usize>();
            return Some(false);
        }
        if !self.core.transport.has_room(peer, lane) {
            return Some(false);
        }
        let (mut moved, mut next) = (false, 0);
        while let Some(deferred) = waiting.get(next) {
            if deferred.held && holds {
                next += 1;
                continue;
            }
            let words = deferred.message.encode(deferred.payload.len());
            if self.core.transport.send(peer, lane, &words, &deferred.payload) == Err(SendError::Busy) {
                break;
            }
            moved = true;
            *held_bytes -= deferred.held_bytes();
            waiting.remove(next);
        }
        Some(moved)
    }

    /// Whether an answer to a peer must wait. What waits for the same peer goes first, if it may: each
    /// request leaves room for one answer, so that no more wait than came while answers were held back.
    pub(in crate::node) fn answer_must_wait(&mut self, peer: Rank) -> bool {
        if !self.must_wait(peer, Lane::Reply) {
            return false;
        }
        if !self.holds_back()
            && let Some(registration) = &mut self.registration
            && let Some(at) = registration.deferred.place((peer, Lane::Reply))
        {
            self.send_waiting(at);
            if let Some(registration) = &mut self.registration {
                registration.deferred.tidy();
            }
        }
        // The room that this request left may be taken by now.
        self.must_wait(peer, Lane::Reply) || !self.core.transport.has_room(peer, Lane::Reply)
    }
}

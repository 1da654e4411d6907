//! What waits to be sent: for room, or until no peer uses memory any more that is not this process's.

use crate::node::registration::state::Later;
use crate::node::{Lost, Node};
use crate::wire::Message;
use crate::{Lane, Rank, SendError, Transport};

impl<T: Transport> Node<T> {
    /// Whether messages are held back: some peer may still use what is no longer this process's memory.
    pub(in crate::node) fn holds_back(&self) -> bool {
        self.registrar.as_ref().is_some_and(|registrar| registrar.revoked.are_out())
    }

    /// Whether a message must wait: messages are held back, or others wait to go the same way before it.
    pub(in crate::node) fn must_wait(&self, peer: Rank, lane: Lane) -> bool {
        let Some(registrar) = &self.registrar else { return false };
        self.holds_back() || registrar.later.has((peer, lane))
    }

    /// Sends a message of registration's own now, or as soon as the lane has room; after those that wait already.
    pub(in crate::node) fn post(&mut self, peer: Rank, lane: Lane, message: Message, payload: &[u8]) {
        if self.is_gone(peer) {
            return;
        }
        let Some(registrar) = &mut self.registrar else { return };
        let sent = if registrar.later.has((peer, lane)) || !self.outbox.is_empty() {
            Err(SendError::Busy)
        } else {
            self.transport.send(peer, lane, &message.encode(payload.len()), payload)
        };
        if sent == Err(SendError::Busy) {
            registrar.later.push((peer, lane), Later { message, payload: payload.to_vec(), held: false });
        }
    }

    /// Keeps a message until nothing is held back any more.
    pub(in crate::node) fn hold(&mut self, peer: Rank, lane: Lane, message: Message, payload: &[u8]) {
        let Some(registrar) = &mut self.registrar else { return };
        let later = Later { message, payload: payload.to_vec(), held: true };
        registrar.held_bytes += later.held_bytes();
        registrar.later.push((peer, lane), later);
    }

    /// Sends what waits and may go. Returns whether anything moved.
    pub(in crate::node) fn send_later(&mut self) -> bool {
        let (mut moved, mut at) = (false, 0);
        while let Some(moves) = self.send_waiting(at) {
            moved |= moves;
            at += 1;
        }
        if let Some(registrar) = &mut self.registrar {
            registrar.later.tidy();
        }
        moved
    }

    /// Sends what waits in that list and may go. Returns whether anything moved; `None`: there is no such list.
    fn send_waiting(&mut self, at: usize) -> Option<bool> {
        let holds = self.holds_back();
        let registrar = self.registrar.as_mut()?;
        let (transport, held_bytes) = (&mut self.transport, &mut registrar.held_bytes);
        let ((peer, lane), waiting) = registrar.later.nth(at)?;
        if self.lost.get(&peer) == Some(&Lost::Gone) {
            *held_bytes -= waiting.drain(..).map(|later| later.held_bytes()).sum::<usize>();
            return Some(false);
        }
        if !transport.has_room(peer, lane) {
            return Some(false);
        }
        let (mut moved, mut next) = (false, 0);
        while let Some(later) = waiting.get(next) {
            if later.held && holds {
                next += 1;
                continue;
            }
            let words = later.message.encode(later.payload.len());
            if transport.send(peer, lane, &words, &later.payload) == Err(SendError::Busy) {
                break;
            }
            moved = true;
            *held_bytes -= later.held_bytes();
            waiting.remove(next);
        }
        Some(moved)
    }

    /// Whether an answer to a peer must wait. What waits for the same peer goes first, if it may: each request leaves room for
    /// one answer, so that no more wait than came while answers were held back.
    pub(in crate::node) fn answer_must_wait(&mut self, peer: Rank) -> bool {
        if !self.must_wait(peer, Lane::Reply) {
            return false;
        }
        if !self.holds_back()
            && let Some(registrar) = &mut self.registrar
            && let Some(at) = registrar.later.place((peer, Lane::Reply))
        {
            self.send_waiting(at);
            if let Some(registrar) = &mut self.registrar {
                registrar.later.tidy();
            }
        }
        // The room that this request left may be taken by now.
        self.must_wait(peer, Lane::Reply) || !self.transport.has_room(peer, Lane::Reply)
    }
}

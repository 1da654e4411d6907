//! Messages of the engine's own without payload, and answers.

use crate::node::Node;
use crate::wire::Message;
use crate::{Lane, OpError, Rank, SendError, Transport};

impl<T: Transport> Node<T> {
    /// Sends what waits in the outbox, in order within each (peer, lane). Returns whether anything moved.
    /// What fails is an announcement of an operation that has ended: `quiet` reports it.
    pub(in crate::node) fn drain_outbox(&mut self) -> bool {
        if self.holds_back() {
            return false;
        }
        let before = self.outbox.len();
        let transport = &mut self.core.transport;
        let (unsent, ended) = (&mut self.unsent_notices, &mut self.ended);
        let full = &mut self.full;
        full.clear();
        let mut failed = Vec::new();
        self.outbox.retain(|(peer, lane, message)| {
            // A lane that was full may have room again by now; what comes later must still not overtake.
            if full.contains(&(*peer, *lane)) {
                return true;
            }
            let error = match transport.send(*peer, *lane, &message.encode(0), &[]) {
                Err(SendError::Busy) => return full.insert((*peer, *lane)),
                Err(SendError::Failed(error)) => error,
                Ok(()) => return false,
            };
            match message {
                Message::BarrierOpen { .. } | Message::BarrierBroken { .. } => unsent.keep(*peer, *message),
                Message::Bounce(ask) => failed.push((ask.op, error)),
                // Whoever is gone has its bounce buffer back.
                Message::BounceGive { .. } => {}
                Message::HandlerAsk(ask) => failed.push((ask.op, error)),
                // Whoever is gone wants no answer.
                Message::AmDone { .. } | Message::AmRefused { .. } => {}
                Message::Am(am) => ended.note(am.client, *peer, error),
                _ => ended.note(0, *peer, error),
            }
            false
        });
        let moved = self.outbox.len() < before;
        failed.into_iter().for_each(|(op, error)| self.on_unsent_request(op, error));
        moved
    }

    pub(in crate::node) fn waits_in_outbox(&self, peer: Rank, lane: Lane) -> bool {
        self.outbox.iter().any(|(to, by, _)| (*to, *by) == (peer, lane))
    }

    /// Sends a message without payload now, or as soon as the lane has room.
    pub(in crate::node) fn send_soon(
        &mut self,
        peer: Rank,
        lane: Lane,
        message: Message,
    ) -> Result<(), OpError> {
        if self.core.is_gone(peer) {
            return Err(OpError::PeerLost { peer });
        }
        let sent = if self.waits_in_outbox(peer, lane) || self.must_wait(peer, lane) {
            Err(SendError::Busy)
        } else {
            self.core.transport.send(peer, lane, &message.encode(0), &[])
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Busy) => self.outbox.push_back((peer, lane, message)),
            Err(SendError::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    /// Answers a request with `len` bytes of the scratch space.
    #[inline(always)]
    pub(in crate::node) fn answer(&mut self, peer: Rank, message: Message, len: usize) {
        if self.answer_must_wait(peer) {
            let payload = self.core.scratch[..len].to_vec();
            self.hold(peer, Lane::Reply, message, &payload);
            return;
        }
        // The transport handed the request out, so there is room; only a peer that corrupts its own lane sees
        // none, and it alone then waits in vain.
        if self
            .core
            .transport
            .send(peer, Lane::Reply, &message.encode(len), &self.core.scratch[..len])
            .is_err()
        {
            self.core.counters.malformed += 1;
        }
    }
}

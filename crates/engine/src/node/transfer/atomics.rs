//! Atomics on words of a peer's heap.

use super::state::HeldStart;
use crate::node::Node;
use crate::op_id::{OpId, OpKey};
use crate::{Atomic, Mechanism, OpError, Operation, Place, Rank, Submit, Transport};

impl<T: Transport> Node<T> {
    /// Starts an atomic now, or as soon as nothing is held back any more.
    pub(in crate::node) fn start_atomic(&mut self, key: OpKey, peer: Rank, word: Place, atomic: Atomic) {
        if let Some(op) = atomic.impossible() {
            return self.ops.finish(key, Err(OpError::NoSuchAtomic { peer, op, word: atomic.word }));
        }
        if self.mail.holds_back() {
            self.mail.hold_start(key, HeldStart::Atomic(word, atomic));
        } else {
            self.submit_atomic(key, peer, word, atomic);
        }
    }

    pub(super) fn submit_atomic(&mut self, key: OpKey, peer: Rank, word: Place, atomic: Atomic) {
        match self.core.transport.atomic(OpId::of(key), peer, word, atomic) {
            Submit::Done(old) => {
                self.core.counters.add(Operation::Atomic, Mechanism::Mapped, atomic.size());
                self.ops.finish(key, Ok(old));
            }
            // Somebody else does it: the owner, in answer to a message, or a network's card.
            Submit::Pending => self.core.counters.add(Operation::Atomic, Mechanism::Message, atomic.size()),
            Submit::Unreachable(why) => self.ops.finish(key, Err(OpError::Unsupported { peer, why })),
            Submit::Failed(error) => self.ops.finish(key, Err(error)),
        }
    }
}

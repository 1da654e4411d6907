//! Atomics on words of a peer's heap.

use super::state::HeldStart;
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::op_id::{OpId, OpKey};
use crate::{Atomic, Mechanism, Nanos, OpError, Operation, Place, Rank, Submit, Transport};

impl<T: Transport> Node<T> {
    /// Starts an atomic on an aligned word of a peer's heap; the outcome is the old word, or
    /// [`OpError::NoSuchAtomic`] where words of that type have no such operation.
    pub fn atomic(&mut self, peer: Rank, word: Place, atomic: Atomic, deadline: Option<Nanos>) -> OpId {
        let key = self.ops.insert(OpKind::OneSided { peer, on_complete: None }, deadline);
        if self.core.is_lost(peer) {
            self.ops.finish(key, Err(OpError::PeerLost { peer }));
            return OpId::of(key);
        }
        self.start_atomic(key, peer, word, atomic);
        OpId::of(key)
    }

    /// Starts an atomic now, or as soon as nothing is held back any more.
    pub(super) fn start_atomic(&mut self, key: OpKey, peer: Rank, word: Place, atomic: Atomic) {
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

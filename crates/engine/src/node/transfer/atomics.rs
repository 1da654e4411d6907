//! Atomics on words of a peer's heap, and of what it has granted.
//!
//! The transport does those on heaps. A word in a grant is its owner's to change, whoever asks and by
//! whatever transport. A near peer reaches private memory by copies alone, and only the owner knows at that
//! moment what the name stands for. So the initiator asks by a message, once. In one call the owner looks at
//! the grant, changes the word by one processor atomic, and answers.

use super::state::{AskedAtomic, HeldStart};
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::node::operations::settling::Awaited;
use crate::op_id::{OpId, OpKey};
use crate::wire::{AtomicAsk, AtomicDone, Message, Status, atomic_result};
use crate::{Atomic, Lane, Mechanism, OpError, Operation, Place, Rank, SendError, Submit, Transport};

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
        if word.in_grant().is_some() {
            return self.ask_for_atomic(key, peer, word, atomic);
        }
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

    /// Has the owner of a grant do it: this process, if it is its own.
    fn ask_for_atomic(&mut self, key: OpKey, peer: Rank, word: Place, atomic: Atomic) {
        self.core.counters.add(Operation::Atomic, Mechanism::Message, atomic.size());
        if peer == self.core.rank {
            let done = self.change_granted(peer, word, atomic);
            return self.ops.finish(key, done);
        }
        self.ops[key].kind = OpKind::Atomic(Box::new(AskedAtomic { peer, word, atomic, sent: false }));
        self.send_atomic(key);
    }

    /// Asks for an atomic that has not been asked for, if there is room; else it is among those that stall.
    /// Returns whether anything moved.
    pub(in crate::node) fn send_atomic(&mut self, key: OpKey) -> bool {
        let asked = match self.ops.under_way(key).map(|op| &op.kind) {
            Some(OpKind::Atomic(asked)) if !asked.sent => **asked,
            _ => return false,
        };
        let AskedAtomic { peer, word, atomic, .. } = asked;
        let ask = Message::AtomicAsk(AtomicAsk { op: OpId::of(key), word: Some(word), atomic: Some(atomic) });
        let sent = match self.mail.is_taken(peer, Lane::Request) {
            true => Err(SendError::Busy),
            false => self.core.transport.send(peer, Lane::Request, &ask.encode(0), &[]),
        };
        match sent {
            Ok(()) => {
                if let OpKind::Atomic(asked) = &mut self.ops[key].kind {
                    asked.sent = true;
                }
            }
            Err(SendError::Busy) => self.mail.stall(peer, key),
            Err(SendError::Failed(error)) => self.ops.finish(key, Err(error)),
        }
        sent != Err(SendError::Busy)
    }

    /// Lets go of an atomic that a peer is asked for. Adds to `awaited` that it may still do it.
    pub(in crate::node) fn abandon_atomic(&mut self, key: OpKey, awaited: &mut Vec<Awaited>) {
        let Some(OpKind::Atomic(asked)) = self.ops.get(key).map(|op| &op.kind) else { return };
        if asked.sent && asked.atomic.may_change() {
            awaited.push(Awaited::Atomic(key));
        }
    }

    /// Takes the answer to an atomic.
    pub(in crate::node) fn on_atomic_done(&mut self, peer: Rank, done: &AtomicDone) {
        let key = done.op.key();
        let asked = match self.ops.under_way(key).map(|op| &op.kind) {
            // Several tokens lead to one place in the table; only one of them was sent.
            Some(OpKind::Atomic(asked)) if OpId::of(key) == done.op && asked.sent && asked.peer == peer => {
                **asked
            }
            Some(_) => {
                self.core.counters.malformed += 1;
                return;
            }
            // That it is late is no offence.
            None => {
                self.ops.has_settled(Awaited::Atomic(key), Some(peer));
                return;
            }
        };
        let result = atomic_result(done.status, peer, asked.word, asked.atomic);
        self.ops.finish(key, result.map(|()| if asked.atomic.blind { 0 } else { done.old }));
    }

    /// Changes a word of what this process has granted, or reads it, as a peer asks.
    pub(in crate::node) fn serve_atomic(&mut self, peer: Rank, ask: &AtomicAsk) {
        let Some(atomic) = ask.atomic else {
            self.core.counters.malformed += 1;
            return;
        };
        let done = match ask.word {
            Some(word) => self.change_granted(peer, word, atomic),
            None => Err(OpError::Protocol { peer, what: "an atomic on a word that is in no grant" }),
        };
        if done.is_ok() {
            self.count_served(peer, atomic.size());
        }
        let (status, old) = (Status::of(&done.map(drop)), done.unwrap_or(0));
        let answer = AtomicDone { op: ask.op, status: Some(status), old };
        self.mail.answer(&mut self.core, peer, Message::AtomicDone(answer), 0);
    }

    /// Does that for a peer, if the grant is for it: the word from before, or 0 where nobody asks for it. The
    /// error is the initiator's.
    fn change_granted(&mut self, peer: Rank, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        let own = self.permit_word(peer, word, atomic)?;
        let fault =
            OpError::Fault { peer: self.core.rank, mem: word.mem, addr: word.offset, len: atomic.size() };
        let old = self.core.transport.change_own(own, atomic).map_err(|_| fault)?;
        Ok(if atomic.blind { 0 } else { old })
    }
}

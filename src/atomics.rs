//! Atomics on 64-bit words of heaps. All ranks of a host reach a word through the same memory, and for all others its
//! owner's processor does them there: so all of them, and the owner's own threads, see one order of its changes.

use engine::{Atomic, MemId, Place};

use crate::error::Error;
use crate::global::GlobalPtr;
use crate::node::Node;
use crate::tally::Direct;
use crate::transport::shm::rings::atomic_in_heap;

/// Atomics. Any thread may call them; in handlers, only on heaps that are mapped here. What was written before an atomic
/// is visible to whoever sees its effect by an atomic of their own.
impl Node {
    /// Adds `value`, wrapping, and returns the word from before.
    ///
    /// # Errors
    /// [`Error::Unaligned`] for a word that is not 8-byte aligned; for the rest as for [`Node::put`].
    #[inline]
    pub fn fetch_add(&self, word: GlobalPtr<u64>, value: u64) -> Result<u64, Error> {
        self.atomic(word, Atomic::FetchAdd(value))
    }

    /// Stores `new` if the word holds `expected`, and returns the word from before: the swap was made exactly if that
    /// is `expected`.
    ///
    /// # Errors
    /// As for [`Node::fetch_add`].
    #[inline]
    pub fn compare_swap(&self, word: GlobalPtr<u64>, expected: u64, new: u64) -> Result<u64, Error> {
        self.atomic(word, Atomic::CompareSwap { expected, new })
    }

    #[inline]
    fn atomic(&self, word: GlobalPtr<u64>, atomic: Atomic) -> Result<u64, Error> {
        if !word.offset().is_multiple_of(8) {
            return Err(Error::Unaligned { offset: word.offset() });
        }
        let peer = self.inner.peers.get(word.peer(), self.timeout)?;
        match atomic_in_heap(peer, word.offset(), atomic) {
            Ok(old) => {
                self.inner.tallies.add(Direct::AtomicMapped, 8);
                Ok(old)
            }
            Err(_) if peer.is_far() => self.atomic_by_message(word, atomic),
            Err(error) => Err(error.into()),
        }
    }

    /// The owner's processor does it, so that the word has one order of changes, whoever makes them.
    #[cold]
    fn atomic_by_message(&self, word: GlobalPtr<u64>, atomic: Atomic) -> Result<u64, Error> {
        self.inner.may_wait("an atomic by message")?;
        let place = Place::new(MemId::Heap, word.offset());
        let op = self.inner.engine().atomic(word.peer(), place, atomic, self.deadline());
        self.finish(op)
    }
}

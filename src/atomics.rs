//! Atomics on 64-bit words of heaps. All ranks reach a word through the same memory, so all of them, and the owner's
//! own threads, see one order of its changes.

use engine::Atomic;

use crate::error::Error;
use crate::global::GlobalPtr;
use crate::node::Node;
use crate::tally::Direct;
use crate::transport::shm::rings::atomic_in_heap;

/// Atomics. Any thread may call them, in handlers too. What was written before an atomic is visible to whoever sees
/// its effect by an atomic of their own.
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
        let old = atomic_in_heap(peer, word.offset(), atomic)?;
        self.inner.tallies.add(Direct::AtomicMapped, 8);
        Ok(old)
    }
}

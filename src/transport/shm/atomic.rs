//! Atomics on words of near peers, and of this process's own memory, by this process's processor.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use engine::{Atomic, AtomicOp, Change, MemId, OpError, Place, WordType};

use super::copy::heap_fault;
use crate::transport::peers::Near;

/// An atomic on an aligned word of a peer's control memory or heap.
pub(crate) fn atomic_at(peer: &Near, word: Place, atomic: Atomic) -> Result<u64, OpError> {
    match word.mem {
        MemId::Control if atomic.size() == 8 => Ok(apply_u64(peer.control.barrier(), atomic)),
        MemId::Heap => atomic_in_heap(peer, word.offset, atomic),
        mem => Err(OpError::Fault { peer: peer.rank, mem, addr: word.offset, len: atomic.size() }),
    }
}

/// An atomic on an aligned word of a peer's heap, by this process's processor.
#[inline(always)]
pub(crate) fn atomic_in_heap(peer: &Near, offset: u64, atomic: Atomic) -> Result<u64, OpError> {
    let heap = offset.checked_add(atomic.size()).and_then(|end| peer.heap_up_to(end));
    let old = heap.and_then(|heap| match atomic.size() {
        4 => heap.atomic_u32(offset).ok().map(|word| apply_u32(word, atomic)),
        _ => heap.atomic_u64(offset).ok().map(|word| apply_u64(word, atomic)),
    });
    old.ok_or_else(|| heap_fault(peer, offset, atomic.size()))
}

/// Atomics by the processor. Operations that it has not are loops over compare-and-swap.
macro_rules! apply {
    ($apply:ident, $fetch:ident, $swap:ident, $atomic:ty, $word:ty) => {
        #[inline(always)]
        pub(super) fn $apply(word: &$atomic, atomic: Atomic) -> u64 {
            u64::from(match atomic.change {
                Change::Apply(op, value) => $fetch(word, atomic.word, op, value as $word),
                Change::CompareSwap { expected, new } => $swap(word, expected as $word, new as $word),
            })
        }

        /// Changes a word of that type by an operation with `value`, and returns the word from before.
        #[inline(always)]
        pub(crate) fn $fetch(word: &$atomic, of: WordType, op: AtomicOp, value: $word) -> $word {
            // A thread that then looks for sleepers needs no fence in between.
            const ORDER: Ordering = Ordering::SeqCst;
            match op {
                AtomicOp::Swap => word.swap(value, ORDER),
                AtomicOp::Add if !of.is_float() => word.fetch_add(value, ORDER),
                AtomicOp::And if !of.is_float() => word.fetch_and(value, ORDER),
                AtomicOp::Or if !of.is_float() => word.fetch_or(value, ORDER),
                AtomicOp::Xor if !of.is_float() => word.fetch_xor(value, ORDER),
                // An operation that the processor has no instruction for.
                _ => {
                    let atomic = Atomic::new(of, Change::Apply(op, u64::from(value)));
                    let new = |old| Some(atomic.apply(u64::from(old)) as $word);
                    word.fetch_update(ORDER, Ordering::Acquire, new).unwrap_or_else(|old| old)
                }
            }
        }

        /// Stores `new` in a word that holds `expected`, and returns the word from before.
        #[inline(always)]
        pub(crate) fn $swap(word: &$atomic, expected: $word, new: $word) -> $word {
            if expected == new {
                // It stays as it is, whatever it is: a load needs no line of its own.
                return word.load(Ordering::SeqCst);
            }
            word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::Acquire)
                .unwrap_or_else(|old| old)
        }
    };
}

apply!(apply_u32, fetch_u32, swap_u32, AtomicU32, u32);
apply!(apply_u64, fetch_u64, swap_u64, AtomicU64, u64);

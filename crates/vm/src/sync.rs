//! The atomics of the lock-free parts: the standard library's, or loom's when a model is checked.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The sender's half of an asymmetric fence: it only keeps the compiler from moving the accesses around it, because
/// the other side's `membarrier` brings the processor's fence to us when it is needed.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// loom does not know `membarrier`; what the pair of fences guarantees is what a pair of full fences guarantees.
#[cfg(loom)]
pub(crate) fn light_fence() {
    fence(Ordering::SeqCst);
}

//! The atomics of the lock-free parts, and what else they need of threads: the standard library's, or loom's
//! when a model is checked.

use std::cell::Cell;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The cheap half of an asymmetric fence. It only keeps the compiler from moving the accesses around it,
/// because the other side's `membarrier` brings the processor's fence to us when it is needed.
#[cfg(not(any(loom, miri)))]
#[inline(always)]
pub(crate) fn light_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// loom and Miri do not know `membarrier`; what the pair of fences guarantees is what a pair of full fences
/// guarantees.
#[cfg(any(loom, miri))]
pub(crate) fn light_fence() {
    fence(Ordering::SeqCst);
}

/// Moves the lines of memory of `words`, just written, from this core's caches to the one that all cores
/// share, where the processor can. Another core gets them from there sooner, and as its own.
///
/// The pause lets the writes reach the cache first; without it a line moves in some cases before they do, and
/// comes back.
#[inline(always)]
pub(crate) fn hand_over(words: &[AtomicU64]) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    if demotes() {
        std::hint::spin_loop();
        for line in words.chunks(8) {
            // SAFETY: cldemote is a hint: it changes no memory and no register, faults nowhere, and is
            // defined to do nothing on processors that do not have it.
            unsafe {
                std::arch::asm!("cldemote [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags))
            };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    let _ = words;
}

/// Whether the processor has cldemote (CPUID leaf 7, ECX bit 25).
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline(always)]
fn demotes() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    static HAS: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & (1 << 25) != 0);
    *HAS
}

#[cfg(not(loom))]
std::thread_local! {
    static TOKEN: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static TOKEN: Cell<u64> = Cell::new(0);
}

/// A number that is this thread's alone, for the life of the process: 0 until [`assigned_token`] has been
/// called in it.
#[inline(always)]
pub(crate) fn own_token() -> u64 {
    TOKEN.with(Cell::get)
}

/// The number of [`own_token`], given out now if it was not before. They count up from 2 and are even, so
/// that locks have a bit of each to themselves.
pub(crate) fn assigned_token() -> u64 {
    // The standard library's in loom's models, too: threads get different numbers however they are run.
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    TOKEN.with(|token| {
        if token.get() == 0 {
            token.set(LAST.fetch_add(2, std::sync::atomic::Ordering::Relaxed) + 2);
        }
        token.get()
    })
}

/// Takes this thread's number away: in a child made by `fork` the thread that forked goes on as another.
#[cfg(not(any(loom, miri)))]
pub(crate) fn forget_token() {
    TOKEN.set(0);
}

/// A pause while another thread has what we want. It spins for about as long as it takes to do little with
/// it, then lets others have the processor, which the other thread may be waiting for. At last sleep: a
/// thread of real-time priority gives the processor to no lower one by yielding.
pub(crate) struct Backoff {
    #[cfg(not(loom))]
    turns: u32,
}

#[cfg(not(loom))]
const SPINS: u32 = 32;
#[cfg(not(loom))]
const YIELDS: u32 = 100;
#[cfg(not(loom))]
const NAP: std::time::Duration = std::time::Duration::from_micros(50);

#[cfg(not(loom))]
impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { turns: 0 }
    }

    pub(crate) fn wait(&mut self) {
        self.turns = self.turns.saturating_add(1);
        match self.turns {
            ..=SPINS => std::hint::spin_loop(),
            turns if turns <= SPINS + YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}

#[cfg(loom)]
impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff {}
    }

    pub(crate) fn wait(&mut self) {
        loom::thread::yield_now();
    }
}

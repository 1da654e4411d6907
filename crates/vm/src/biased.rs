//! A lock that costs its usual holder no atomic read-modify-write.
//!
//! Most locks here guard what one thread of the process uses nearly always, and any other may use. A
//! compare-exchange for each of its turns would cost that thread more than what it does in between. So the
//! first thread to lock becomes the *owner*, and enters by saying so in a word that only it writes, and then
//! looking whether it is still the owner. Any other thread that comes ends that for good. It takes the
//! ownership away, has [`membarrier`] put a fence between the owner's two steps, wherever the owner is, and
//! waits until the owner is out. From then on all threads compete by compare-exchange. It is Dekker's
//! handshake with the whole price on one side, which pays it once.
//!
//! A thread that comes seldom, and knows that the owner is elsewhere, [borrows](BiasedLock::try_borrow) the
//! value instead: it pays the price each time, and leaves the owner its privilege.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicU64, Backoff, Ordering, assigned_token, light_fence, own_token};
use crate::{forks, membarrier};

/// Values of `bias` that are no thread's token: tokens count up from 2.
const NOBODYS: u64 = u64::MAX;
const REVOKING: u64 = u64::MAX - 1;
const SHARED: u64 = u64::MAX - 2;

/// How long the owner's store may take to be seen where the kernel, which granted `membarrier` when the lock
/// was made, refuses it later.
const UNFENCED: std::time::Duration = std::time::Duration::from_millis(10);

/// In `biased` and `shared`, beside a thread's token: it is in, or tries to be. Tokens are even.
const IN: u64 = 1;

/// In `biased` and `shared`: no thread's token, and nobody is in.
const FREE: u64 = u64::MAX - 1;

/// A mutual exclusion lock around a `T`. It costs next to nothing for the first thread that locks it as long
/// as no other does, and is a spin lock that yields the processor from then on.
///
/// Any thread may call. It is not fair, does not sleep, and is not poisoned: a guard dropped by a panic
/// releases it. When the owner has exited, the next thread finds it gone, since no other thread ever bears
/// its token.
pub struct BiasedLock<T> {
    /// [`NOBODYS`], then the owner's token, then [`REVOKING`], then [`SHARED`]; never back, but that who
    /// borrows makes it [`REVOKING`] and then the owner's token again. Written only by who is in `shared`.
    bias: AtomicU64,
    /// The owner's token, with [`IN`] while it is in, or tries to be, by its bias. One look tells a thread
    /// both that it is the owner and that it is not in already. [`FREE`] before there is an owner, and once
    /// it has found that it is none any more. Written only by the owner.
    biased: AtomicU64,
    /// The token of the thread that is in by compare-exchange, whether it holds the lock or still settles
    /// whose it is, with [`IN`]; without it, or [`FREE`], when nobody is.
    shared: AtomicU64,
    /// The [generation](crate::forks::generation) that made it.
    generation: u32,
    value: UnsafeCell<T>,
}

// SAFETY: threads that share the lock reach the value one at a time, each with all that was done to it before
// in sight (argued at `enter_biased` and `settle`). So it passes from thread to thread, which `T: Send`
// allows. No two threads ever hold a reference at once, so `T: Sync` is not needed.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// The value of a [`BiasedLock`], for as long as this lives. It stays in the thread that locked.
#[must_use = "the lock is released when this is dropped"]
pub struct BiasedGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    /// The word that says that we are in.
    entered: &'a AtomicU64,
    /// The owner's word is its own to write: a guard must be dropped where it was made.
    not_send: PhantomData<*const ()>,
}

impl<T> BiasedLock<T> {
    /// A free lock without an owner yet. Where the kernel has no private expedited `membarrier` (before Linux
    /// 4.14, or filtered), it will have none, and is an ordinary spin lock.
    ///
    /// The first call in a process registers it with the kernel; later ones make no system call.
    pub fn new(value: T) -> BiasedLock<T> {
        BiasedLock::with_bias(value, if membarrier::register_private() { NOBODYS } else { SHARED })
    }

    fn with_bias(value: T, bias: u64) -> BiasedLock<T> {
        BiasedLock {
            bias: AtomicU64::new(bias),
            biased: AtomicU64::new(FREE),
            shared: AtomicU64::new(FREE),
            generation: forks::generation(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until no other thread holds the lock, spinning at first and then yielding the processor, and
    /// takes it.
    ///
    /// # Panics
    /// If this thread holds it already, in every build: it would wait for itself for ever. If this process is
    /// a child made by `fork`, and the lock its parent's: who holds it is not there to let go.
    #[inline(always)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        match self.enter_biased() {
            Some(guard) => guard,
            None => self.lock_slowly(),
        }
    }

    /// The value, for whoever has the lock alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the lock unless this thread or another holds it, or is just about to take or leave it. A child
    /// made by `fork` never gets its parent's. A thread that is not the owner ends the owner's privilege by
    /// trying, too.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        self.enter_biased().or_else(|| self.try_lock_slowly())
    }

    /// Calls `f` with the value unless another thread holds the lock, or is just about to take or leave it,
    /// and leaves the owner its privilege. It is the way for a thread that looks seldom, while the owner is
    /// elsewhere. It costs a system call each time.
    #[inline(never)]
    pub fn try_borrow<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let me = assigned_token();
        if !self.is_own() || self.is_held_by(me) || !self.enter_shared(me) {
            return None;
        }
        // Leaves however `f` ends.
        let mut borrowed = Borrowed { guard: self.guard(&self.shared), gives_back: None };
        let owner = self.bias.load(Ordering::Relaxed);
        match owner {
            // Nobody enters but by `shared`; where it is nobody's yet, nobody becomes the owner meanwhile.
            SHARED | NOBODYS => {}
            REVOKING => {
                if self.biased.load(Ordering::Acquire) & IN != 0 {
                    return None;
                }
            }
            owner => {
                self.revoke();
                borrowed.gives_back = Some(owner);
                // Acquire: as in `settle`.
                if self.biased.load(Ordering::Acquire) & IN != 0 {
                    return None;
                }
            }
        }
        Some(f(&mut borrowed.guard))
    }

    /// The owner's way in. It writes, and then looks; who revokes the bias writes `bias`, fences both
    /// threads, and then looks. So for each turn of the owner there are two cases. Either its write comes
    /// before the fence, and the revoker sees the owner in and waits until it is out. Or its look comes after
    /// the fence, and the owner sees that it is not the owner any more. They cannot both go on.
    #[inline(always)]
    fn enter_biased(&self) -> Option<BiasedGuard<'_, T>> {
        let me = own_token();
        if self.biased.load(Ordering::Relaxed) != me {
            return None;
        }
        self.biased.store(me + IN, Ordering::Relaxed);
        light_fence();
        // Acquire, so that no access to the value comes before this look.
        if self.bias.load(Ordering::Acquire) == me {
            return Some(self.guard(&self.biased));
        }
        self.biased.store(FREE, Ordering::Release);
        None
    }

    #[inline(always)]
    fn guard<'a>(&'a self, entered: &'a AtomicU64) -> BiasedGuard<'a, T> {
        BiasedGuard { lock: self, entered, not_send: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) -> BiasedGuard<'_, T> {
        assert!(
            self.is_own(),
            "a child made by fork used what is its parent's: it must open a node of its own"
        );
        let me = assigned_token();
        assert!(!self.is_held_by(me), "a thread locked what it already holds: it would wait for itself");
        let mut backoff = Backoff::new();
        while !self.enter_shared(me) {
            backoff.wait();
        }
        let mut backoff = Backoff::new();
        loop {
            if let Some(guard) = self.settle(me) {
                return guard;
            }
            backoff.wait();
        }
    }

    #[cold]
    #[inline(never)]
    fn try_lock_slowly(&self) -> Option<BiasedGuard<'_, T>> {
        let me = assigned_token();
        if !self.is_own() || self.is_held_by(me) || !self.enter_shared(me) {
            return None;
        }
        let guard = self.settle(me);
        if guard.is_none() {
            self.leave_shared();
        }
        guard
    }

    /// Whether this process has made it. In a child no thread bears the owner's token, so that each comes by
    /// here.
    fn is_own(&self) -> bool {
        self.generation == forks::known_generation()
    }

    /// Only this thread ever writes its token, and takes it away before any other gets in, so what it reads
    /// here of itself is never out of date.
    fn is_held_by(&self, me: u64) -> bool {
        [&self.biased, &self.shared].iter().any(|word| word.load(Ordering::Relaxed) == me | IN)
    }

    fn enter_shared(&self, me: u64) -> bool {
        // The look first, so that those who wait do not take the line away from who is in.
        let seen = self.shared.load(Ordering::Relaxed);
        seen & IN == 0
            && self.shared.compare_exchange(seen, me | IN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn leave_shared(&self) {
        self.shared.store(FREE, Ordering::Release);
    }

    /// The lock, for the thread that is in `shared` and therefore alone here; nothing while the owner is
    /// still in by its bias. A bias once found `SHARED` stays so, and the owner is out for good: being in
    /// `shared` is holding the lock.
    fn settle(&self, me: u64) -> Option<BiasedGuard<'_, T>> {
        match self.bias.load(Ordering::Relaxed) {
            SHARED => return Some(self.guard(&self.shared)),
            REVOKING => (),
            owner if owner == NOBODYS || owner == me => return Some(self.claim(me)),
            _ => self.revoke(),
        }
        // Acquire: what the owner did before it left. It has not come in again since: its turns before the
        // fence are in sight of this look, and those after it end without having entered.
        if self.biased.load(Ordering::Acquire) & IN != 0 {
            return None;
        }
        self.bias.store(SHARED, Ordering::Relaxed);
        Some(self.guard(&self.shared))
    }

    /// Makes this thread the owner, holding the lock. The next to enter `shared` sees both stores.
    fn claim(&self, me: u64) -> BiasedGuard<'_, T> {
        self.biased.store(me | IN, Ordering::Relaxed);
        self.bias.store(me, Ordering::Relaxed);
        self.leave_shared();
        self.guard(&self.biased)
    }

    /// After this the owner does not enter by its bias any more, and if it is in, `biased` shows it.
    fn revoke(&self) {
        self.bias.store(REVOKING, Ordering::Relaxed);
        if !membarrier::private_fence() {
            // A system call filter came between. The effect of the fence happens by itself: stores leave a
            // processor's buffer within some hundred cycles, and this is some ten million. No manual gives a
            // bound, so this is the one place that rests on how processors are built; the other way is to
            // panic.
            std::thread::sleep(UNFENCED);
        }
    }
}

/// A turn in `shared`, and the owner that gets its bias back at the end of it.
struct Borrowed<'a, T> {
    guard: BiasedGuard<'a, T>,
    gives_back: Option<u64>,
}

impl<T> Drop for Borrowed<'_, T> {
    fn drop(&mut self) {
        if let Some(owner) = self.gives_back {
            // Release: the owner, whose look is an Acquire, sees what was done to the value. One that has
            // looked meanwhile has given its bias up, and becomes the owner anew when it has come by
            // `shared`. The guard, which leaves `shared`, is dropped after this.
            self.guard.lock.bias.store(owner, Ordering::Release);
        }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Only who is in writes it now. Its own token stays, by which the owner knows itself.
        let token = self.entered.load(Ordering::Relaxed) & !IN;
        self.entered.store(token, Ordering::Release);
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value lives in the lock, which the guard borrows, and is initialised and aligned as any
        // field. A guard exists only while its thread is the one in the lock (argued at `enter_biased` and
        // `settle`), and is the only one there is: a thread that is in is refused a second. So no `&mut` to
        // the value exists but by way of this guard, which is borrowed for as long as the reference lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed for writing, so there is no other reference by way of
        // it.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> fmt::Debug for BiasedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedLock").finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
#[path = "biased_loom.rs"]
mod loom_models;

#[cfg(all(test, not(loom)))]
#[path = "biased_tests.rs"]
mod tests;

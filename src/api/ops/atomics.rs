//! Atomics on words of heaps, and of grants. All ranks of a host reach a word of a heap through the same
//! memory. For all others its owner's processor does them there, and for everybody those on words of grants.
//! So all of them, and the owner's own threads, see one order of its changes. No network's own atomics are
//! used: a card does not order its changes with those of the processor.

use std::convert::identity;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytemuck::Pod;
use engine::{Atomic, AtomicOp, Change, MemId, Place, WordType};
use vm::SharedMemory;

use crate::api::node::Node;
use crate::api::ops::event::{Begun, Event};
use crate::base::error::Error;
use crate::base::pointers::{Remote, Word};
use crate::counters::latency::Timed;
use crate::counters::thread_counters::FastOp;
use crate::transport::peers::Peer;
use crate::transport::shm::atomic::{atomic_in_heap, fetch_u32, fetch_u64, swap_u32, swap_u64};

/// The types of words that atomics work on: `u32`, `i32`, `u64`, `i64`, `f32` and `f64`. Nothing else can
/// implement it.
pub trait AtomicWord: Pod + Send + sealed::Word {}

impl<T: Pod + Send + sealed::Word> AtomicWord for T {}

mod sealed {
    use vm::SharedMemory;

    use super::{AtomicOp, WordType};

    /// A word and its bits, of words of 4 bytes as the lower half; and what the processor does with one,
    /// where it lies in mapped memory.
    pub trait Word: Sized {
        const TYPE: WordType;
        /// The word where it lies in memory.
        type Atomic;
        fn at(heap: &SharedMemory, offset: u64) -> Option<&Self::Atomic>;
        fn load(word: &Self::Atomic) -> Self;
        fn store(word: &Self::Atomic, value: Self);
        fn bits(self) -> u64;
        fn of(bits: u64) -> Self;
        fn fetch(heap: &SharedMemory, offset: u64, op: AtomicOp, value: Self) -> Option<Self>;
        fn swap(heap: &SharedMemory, offset: u64, expected: Self, new: Self) -> Option<Self>;
    }
}

/// A row a type: how it becomes bits, which atomics of its size change, and a value again.
macro_rules! words {
    ($($word:ty, $type:expr, $bits:path, $of:path, $unsigned:ty, $atomic:ty, $at:ident, $fetch:ident, $swap:ident;)*) => {$(
        impl sealed::Word for $word {
            const TYPE: WordType = $type;
            type Atomic = $atomic;

            #[inline(always)]
            fn at(heap: &SharedMemory, offset: u64) -> Option<&$atomic> {
                heap.$at(offset).ok()
            }

            #[inline(always)]
            fn load(word: &$atomic) -> $word {
                $of(word.load(Ordering::SeqCst))
            }

            #[inline(always)]
            fn store(word: &$atomic, value: $word) {
                // Once it has returned, the word has changed for all.
                word.store($bits(value), Ordering::SeqCst);
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from($bits(self))
            }

            #[inline(always)]
            fn of(bits: u64) -> $word {
                $of(bits as $unsigned)
            }

            #[inline(always)]
            fn fetch(heap: &SharedMemory, offset: u64, op: AtomicOp, value: $word) -> Option<$word> {
                if !op.is_for($type) {
                    return None;
                }
                let word = heap.$at(offset).ok()?;
                Some($of($fetch(word, $type, op, $bits(value))))
            }

            #[inline(always)]
            fn swap(heap: &SharedMemory, offset: u64, expected: $word, new: $word) -> Option<$word> {
                let word = heap.$at(offset).ok()?;
                Some($of($swap(word, $bits(expected), $bits(new))))
            }
        }
    )*};
}

words! {
    u32, WordType::U32, identity, identity, u32, AtomicU32, atomic_u32, fetch_u32, swap_u32;
    i32, WordType::I32, i32::cast_unsigned, u32::cast_signed, u32, AtomicU32, atomic_u32, fetch_u32, swap_u32;
    u64, WordType::U64, identity, identity, u64, AtomicU64, atomic_u64, fetch_u64, swap_u64;
    i64, WordType::I64, i64::cast_unsigned, u64::cast_signed, u64, AtomicU64, atomic_u64, fetch_u64, swap_u64;
    f32, WordType::F32, f32::to_bits, f32::from_bits, u32, AtomicU32, atomic_u32, fetch_u32, swap_u32;
    f64, WordType::F64, f64::to_bits, f64::from_bits, u64, AtomicU64, atomic_u64, fetch_u64, swap_u64;
}

/// Room of a caller's own for the word that an atomic gives back.
pub trait FetchRoom: Send + 'static {
    /// Takes the word from before as its bits; of a word of 4 bytes the lower half. Called once, when the
    /// event gives the room back, and not where the atomic failed.
    fn set_old(&mut self, bits: u64);
}

/// Atomics, on words of heaps ([`GlobalPtr`](crate::GlobalPtr)) and of grants
/// ([`Remote::word`](crate::Remote::word)). Any thread may call them; in handlers those that wait, only on
/// heaps that are mapped here. A process that sees an atomic's effect by an atomic of its own sees all that
/// was written before it.
///
/// Of a grant, a word from before needs the right to read, and a change the right to write: see
/// `docs/GRANTED-WORDS.md`.
impl Node {
    /// Changes the word by an operation with `value`, and returns the word from before.
    ///
    /// # Errors
    /// [`Error::NoSuchAtomic`] for an operation on bits of a floating-point number; [`Error::Unaligned`] for
    /// a word that does not lie at a multiple of its size. In a grant the owner's address counts. For the
    /// rest as for [`Node::put_bytes`].
    #[inline]
    pub fn fetch<T: AtomicWord>(&self, word: impl Into<Word<T>>, op: AtomicOp, value: T) -> Result<T, Error> {
        let word = word.into();
        match self.on_mapped(word, |heap, at| T::fetch(heap, at, op, value)) {
            Some(old) => Ok(old),
            None => self.atomic(word, Atomic::new(T::TYPE, Change::Apply(op, value.bits()))).map(T::of),
        }
    }

    /// Adds `value`, wrapping, and returns the word from before.
    ///
    /// # Errors
    /// As for [`Node::fetch`].
    #[inline]
    pub fn fetch_add<T: AtomicWord>(&self, word: impl Into<Word<T>>, value: T) -> Result<T, Error> {
        let word = word.into();
        self.fetch(word, AtomicOp::Add, value)
    }

    /// Reads the word: whole, and in one order with all its changes by atomics. Where [`Node::get`] asks
    /// nobody, this asks the owner of a far word by a message; see `docs/ATOMICS.md`.
    ///
    /// # Errors
    /// As for [`Node::fetch`].
    #[inline]
    pub fn atomic_load<T: AtomicWord>(&self, word: impl Into<Word<T>>) -> Result<T, Error> {
        let word = word.into();
        match self.on_mapped(word, |heap, at| T::at(heap, at).map(T::load)) {
            Some(value) => Ok(value),
            None => self.atomic(word, Atomic::load(T::TYPE)).map(T::of),
        }
    }

    /// Replaces the word: whole, and in one order with all its changes by atomics. It is done when this
    /// returns. Where [`Node::put`] asks nobody, this asks the owner of a far word by a message.
    ///
    /// # Errors
    /// As for [`Node::fetch`].
    #[inline]
    pub fn atomic_store<T: AtomicWord>(&self, word: impl Into<Word<T>>, value: T) -> Result<(), Error> {
        let word = word.into();
        match self.store_mapped(word, value) {
            Some(()) => Ok(()),
            None => self.atomic(word, Atomic::store(T::TYPE, value.bits()).without_old()).map(|_| ()),
        }
    }

    /// Stores `new` if the word holds `expected`, and returns the word from before: the swap was made exactly
    /// if that is `expected`, bit by bit. Of floating-point numbers 0.0 is not -0.0 then, and a NaN is
    /// itself: compare their `to_bits`.
    ///
    /// # Errors
    /// As for [`Node::fetch`].
    #[inline]
    pub fn compare_swap<T: AtomicWord>(
        &self,
        word: impl Into<Word<T>>,
        expected: T,
        new: T,
    ) -> Result<T, Error> {
        let word = word.into();
        match self.on_mapped(word, |heap, at| T::swap(heap, at, expected, new)) {
            Some(old) => Ok(old),
            None => {
                let change = Change::CompareSwap { expected: expected.bits(), new: new.bits() };
                self.atomic(word, Atomic::new(T::TYPE, change)).map(T::of)
            }
        }
    }

    /// Changes the word by an operation with `value`, and forgets: [`Node::quiet`] says when that is done,
    /// and whether it failed. Applied once, or not at all if that fails. May be called in handlers, whoever
    /// the peer is, once it is connected.
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::fetch`].
    // Where `op` is known it is one instruction. A call instead would store registers, and for those stores
    // the next update's line is waited for, one after the other.
    #[inline(always)]
    pub fn update_nbi<T: AtomicWord>(
        &self,
        word: impl Into<Word<T>>,
        op: AtomicOp,
        value: T,
    ) -> Result<(), Error> {
        let word = word.into();
        match self.on_mapped(word, |heap, at| T::fetch(heap, at, op, value)) {
            Some(_) => Ok(()),
            None => self.forget_update(word, op, value),
        }
    }

    /// Replaces the word as [`Node::atomic_store`] does, and forgets: [`Node::quiet`] says when that is done,
    /// and whether it failed. For the rest as [`Node::update_nbi`].
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::fetch`].
    #[inline]
    pub fn atomic_store_nbi<T: AtomicWord>(&self, word: impl Into<Word<T>>, value: T) -> Result<(), Error> {
        let word = word.into();
        match self.store_mapped(word, value) {
            Some(()) => Ok(()),
            None => self.forget_update(word, AtomicOp::Swap, value),
        }
    }

    /// [`Node::update_nbi`] of a word that is not mapped here, or may not be changed.
    #[cold]
    #[inline(never)]
    fn forget_update<T: AtomicWord>(&self, word: Word<T>, op: AtomicOp, value: T) -> Result<(), Error> {
        let atomic = Atomic::new(T::TYPE, Change::Apply(op, value.bits())).without_old();
        if let Begun::UnderWay(op) = self.start_atomic(word, atomic)? {
            self.core.engine().detach(op);
        }
        Ok(())
    }

    /// Changes the word by an operation with `value`, without its value from before: the event tells when
    /// that is done, and whether it failed. For the rest as [`Node::update_nbi`].
    pub fn update_nb<T: AtomicWord>(&self, word: impl Into<Word<T>>, op: AtomicOp, value: T) -> Event {
        let word = word.into();
        let atomic = Atomic::new(T::TYPE, Change::Apply(op, value.bits())).without_old();
        let started = self.start_atomic(word, atomic);
        Event::new(self, word.peer(), started.map(Begun::op), ())
    }

    /// Replaces the word as [`Node::atomic_store`] does: the event tells when that is done, and whether it
    /// failed. For the rest as [`Node::update_nbi`].
    pub fn atomic_store_nb<T: AtomicWord>(&self, word: impl Into<Word<T>>, value: T) -> Event {
        let word = word.into();
        self.update_nb(word, AtomicOp::Swap, value)
    }

    /// Reads the word as [`Node::atomic_load`] does; the event gives it in place of a buffer, `None` where
    /// that failed. For the rest as [`Node::fetch_nb`].
    ///
    /// # Errors
    /// The event's are those of [`Node::fetch`].
    pub fn atomic_load_nb<T: AtomicWord>(&self, word: impl Into<Word<T>>) -> Event<Option<T>> {
        let word = word.into();
        self.follow_fetch(word, Atomic::load(T::TYPE).change)
    }

    /// Changes the word by an operation with `value`; the event gives the word from before in place of a
    /// buffer, `None` where that failed. Where the word is mapped here, it is complete at once. Applied once,
    /// or not at all if that fails; after a deadline, a loss or a cancel, perhaps. May be called in handlers,
    /// whoever the peer is, once it is connected.
    ///
    /// # Errors
    /// The event's are those of [`Node::fetch`].
    pub fn fetch_nb<T: AtomicWord>(
        &self,
        word: impl Into<Word<T>>,
        op: AtomicOp,
        value: T,
    ) -> Event<Option<T>> {
        let word = word.into();
        self.follow_fetch(word, Change::Apply(op, value.bits()))
    }

    /// Stores `new` if the word holds `expected`, as [`Node::compare_swap`] does; the event gives the word
    /// from before. For the rest as [`Node::fetch_nb`].
    ///
    /// # Errors
    /// The event's are those of [`Node::fetch`].
    pub fn compare_swap_nb<T: AtomicWord>(
        &self,
        word: impl Into<Word<T>>,
        expected: T,
        new: T,
    ) -> Event<Option<T>> {
        let word = word.into();
        self.follow_fetch(word, Change::CompareSwap { expected: expected.bits(), new: new.bits() })
    }

    /// As [`Node::atomic_load_nb`], with a room of the caller's own for the word.
    pub fn atomic_load_nb_into<T: AtomicWord, R: FetchRoom>(
        &self,
        word: impl Into<Word<T>>,
        room: R,
    ) -> Event<R> {
        let word = word.into();
        self.follow_fetch_into(word, Atomic::load(T::TYPE).change, room)
    }

    /// As [`Node::fetch_nb`], with a room of the caller's own for the word from before: so one queue takes
    /// atomics on words of all types, and other operations.
    pub fn fetch_nb_into<T: AtomicWord, R: FetchRoom>(
        &self,
        word: impl Into<Word<T>>,
        op: AtomicOp,
        value: T,
        room: R,
    ) -> Event<R> {
        let word = word.into();
        self.follow_fetch_into(word, Change::Apply(op, value.bits()), room)
    }

    /// As [`Node::compare_swap_nb`], with a room as that of [`Node::fetch_nb_into`].
    pub fn compare_swap_nb_into<T: AtomicWord, R: FetchRoom>(
        &self,
        word: impl Into<Word<T>>,
        expected: T,
        new: T,
        room: R,
    ) -> Event<R> {
        let word = word.into();
        self.follow_fetch_into(word, Change::CompareSwap { expected: expected.bits(), new: new.bits() }, room)
    }

    fn follow_fetch<T: AtomicWord>(&self, word: Word<T>, change: Change) -> Event<Option<T>> {
        let old_into = |into: &mut Option<T>, old: u64| *into = Some(T::of(old));
        Event::of_fetch(
            self,
            word.peer(),
            self.start_atomic(word, Atomic::new(T::TYPE, change)),
            (None, old_into),
        )
    }

    fn follow_fetch_into<T: AtomicWord, R: FetchRoom>(
        &self,
        word: Word<T>,
        change: Change,
        room: R,
    ) -> Event<R> {
        Event::of_fetch(
            self,
            word.peer(),
            self.start_atomic(word, Atomic::new(T::TYPE, change)),
            (room, R::set_old),
        )
    }

    /// Does it if the word is mapped here, or starts it.
    fn start_atomic<T: AtomicWord>(&self, word: Word<T>, atomic: Atomic) -> Result<Begun, Error> {
        if let Some(old) = self.atomic_here(word, atomic)? {
            return Ok(Begun::Done(old));
        }
        let Remote { peer, place } = word.remote();
        let begun = self.core.begin(Timed::Atomic);
        let op = self.engine().atomic(peer, place, atomic, self.deadline());
        if let Some(begun) = begun {
            self.core.follow(Timed::Atomic, begun, op);
        }
        Ok(Begun::UnderWay(op))
    }

    /// Replaces the word, if it is mapped here.
    #[inline(always)]
    fn store_mapped<T: AtomicWord>(&self, word: Word<T>, value: T) -> Option<()> {
        self.on_mapped(word, |heap, offset| T::at(heap, offset).map(|word| T::store(word, value)))
    }

    /// Does it if the peer has been talked to, and the word is one of its mapped heap.
    #[inline(always)]
    fn on_mapped<T: AtomicWord, U>(
        &self,
        word: Word<T>,
        apply: impl FnOnce(&SharedMemory, u64) -> Option<U>,
    ) -> Option<U> {
        let Remote { peer, place: Place { mem, offset } } = word.remote();
        if mem != MemId::Heap {
            return None;
        }
        let (size, peer) = (T::TYPE.size(), self.core.near.get(peer)?);
        let done = apply(peer.heap_up_to(offset.checked_add(size)?)?, offset)?;
        self.core.counted.thread_counters.add(fast_op(size), size);
        Some(done)
    }

    #[cold]
    fn atomic<T: AtomicWord>(&self, word: Word<T>, atomic: Atomic) -> Result<u64, Error> {
        match self.atomic_here(word, atomic)? {
            Some(old) => Ok(old),
            None => self.atomic_by_message(word.remote(), atomic),
        }
    }

    /// Does it if the word is mapped here; `None` where its owner has to, as it has for each word of a grant.
    fn atomic_here<T>(&self, word: Word<T>, atomic: Atomic) -> Result<Option<u64>, Error> {
        if let Some(op) = atomic.impossible() {
            return Err(Error::NoSuchAtomic { op, word: atomic.word });
        }
        let Remote { peer, place: Place { mem, offset } } = word.remote();
        // Where in its owner's memory a grant begins, its owner alone knows.
        let is_granted = matches!(mem, MemId::Grant(_));
        if !is_granted && !offset.is_multiple_of(atomic.size()) {
            return Err(Error::Unaligned { peer, offset, size: atomic.size() });
        }
        let known = self.core.peers.get(peer, self.timeout)?;
        let near = match known {
            Peer::Near(near) if mem == MemId::Heap => near,
            _ => {
                if is_granted {
                    self.core.peers.request_progress(known);
                }
                return Ok(None);
            }
        };
        let old = atomic_in_heap(near, offset, atomic).map_err(|error| self.core.error_of(error))?;
        self.core.counted.thread_counters.add(fast_op(atomic.size()), atomic.size());
        Ok(Some(old))
    }

    /// The owner's processor does it, so that the word has one order of changes, whoever makes them.
    #[cold]
    fn atomic_by_message(&self, Remote { peer, place }: Remote, atomic: Atomic) -> Result<u64, Error> {
        self.may_wait("an atomic by message")?;
        self.core.counted.latencies.time(Timed::Atomic, || {
            let op = self.engine().atomic(peer, place, atomic, self.deadline());
            self.finish(op)
        })
    }
}

/// The tally of an atomic on a mapped word of that size.
#[inline(always)]
const fn fast_op(size: u64) -> FastOp {
    if size == 4 { FastOp::Atomic4Mapped } else { FastOp::Atomic8Mapped }
}

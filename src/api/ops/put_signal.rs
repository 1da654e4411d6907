//! Puts that signal: bytes, and then a change of a counter at their target, by which it knows that they are
//! there. How that is waited for: [`wait_signal`](super::wait_signal).

use bytemuck::Pod;
use engine::{Atomic, AtomicOp, Change, Direction, Mechanism, MemId, Place, Rank, WordType};

use crate::api::node::Node;
use crate::api::ops::buffer::{PutBuffer, source};
use crate::api::ops::event::Event;
use crate::api::ops::rma::wraps;
use crate::base::error::Error;
use crate::base::pointers::{Remote, Word};
use crate::counters::latency::Timed;
use crate::counters::thread_counters::FastOp;
use crate::transport::peers::{Near, Peer};
use crate::transport::shm::atomic::{atomic_in_heap, fetch_u64};
use crate::transport::shm::{Lent, PieceList};

/// How a counter of the target's, in its heap or in what it has granted, changes once the bytes of a put are
/// in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    counter: Word<u64>,
    op: AtomicOp,
    value: u64,
}

impl Signal {
    /// The counter is increased by `value`, wrapping.
    #[inline]
    pub fn add(counter: impl Into<Word<u64>>, value: u64) -> Signal {
        Signal { counter: counter.into(), op: AtomicOp::Add, value }
    }

    /// The counter is set to `value`.
    #[inline]
    pub fn set(counter: impl Into<Word<u64>>, value: u64) -> Signal {
        Signal { counter: counter.into(), op: AtomicOp::Swap, value }
    }

    #[inline]
    const fn atomic(self) -> Atomic {
        Atomic::new(WordType::U64, Change::Apply(self.op, self.value)).without_old()
    }

    /// Where in the target's heap the counter is. `None`: it is in a grant, and its owner's to change.
    #[inline]
    fn in_heap(self) -> Option<u64> {
        let Place { mem, offset } = self.counter.remote().place;
        (mem == MemId::Heap).then_some(offset)
    }
}

/// Puts that signal. A process that sees the counter's new value by [`Node::wait_signal`], or by an atomic,
/// sees the bytes. Several calls that are not complete yet may arrive in any order, unless
/// [`Node::fence`] is called in between. Any thread may call these.
impl Node {
    /// Puts values anywhere in a peer's memory, then changes a counter of its, and wakes whoever waits for
    /// that there. Both are complete at return.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] for a counter of another rank than the bytes' target; [`Error::Unaligned`] for
    /// one that is not 8-byte aligned; for the rest as for [`Node::put_bytes`]. Of a counter in a grant its
    /// owner says all that, after the bytes have been put. The counter has changed only where this is `Ok`,
    /// or after [`Error::Timeout`] and [`Error::PeerLost`] perhaps; the bytes may have been put in any case.
    #[inline]
    pub fn put_signal<T: Pod>(&self, to: impl Into<Remote>, from: &[T], signal: Signal) -> Result<(), Error> {
        let (to, from): (Remote, &[u8]) = (to.into(), bytemuck::cast_slice(from));
        if self.signal_on_mapped(to, from, signal).is_some() {
            return Ok(());
        }
        self.put_signal_elsewhere(to, from, signal)
    }

    #[cold]
    fn put_signal_elsewhere(&self, to: Remote, from: &[u8], signal: Signal) -> Result<(), Error> {
        let peer = self.target(to, signal)?;
        if self.signal_here(peer, to, Lent::source(from), signal)? {
            return Ok(());
        }
        self.may_wait("a put with a signal by message")?;
        self.core.counted.latencies.time(Timed::Put, || {
            let op = self.start_signal(peer, to, Lent::source(from), signal, None)?;
            self.finish(op).map(|_| ())
        })
    }

    /// Starts a put with a signal from a buffer that the event gives back; the event is complete once the
    /// counter has changed. Where all can be done at once, it has been done when this returns.
    pub fn put_signal_nb<B: PutBuffer>(
        &self,
        to: impl Into<Remote>,
        mut buffer: B,
        signal: Signal,
    ) -> Event<B> {
        let to = to.into();
        let from = source(&mut buffer);
        let started = self.target(to, signal).and_then(|peer| {
            if self.signal_here(peer, to, from, signal)? {
                return Ok(None);
            }
            self.follow_signal(peer, to, from, signal).map(Some)
        });
        Event::new(self, to.peer(), started, buffer)
    }

    /// Puts with a signal, and forgets: the source may be reused at return, and [`Node::quiet`] says when the
    /// counter has changed, and whether that failed.
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::put_signal`].
    pub fn put_signal_nbi<T: Pod>(
        &self,
        to: impl Into<Remote>,
        from: &[T],
        signal: Signal,
    ) -> Result<(), Error> {
        let (to, from): (Remote, &[u8]) = (to.into(), bytemuck::cast_slice(from));
        let peer = self.target(to, signal)?;
        if !self.signal_here(peer, to, Lent::source(from), signal)? {
            let bytes = from.to_vec();
            let op = self.follow_signal(peer, to, Lent::source(&bytes), signal)?;
            drop(Event::new(self, to.peer(), Ok(Some(op)), bytes));
        }
        Ok(())
    }

    /// The peer that the bytes go to, once the counter is known to be one of its.
    #[inline]
    fn target(&self, to: Remote, signal: Signal) -> Result<Peer<'_>, Error> {
        check(signal.counter, to.peer())?;
        self.core.peers.get(to.peer(), self.timeout)
    }

    /// Does it at once, if bytes and counter lie in the mapped heap of a peer that has been talked to.
    #[inline]
    fn signal_on_mapped(&self, to: Remote, from: &[u8], signal: Signal) -> Option<()> {
        if to.place.mem != MemId::Heap || signal.counter.peer() != to.peer() {
            return None;
        }
        let (peer, at) = (self.core.near.get(to.peer())?, signal.in_heap()?);
        let counter = peer.heap_up_to(at.checked_add(8)?)?.atomic_u64(at).ok()?;
        let end = to.place.offset.checked_add(from.len() as u64)?;
        peer.heap_up_to(end)?.copy_in(to.place.offset, from).ok()?;
        fetch_u64(counter, WordType::U64, signal.op, signal.value);
        self.wake_there(peer);
        self.count(Direction::Put, Mechanism::Mapped, from.len() as u64);
        self.core.counted.thread_counters.add(FastOp::Atomic8Mapped, 8);
        Some(())
    }

    /// Wakes who waits for the counter. In this process one of them may sleep on the network.
    #[inline]
    fn wake_there(&self, peer: &Near) {
        peer.bell.poke_after_change();
        if peer.rank == self.core.peers.own().rank {
            self.core.ring_wakeup();
        }
    }

    /// Does it at once, if the peer's memory can be reached from here. Returns whether it is done.
    fn signal_here(&self, peer: Peer<'_>, to: Remote, from: Lent<'_>, signal: Signal) -> Result<bool, Error> {
        let (Peer::Near(near), Some(counter)) = (peer, signal.in_heap()) else { return Ok(false) };
        if !self.copy_now(peer, to, from)? {
            return Ok(false);
        }
        atomic_in_heap(near, counter, signal.atomic()).map_err(|error| self.core.error_of(error))?;
        self.core.counted.thread_counters.add(FastOp::Atomic8Mapped, 8);
        self.wake_there(near);
        Ok(true)
    }

    /// Starts it, and takes its time if it is its turn.
    fn follow_signal(
        &self,
        peer: Peer<'_>,
        to: Remote,
        from: Lent<'_>,
        signal: Signal,
    ) -> Result<engine::OpId, Error> {
        let begun = self.core.begin(Timed::Put);
        let op = self.start_signal(peer, to, from, signal, self.deadline())?;
        if let Some(begun) = begun {
            self.core.follow(Timed::Put, begun, op);
        }
        Ok(op)
    }

    #[cold]
    fn start_signal(
        &self,
        peer: Peer<'_>,
        to: Remote,
        from: Lent<'_>,
        signal: Signal,
        deadline: Option<engine::Nanos>,
    ) -> Result<engine::OpId, Error> {
        let mut list = PieceList::new(Direction::Put);
        list.push(to.place, from).ok_or_else(|| wraps(to, from.len()))?;
        self.core.peers.request_progress(peer);
        let (rank, counter) = (peer.rank(), signal.counter.remote().place);
        let op = self.engine().transfer_then_signal(rank, list.pieces(), counter, signal.atomic(), deadline);
        if let Peer::Near(itself) = peer
            && rank == self.core.peers.own().rank
        {
            // It has changed the word itself, and no message told of that.
            self.wake_there(itself);
        }
        Ok(op)
    }
}

/// Whether a counter is one of that rank's.
#[inline]
pub(crate) fn check<T>(counter: Word<T>, rank: Rank) -> Result<(), Error> {
    let Remote { peer, place: Place { mem, offset } } = counter.remote();
    let size = size_of::<T>() as u64;
    if peer != rank {
        return Err(Error::Elsewhere { peer, expected: rank });
    }
    // Of a grant's only its owner knows the address.
    if mem == MemId::Heap && !offset.is_multiple_of(size) {
        return Err(Error::Unaligned { peer, offset, size });
    }
    Ok(())
}

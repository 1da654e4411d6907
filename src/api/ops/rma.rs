//! Put and get.
//!
//! Blocking calls are complete at the target when they return. The heap is reached by plain copies; other
//! memory by one cross-memory attach a call, or through messages where that is forbidden.

use bytemuck::Pod;
use engine::path::Path;
use engine::{Direction, Mechanism, MemId, Place};

use crate::api::node::Node;
use crate::api::ops::buffer::{GetBuffer, PutBuffer, source, target};
use crate::api::ops::event::Event;
use crate::api::ops::mapped::at_once;
use crate::base::error::Error;
use crate::base::pointers::{GlobalPtr, Remote};
use crate::counters::latency::Timed;
use crate::counters::thread_counters::FastOp;
use crate::transport::peers::{Near, Peer};
use crate::transport::shm::control::PAYLOAD_MAX;
use crate::transport::shm::copy;
use crate::transport::shm::copy::CopyError;
use crate::transport::shm::{Lent, PieceList};

/// Bytes from which a piece of private memory that goes by message goes through the owner's heap, where that
/// is reached one-sided: below, the messages that this takes cost more.
/// [`staged_min`](engine::path::Limits::staged_min) of this library.
pub const STAGED_MIN: u64 = engine::node::STAGED_CHUNKS_MIN * PAYLOAD_MAX as u64;

/// One piece of a scattered put.
#[derive(Clone, Copy, Debug)]
pub struct PutPiece<'a> {
    /// Where the bytes go.
    pub to: Remote,
    /// The bytes.
    pub from: &'a [u8],
}

/// One piece of a scattered get.
#[derive(Debug)]
pub struct GetPiece<'a> {
    /// Where the bytes come from.
    pub from: Remote,
    /// Where they go.
    pub into: &'a mut [u8],
}

/// Puts and gets. Any thread may call them. Blocking ones end by their own when the peer is lost or the
/// node's timeout passes ([`Node::within`]); in a handler those that would have to wait end with
/// [`Error::InHandler`].
impl Node {
    /// Stores `value` in a peer's heap.
    ///
    /// # Errors
    /// [`Error::Fault`] outside the live part of the heap, [`Error::PeerLost`], [`Error::NoSuchPeer`], and at
    /// the first contact with the peer what [`Node::connect`] says.
    #[inline(always)]
    pub fn put<T: Pod>(&self, to: GlobalPtr<T>, value: T) -> Result<(), Error> {
        let size = size_of::<T>() as u64;
        if let Some(peer) = self.core.near.get(to.peer())
            && let Some(heap) = to.offset().checked_add(size).and_then(|end| peer.heap_up_to(end))
            && heap.store(to.offset(), value).is_ok()
        {
            debug_assert_eq!(at_once(peer, MemId::Heap, Direction::Put, size), Path::Mapped);
            self.core.counted.thread_counters.add(FastOp::put_mapped(size), size);
            return Ok(());
        }
        self.place_out_of_line(to.into(), Lent::source(bytemuck::bytes_of(&value)))
    }

    /// Loads a value from a peer's heap.
    ///
    /// # Errors
    /// As for [`Node::put`].
    #[inline(always)]
    pub fn get<T: Pod>(&self, from: GlobalPtr<T>) -> Result<T, Error> {
        let size = size_of::<T>() as u64;
        if let Some(peer) = self.core.near.get(from.peer())
            && let Some(heap) = from.offset().checked_add(size).and_then(|end| peer.heap_up_to(end))
            && let Ok(value) = heap.load(from.offset())
        {
            debug_assert_eq!(at_once(peer, MemId::Heap, Direction::Get, size), Path::Mapped);
            self.core.counted.thread_counters.add(FastOp::get_mapped(size), size);
            return Ok(value);
        }
        let mut value = T::zeroed();
        self.place_out_of_line(from.into(), Lent::target(bytemuck::bytes_of_mut(&mut value)))?;
        Ok(value)
    }

    /// Stores a slice in a peer's heap.
    ///
    /// # Errors
    /// As for [`Node::put`].
    #[inline]
    pub fn put_slice<T: Pod>(&self, to: GlobalPtr<T>, from: &[T]) -> Result<(), Error> {
        if self.put_mapped(to.into(), from) {
            return Ok(());
        }
        self.put_bytes(to, bytemuck::cast_slice(from))
    }

    /// Loads a slice from a peer's heap.
    ///
    /// # Errors
    /// As for [`Node::put`].
    pub fn get_slice<T: Pod>(&self, from: GlobalPtr<T>, into: &mut [T]) -> Result<(), Error> {
        self.get_bytes(from, bytemuck::cast_slice_mut(into))
    }

    /// Puts bytes anywhere in a peer's memory.
    ///
    /// # Errors
    /// As for [`Node::put`]; besides, [`Error::Fault`] where the peer has no writable memory,
    /// [`Error::Timeout`], and [`Error::InHandler`] where the bytes would have to go by message.
    pub fn put_bytes(&self, to: impl Into<Remote>, from: &[u8]) -> Result<(), Error> {
        self.place(to.into(), Lent::source(from))
    }

    /// Gets bytes from anywhere in a peer's memory.
    ///
    /// # Errors
    /// As for [`Node::put_bytes`]; the target's contents are then unspecified.
    pub fn get_bytes(&self, from: impl Into<Remote>, into: &mut [u8]) -> Result<(), Error> {
        self.place(from.into(), Lent::target(into))
    }

    /// Puts many pieces in one call: each run of pieces for the same peer takes one system call for all its
    /// private memory (for every 1,024 pieces), and none for its heap.
    ///
    /// # Errors
    /// As for [`Node::put_bytes`], for the first run that fails; what the failed run has written is
    /// unspecified.
    pub fn put_list(&self, pieces: &[PutPiece<'_>]) -> Result<(), Error> {
        let pieces = pieces.iter().map(|piece| (piece.to, Lent::source(piece.from)));
        self.scatter(Direction::Put, pieces, &mut Rest::Awaited)
    }

    /// Puts many pieces and forgets them: the sources may be reused at return, and [`Node::quiet`] says when
    /// the bytes are in place, and whether that failed. Data that goes by message is copied first.
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::put_list`].
    pub fn put_list_nbi(&self, pieces: &[PutPiece<'_>]) -> Result<(), Error> {
        let pieces = pieces.iter().map(|piece| (piece.to, Lent::source(piece.from)));
        self.scatter(Direction::Put, pieces, &mut Rest::Forgotten)
    }

    /// Gets many pieces in one call; as [`Node::put_list`].
    ///
    /// # Errors
    /// As for [`Node::put_list`].
    pub fn get_list(&self, pieces: &mut [GetPiece<'_>]) -> Result<(), Error> {
        let pieces = pieces.iter_mut().map(|piece| (piece.from, Lent::target(piece.into)));
        self.scatter(Direction::Get, pieces, &mut Rest::Awaited)
    }

    /// Starts a put from a buffer that the event gives back. Where the copy can be made at once, it has been
    /// made when this returns.
    pub fn put_nb<B: PutBuffer>(&self, to: impl Into<Remote>, mut buffer: B) -> Event<B> {
        let to = to.into();
        let started = self.start_one(to, source(&mut buffer));
        Event::new(self, to.peer, started, buffer)
    }

    /// Starts a get into a buffer that the event gives back; as [`Node::put_nb`].
    pub fn get_nb<B: GetBuffer>(&self, from: impl Into<Remote>, mut buffer: B) -> Event<B> {
        let from = from.into();
        let started = self.start_one(from, target(&mut buffer));
        Event::of_get(self, from.peer, started, buffer)
    }

    /// Puts and forgets: the source may be reused at return, and [`Node::quiet`] says when the bytes are in
    /// place at the target, and whether that failed.
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::put_bytes`].
    #[inline]
    pub fn put_nbi<T: Pod>(&self, to: impl Into<Remote>, from: &[T]) -> Result<(), Error> {
        let to = to.into();
        if let [value] = from
            && size_of::<T>() <= 8
        {
            // An argument by reference is stored first, whether the call is made or not: so it goes by value.
            return match self.put_mapped(to, &[*value]) {
                true => Ok(()),
                false => self.put_value_nbi(to.peer, to.place.mem, to.place.offset, *value),
            };
        }
        match self.put_mapped(to, from) {
            true => Ok(()),
            false => self.put_bytes_nbi(to, bytemuck::cast_slice(from)),
        }
    }

    #[inline(never)]
    fn put_value_nbi<T: Pod>(
        &self,
        peer: engine::Rank,
        mem: MemId,
        offset: u64,
        value: T,
    ) -> Result<(), Error> {
        self.put_bytes_nbi(Remote { peer, place: Place::new(mem, offset) }, bytemuck::bytes_of(&value))
    }

    /// [`Node::put_nbi`] of what does not lie in a mapped heap, or may not be put there.
    #[inline(never)]
    fn put_bytes_nbi(&self, to: Remote, from: &[u8]) -> Result<(), Error> {
        let peer = self.connected(to.peer)?;
        if !self.copy_now(peer, to, Lent::source(from))? {
            drop(self.put_nb::<Vec<u8>>(to, from.to_vec()));
        }
        Ok(())
    }

    /// As [`Node::place`], for callers whose fast path is inlined into the program.
    #[inline(never)]
    pub(crate) fn place_out_of_line(&self, remote: Remote, local: Lent<'_>) -> Result<(), Error> {
        self.place(remote, local)
    }

    /// Moves one piece, to its end.
    #[inline]
    fn place(&self, remote: Remote, local: Lent<'_>) -> Result<(), Error> {
        if self.is_moved_mapped(remote, local) {
            return Ok(());
        }
        let peer = self.connected(remote.peer)?;
        // A copy that this thread makes is not cut off once it has begun.
        if let Peer::Near(_) = peer
            && self.is_copied_apart(local.len())
            && self.timeout.is_some()
            && self.may_wait("a copy").is_ok()
        {
            return self.by_engine(peer, &one(remote, local)?);
        }
        match self.copy_now(peer, remote, local)? {
            true => Ok(()),
            false => self.by_engine(peer, &one(remote, local)?),
        }
    }

    /// Starts to move one piece. `None`: it has been moved at once.
    pub(crate) fn start_one(&self, remote: Remote, local: Lent<'_>) -> Result<Option<engine::OpId>, Error> {
        let peer = self.connected(remote.peer)?;
        match !self.is_copied_apart(local.len()) && self.copy_now(peer, remote, local)? {
            true => Ok(None),
            false => Ok(Some(self.start(peer, &one(remote, local)?))),
        }
    }

    /// Copies one piece now, and counts it, where this process's own hands reach the memory. `false`: it is
    /// the engine's.
    #[inline]
    pub(crate) fn copy_now(&self, peer: Peer<'_>, remote: Remote, local: Lent<'_>) -> Result<bool, Error> {
        self.copy_timed(peer, remote, local, Some(timed(local.direction())))
    }

    /// As [`Node::copy_now`]. Where the kernel copies, its time counts as what of `what` takes.
    #[inline(always)]
    pub(crate) fn copy_timed(
        &self,
        peer: Peer<'_>,
        remote: Remote,
        local: Lent<'_>,
        what: Option<Timed>,
    ) -> Result<bool, Error> {
        let Peer::Near(near) = peer else { return Ok(false) };
        let place = near.best(remote.place, local.len());
        let path = at_once(near, place.mem, local.direction(), local.len() as u64);
        match path {
            Path::Mapped => copy::in_heap(near, place, local).map_err(|error| self.core.error_of(error))?,
            Path::Attached => {
                let copy = || copy::by_attach(near, place, local);
                let copied = match what {
                    Some(what) => self.core.counted.latencies.time(what, copy),
                    None => copy(),
                };
                match copied {
                    Ok(()) => {}
                    Err(CopyError::Failed(error)) => return Err(self.core.error_of(error)),
                    // Its rights have gone this moment.
                    Err(CopyError::Unreachable(_)) => return Ok(false),
                }
            }
            _ => return self.copy_by_address(near, place, local),
        }
        self.count(local.direction(), path.mechanism(), local.len() as u64);
        Ok(true)
    }

    /// Copies one piece by the grant that covers its address, where that is known. `false`: the engine does.
    #[cold]
    fn copy_by_address(&self, near: &Near, place: Place, local: Lent<'_>) -> Result<bool, Error> {
        if !self.knows_grant(near, place, local.len() as u64, local.direction(), true) {
            return Ok(false);
        }
        self.done_by_address(copy::by_address(near, place, local), local.direction(), local.len() as u64)
    }

    /// As [`Node::copy_by_address`], for all pieces of a list.
    #[cold]
    fn copy_list_by_address(&self, near: &Near, list: &PieceList<'_>) -> Result<bool, Error> {
        const ASKS: usize = 64;
        let (direction, mut unknown) = (list.direction(), 0);
        for piece in list.pieces().iter().filter(|piece| piece.remote.in_grant().is_none()) {
            let known = self.knows_grant(near, piece.remote, piece.len, direction, unknown < ASKS);
            unknown += usize::from(!known);
        }
        if unknown > 0 {
            return Ok(false);
        }
        self.done_by_address(list.by_address(near), direction, list.bytes())
    }

    /// Whether a grant is known that covers memory which is named by its address. If not, and `may_ask`, the
    /// peer is asked for one.
    fn knows_grant(&self, near: &Near, place: Place, len: u64, direction: Direction, may_ask: bool) -> bool {
        let known = near.knows_grant(place, len, direction, may_ask);
        if known == Err(true) {
            self.engine().ask_for_grant(near.rank, place.offset, len, direction);
        }
        known.is_ok()
    }

    /// The end of a copy by grants that are known by address. `false`: they are not there any more.
    fn done_by_address(
        &self,
        copied: Result<(), CopyError>,
        direction: Direction,
        bytes: u64,
    ) -> Result<bool, Error> {
        match copied {
            Ok(()) => self.count(direction, Mechanism::Cma, bytes),
            Err(CopyError::Failed(error)) => return Err(self.core.error_of(error)),
            Err(CopyError::Unreachable(_)) => return Ok(false),
        }
        Ok(true)
    }

    /// Moves pieces, by one transfer for each run of them with the same peer: those in near heaps at once, as
    /// they come, the others by one list. `rest` says what becomes of a list that goes by message.
    pub(crate) fn scatter<'a>(
        &self,
        direction: Direction,
        pieces: impl Iterator<Item = (Remote, Lent<'a>)>,
        rest: &mut Rest<'_>,
    ) -> Result<(), Error> {
        let mut pieces = pieces.peekable();
        // Other transfers are this thread's to copy, which lends the memory.
        let may_be_apart = matches!(rest, Rest::Started(_));
        while let Some((first, _)) = pieces.peek() {
            let peer = self.connected(first.peer)?;
            let (mut list, mut mapped) = (PieceList::new(direction), None);
            while let Some((remote, local)) = pieces.next_if(|(remote, _)| remote.peer == peer.rank()) {
                let best = peer.near().map(|near| (near, near.best(remote.place, local.len())));
                match best {
                    Some((near, place))
                        if place.mem == MemId::Heap
                            && !(may_be_apart && self.is_copied_apart(local.len())) =>
                    {
                        copy::in_heap(near, place, local).map_err(|error| self.core.error_of(error))?;
                        mapped = Some(mapped.unwrap_or(0) + local.len() as u64);
                    }
                    _ => list.push(remote.place, local).ok_or_else(|| wraps(remote, local.len()))?,
                }
            }
            if let Some(bytes) = mapped {
                self.count(direction, Mechanism::Mapped, bytes);
            }
            if !list.pieces().is_empty() {
                self.transfer(peer, &list, rest)?;
            }
        }
        Ok(())
    }

    /// One transfer of all pieces with one peer, none of which lies in a mapped heap: to its end, or as far
    /// as `rest` says.
    fn transfer(&self, peer: Peer<'_>, list: &PieceList<'_>, rest: &mut Rest<'_>) -> Result<(), Error> {
        let is_apart = matches!(rest, Rest::Started(_)) && self.is_copied_apart(list.bytes() as usize);
        if let Peer::Near(near) = peer
            && !is_apart
            && is_attached(near, list)
        {
            match self.core.counted.latencies.time(timed(list.direction()), || list.by_attach(near)) {
                Ok(()) => {
                    self.count(list.direction(), Mechanism::Cma, list.bytes());
                    return Ok(());
                }
                Err(CopyError::Failed(error)) => return Err(self.core.error_of(error)),
                Err(CopyError::Unreachable(_)) => {}
            }
        } else if let Peer::Near(near) = peer
            && !is_apart
            && self.copy_list_by_address(near, list)?
        {
            return Ok(());
        }
        match rest {
            Rest::Awaited => self.by_engine(peer, list),
            Rest::Started(op) => {
                **op = Some(self.start(peer, list));
                Ok(())
            }
            Rest::Forgotten => {
                let mut copy = Vec::new();
                let op = self.start(peer, &list.copied(&mut copy));
                drop(Event::new(self, peer.rank(), Ok(Some(op)), copy));
                Ok(())
            }
            Rest::Counted(events) => {
                let mut copy = Vec::new();
                let op = self.start(peer, &list.copied(&mut copy));
                self.core.keep(op, Box::new(copy));
                events.push(Event::new(self, peer.rank(), Ok(Some(op)), ()));
                Ok(())
            }
        }
    }

    /// Has the engine move all pieces, and waits for that.
    fn by_engine(&self, peer: Peer<'_>, list: &PieceList<'_>) -> Result<(), Error> {
        self.may_wait("a put or get by message")?;
        let (to, bytes) = (list.direction(), list.bytes());
        let _span = tracing::trace_span!("transfer", peer = peer.rank(), direction = ?to, bytes).entered();
        // The waiting call ends it: it needs no deadline of its own.
        self.core.counted.latencies.time(timed(list.direction()), || {
            let op = self.start_by(peer, list, None);
            self.finish(op).map(|_| ())
        })
    }

    pub(crate) fn start(&self, peer: Peer<'_>, list: &PieceList<'_>) -> engine::OpId {
        let what = timed(list.direction());
        let begun = self.core.begin(what);
        let op = self.start_by(peer, list, self.deadline());
        if let Some(begun) = begun {
            self.core.follow(what, begun, op);
        }
        op
    }

    #[inline]
    fn start_by(
        &self,
        peer: Peer<'_>,
        list: &PieceList<'_>,
        deadline: Option<engine::Nanos>,
    ) -> engine::OpId {
        self.ask_for_progress(peer, list);
        self.engine().transfer(peer.rank(), list.direction(), list.pieces(), deadline)
    }

    /// Asks a peer to serve while it computes, where it has something to do for a transfer.
    #[inline]
    pub(crate) fn ask_for_progress(&self, peer: Peer<'_>, list: &PieceList<'_>) {
        match peer {
            Peer::Near(near) if self.goes_by_hand(near, list) => {}
            peer => self.core.peers.request_progress(peer),
        }
    }

    /// Whether this process's own hands make a copy, though a thread apart does: the peer need do nothing.
    #[inline(never)]
    fn goes_by_hand(&self, near: &Near, list: &PieceList<'_>) -> bool {
        let is_reached = |piece: &engine::Piece| {
            let place = near.best(piece.remote, piece.len as usize);
            // Only the owner may know a grant.
            place.in_grant().is_none()
                && matches!(
                    at_once(near, place.mem, list.direction(), piece.len),
                    Path::Mapped | Path::Attached
                )
        };
        self.is_copied_apart(list.bytes() as usize) && list.pieces().iter().all(is_reached)
    }

    #[inline]
    pub(crate) fn connected(&self, rank: engine::Rank) -> Result<Peer<'_>, Error> {
        self.may_call("reaching a peer")?;
        self.core.peers.get(rank, self.timeout)
    }

    #[inline]
    pub(crate) fn count(&self, direction: Direction, mechanism: Mechanism, bytes: u64) {
        let what = match (direction, mechanism) {
            (Direction::Put, Mechanism::Mapped) => FastOp::PutMapped,
            (Direction::Get, Mechanism::Mapped) => FastOp::GetMapped,
            (Direction::Put, _) => FastOp::PutCma,
            (Direction::Get, _) => FastOp::GetCma,
        };
        self.core.counted.thread_counters.add(what, bytes);
    }
}

/// The way of pieces that cannot be copied at once.
#[derive(Debug)]
pub(crate) enum Rest<'o> {
    /// They are waited for.
    Awaited,
    /// They are started, as this operation: all are with one peer, and whoever has lent the local memory
    /// keeps it until the operation has ended.
    Started(&'o mut Option<engine::OpId>),
    /// The data of puts is copied, and `quiet` tells the result.
    Forgotten,
    /// The data of puts is copied, and these events tell the result.
    Counted(&'o mut Vec<Event<()>>),
}

/// Whether this process's own hands reach all of a list's pieces, none of which lies in a mapped heap.
#[inline(always)]
fn is_attached(near: &Near, list: &PieceList<'_>) -> bool {
    let reached = |memory| at_once(near, memory, list.direction(), list.bytes()) == Path::Attached;
    match list.has_granted() {
        false => reached(MemId::Space),
        true => list.pieces().iter().all(|piece| reached(piece.remote.mem)),
    }
}

/// As what calls that way count where their time is taken.
fn timed(direction: Direction) -> Timed {
    match direction {
        Direction::Put => Timed::Put,
        Direction::Get => Timed::Get,
    }
}

/// A list of one piece.
fn one(remote: Remote, local: Lent<'_>) -> Result<PieceList<'_>, Error> {
    let mut list = PieceList::new(local.direction());
    list.push(remote.place, local).ok_or_else(|| wraps(remote, local.len()))?;
    Ok(list)
}

/// The error for a transfer whose remote end would wrap around the end of the address space.
#[cold]
pub(crate) fn wraps(remote: Remote, len: usize) -> Error {
    Error::Fault { peer: remote.peer, memory: remote.memory(), addr: remote.addr(), len: len as u64 }
}

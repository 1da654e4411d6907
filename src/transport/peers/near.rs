//! A peer that shared memory reaches.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::{Direction, MemId, Place, Rank};
use vm::forks::OnceTable;
use vm::{Bell, FenceMode, Segment, SharedMemory, Words};

use super::attendance::Attendance;
use super::by_address::ByAddress;
use super::handlers::KnownHandlers;
use crate::base::error::{Error, with_remedy};
use crate::transport::shm::control::{Control, Mapping};
use crate::transport::shm::ledger::{Ledger, PeerLedger};
use crate::transport::shm::reach::Reach;

/// By number: the near ones that this process has talked to. A child made by `fork` finds none.
#[derive(Clone)]
pub(crate) struct NearPeers(pub(super) OnceTable<Near>);

impl NearPeers {
    /// The peer, if it is near and has been talked to.
    #[inline(always)]
    pub(crate) fn get(&self, rank: Rank) -> Option<&Near> {
        self.0.get(rank as usize)
    }

    /// Where the table lies.
    pub(crate) fn table(&self) -> NearTable {
        NearTable { places: self.0.start().cast_const().cast(), len: self.0.len() }
    }

    /// Whether both are one node's.
    pub(crate) fn is(&self, other: &NearPeers) -> bool {
        self.0.is(&other.0)
    }

    /// As [`NearPeers::get`], for whoever keeps it.
    pub(crate) fn get_shared(&self, rank: Rank) -> Option<Arc<Near>> {
        self.0.get_shared(rank as usize)
    }
}

/// Where a node's near peers are found by those who are no Rust: `len` pointers, by rank, that are atomics.
/// Each is null as long as the peer has not been talked to, and in a child made by `fork`. After that it does
/// not change, and points to three words:
///
/// - how many bytes of the peer's heap may be accessed now, an atomic that is 0 once the peer is lost,
/// - how many offsets in the heap begin 8 such bytes, likewise,
/// - the address where the heap begins here.
///
/// All that lives as long as the node.
#[derive(Clone, Copy, Debug)]
pub struct NearTable {
    /// The first pointer.
    pub places: *const std::ffi::c_void,
    /// How many there are.
    pub len: usize,
}

/// The ledgers of both processes.
pub(crate) struct Ledgers {
    pub(crate) own: Arc<Ledger>,
    pub(crate) theirs: PeerLedger,
}

impl Ledgers {
    /// A peer's ledger beside this process's; `None`, which the log says, where it cannot be read.
    pub(crate) fn open(own: &Arc<Ledger>, theirs: impl AsFd) -> Option<Ledgers> {
        match PeerLedger::open(theirs) {
            Ok(theirs) => Some(Ledgers { own: Arc::clone(own), theirs }),
            Err(error) => {
                tracing::warn!(%error, "a peer's ledger cannot be read: what it grants is reached by messages");
                None
            }
        }
    }
}

/// The words that inlined puts and gets of programs in other languages look at.
#[repr(C)]
pub(crate) struct HeapWindow {
    /// Bytes of the heap that may be accessed: what is live, as far as known here, and 0 once the peer is
    /// lost. One comparison thus answers both questions on the fast path.
    pub(super) limit: AtomicU64,
    /// Offsets below this begin 8 bytes that may be accessed, as far as `limit` says: what inlined functions
    /// compare with.
    words: AtomicU64,
    /// Where the heap begins here.
    base: u64,
}

impl HeapWindow {
    /// Of a heap of which nothing is known to be live.
    pub(super) fn of(heap: &SharedMemory) -> HeapWindow {
        HeapWindow { limit: AtomicU64::new(0), words: AtomicU64::new(0), base: heap.base_addr() }
    }

    /// So many bytes may be accessed, or more.
    fn grow(&self, live: u64) {
        self.limit.fetch_max(live, Ordering::SeqCst);
        self.words.fetch_max(live.saturating_sub(7), Ordering::SeqCst);
    }

    /// None may be accessed.
    fn shut(&self) {
        self.limit.store(0, Ordering::SeqCst);
        self.words.store(0, Ordering::SeqCst);
    }
}

/// A process whose heap and control segment are mapped here: this one itself, one of its job on this host, or
/// one from outside. In C's order, as [`NearTable`] says where the window is: first.
#[repr(C)]
pub(crate) struct Near {
    pub(super) window: HeapWindow,
    pub(crate) rank: Rank,
    /// This process's place in its control segment.
    pub(crate) place: u32,
    pub(super) heap: SharedMemory,
    pub(crate) control: Control,
    pub(crate) bell: Bell<Words>,
    pub(crate) fence: FenceMode,
    /// How its private memory is reached without it.
    pub(crate) reach: Reach,
    /// Whether it has been asked to serve this process.
    pub(super) asked_to_serve: AtomicBool,
    pub(super) attendance: Attendance,
    pub(crate) directory: u64,
    pub(crate) handlers: KnownHandlers,
    /// Its grants, as far as they are known by their addresses.
    pub(crate) by_address: ByAddress,
    /// Both processes' ledgers. `None`: it is asked for what it grants.
    pub(crate) ledgers: Option<Ledgers>,
    /// Where its heap lies in its process: what its program's allocator has of it, and all.
    pub(super) in_its_space: [Mapping; 2],
}

impl Near {
    /// The heap, if the first `end` bytes of it may be accessed.
    #[inline(always)]
    pub(crate) fn heap_up_to(&self, end: u64) -> Option<&SharedMemory> {
        if end <= self.window.limit.load(Ordering::Relaxed) { Some(&self.heap) } else { self.heap_grown(end) }
    }

    /// Where so many bytes of the peer's are reached best: in its heap, for those that lie there.
    #[inline]
    pub(crate) fn best(&self, place: Place, len: usize) -> Place {
        let offset = |mapping: &Mapping| mapping.offset(place.offset, len as u64);
        match self.in_its_space.iter().find_map(offset) {
            Some(offset) if place.mem == MemId::Space => Place::new(MemId::Heap, offset),
            _ => place,
        }
    }

    /// Where in its heap so many bytes of the peer's lie, if they do and may be accessed.
    pub(crate) fn in_heap(&self, place: Place, len: u64) -> Option<(&SharedMemory, u64)> {
        let place = self.best(place, usize::try_from(len).ok()?);
        let end = place.offset.checked_add(len).filter(|_| place.mem == MemId::Heap)?;
        Some((self.heap_up_to(end)?, place.offset))
    }

    /// Tells it, once it has been entered, that its announcements are looked at.
    pub(super) fn watched(&self) -> &Near {
        if let Some(ledgers) = &self.ledgers {
            ledgers.own.watch(self.rank);
        }
        self
    }

    /// Since which epoch of this process it is at one of its grants, if it is.
    pub(crate) fn oldest_use(&self) -> Option<u64> {
        self.ledgers.as_ref()?.theirs.oldest_use(self.place)
    }

    /// Whether a grant of the peer's is known that covers memory which is named by its address. If not, and
    /// `may_ask`: whether to ask for one, which the caller then does.
    #[cold]
    pub(crate) fn knows_grant(
        &self,
        place: Place,
        len: u64,
        direction: Direction,
        may_ask: bool,
    ) -> Result<(), bool> {
        let Some(ledgers) = &self.ledgers else { return Err(false) };
        let made = ledgers.theirs.made();
        if place.mem != MemId::Space || made == 0 || self.reach.attach_to(MemId::Grant(0)).is_err() {
            return Err(false);
        }
        let found = self.by_address.find(direction, place.offset, len).map(drop);
        found.ok_or_else(|| may_ask && self.by_address.is_news(direction, place.offset, len, made))
    }

    /// Rings its doorbell, saying that it was this process.
    #[inline(never)]
    pub(crate) fn ring(&self) {
        self.bell.ring(self.place as usize);
    }

    /// The heap as it is mapped, live or not.
    pub(crate) fn heap(&self) -> &SharedMemory {
        &self.heap
    }

    /// Looks again how much of the heap is live. The peer's word is believed as far as its mapping goes.
    #[cold]
    fn heap_grown(&self, end: u64) -> Option<&SharedMemory> {
        let live = self.control.live().load(Ordering::Acquire).min(self.heap.len());
        if self.is_lost() || end > live {
            return None;
        }
        if let Err(error) = self.heap.open_to(live) {
            tracing::warn!(peer = self.rank, %error, "what it uses of its heap cannot be made accessible here");
            return None;
        }
        self.window.grow(live);
        // The loss may have come between: it stores 0 after `lost`, so whoever is second leaves 0.
        if self.is_lost() {
            self.window.shut();
            return None;
        }
        Some(&self.heap)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.reach.is_lost()
    }

    /// Looks whether its process has ended, which the kernel knows before the launcher tells: then its memory
    /// is not accessed any more.
    #[cold]
    pub(crate) fn look_after(&self) {
        if self.reach.has_ended() {
            self.lose();
        }
    }

    /// From now on its memory is not accessed.
    pub(crate) fn lose(&self) {
        self.reach.lose();
        self.window.shut();
    }
}

impl fmt::Debug for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Near").field("rank", &self.rank).field("pid", &self.reach.pid).finish_non_exhaustive()
    }
}

/// A segment of a peer's. It is no fault of the peer's where this process cannot map so much.
pub(super) fn open_segment(peer: Rank, segment: OwnedFd) -> Result<Segment, Error> {
    Segment::open(segment).map_err(|error| match error {
        error if error.is_for_size() => {
            Error::Connect { peer, why: format!("cannot map its memory: {}", with_remedy(&error)) }
        }
        error => Error::Protocol { peer, what: error.to_string() },
    })
}

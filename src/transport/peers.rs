//! Who is reachable, and how: one entry a peer, made when it is first talked to.

mod spread;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use engine::{MemId, Place, Rank, Why};
use serde::{Deserialize, Serialize};
use vm::robust::Held;
use vm::segment::PAGE_BYTES;
use vm::{Bell, FenceMode, Segment, SegmentError, SharedMemory, Words};

use super::shm::control::{Control, ENDPOINT_MAX, Identity, Mapping};
use super::shm::reach::{Attach, Reach};
use crate::base::error::{Error, HEAP_REMEDY};
use crate::base::handler_scope::may_wait;
use crate::base::sync::lock;
use crate::job::bootstrap::{Door, Membership, PeerHandles};

/// No process has room for more peers.
pub(crate) const PLACES_MAX: u32 = 1 << 16;

/// How long a connection may take when the call that needs it has no deadline: the peer may not have started yet.
const CONNECT_WITHIN: Duration = Duration::from_secs(60);

/// A process of the job, this one included; or one from outside.
pub(crate) struct Peer {
    pub(crate) rank: Rank,
    /// This process's place in its control segment.
    pub(crate) place: u32,
    /// It is reached over the network, whatever else may be shared with it.
    far: bool,
    /// Bytes of the heap that may be accessed: what is live, as far as known here, and 0 once the peer is lost. One
    /// comparison thus answers both questions on the fast path.
    limit: AtomicU64,
    heap: SharedMemory,
    pub(crate) control: Control,
    pub(crate) bell: Bell<Words>,
    pub(crate) fence: FenceMode,
    /// How its private memory is reached without it.
    pub(crate) reach: Reach,
    /// Whether it has been asked to serve this process.
    asked_to_serve: AtomicBool,
    pub(crate) directory: u64,
    /// Where its heap lies in its process: what its program's allocator has of it, and all.
    in_its_space: [Mapping; 2],
}

impl Peer {
    /// The heap, if the first `end` bytes of it may be accessed.
    #[inline(always)]
    pub(crate) fn heap_up_to(&self, end: u64) -> Option<&SharedMemory> {
        if end <= self.limit.load(Ordering::Relaxed) { Some(&self.heap) } else { self.heap_grown(end) }
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

    /// Whether it is reached over the network: none of its memory is accessed here.
    pub(crate) fn is_far(&self) -> bool {
        self.far
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

    /// Looks again how much of the heap is live. What the peer says is believed as far as its mapping goes.
    #[cold]
    fn heap_grown(&self, end: u64) -> Option<&SharedMemory> {
        let live = self.control.live().load(Ordering::Acquire).min(self.heap.len());
        if self.far || self.is_lost() || end > live {
            return None;
        }
        self.limit.fetch_max(live, Ordering::SeqCst);
        // The loss may have come between: it stores 0 after `lost`, so whoever is second leaves 0.
        if self.is_lost() {
            self.limit.store(0, Ordering::Relaxed);
            return None;
        }
        Some(&self.heap)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.reach.is_lost()
    }

    /// Looks whether its process has ended, which the kernel knows before the launcher tells: then its memory is not accessed
    /// any more.
    #[cold]
    pub(crate) fn look_after(&self) {
        if self.reach.has_ended() {
            self.lose();
        }
    }

    /// From now on its memory is not accessed.
    pub(crate) fn lose(&self) {
        self.reach.lose();
        self.limit.store(0, Ordering::SeqCst);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("rank", &self.rank).field("pid", &self.reach.pid).finish_non_exhaustive()
    }
}

/// What this process is to its peers.
pub(crate) struct Own {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// Peers that there is room for, this process included: those of the job, which have the numbers below its size, and
    /// those that come from outside.
    pub(crate) places: u32,
    pub(crate) identity: Identity,
    pub(crate) control: Control,
    pub(crate) heap: SharedMemory,
    pub(crate) names: Vec<u8>,
    pub(crate) attach: Attach,
    /// Whether all peers are reached over the network, those on this host too.
    pub(crate) network: bool,
}

/// As what a process that shares its segments is expected: its rank in its own job, what it has room for, and this process's
/// place there.
#[derive(Clone, Copy)]
struct Terms {
    rank: Rank,
    size: u32,
    places: u32,
    place: u32,
}

/// What a process of another host has told of itself. It shares nothing with this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The address of its endpoint in the network.
    pub(crate) endpoint: Vec<u8>,
    /// libfabric's name of the provider that the endpoint is of.
    pub(crate) provider: String,
    /// Its handlers' names.
    pub(crate) names: Vec<u8>,
    /// Where its share of the directory lies in its heap.
    pub(crate) directory: u64,
    /// The lowest rank of its host, in a job.
    pub(crate) host: Rank,
    /// It is heard from whatever it does: it has a progress thread.
    pub(crate) attends: bool,
}

/// By number: the processes that this one has talked to.
#[derive(Clone)]
pub(crate) struct Known(Arc<[OnceLock<Arc<Peer>>]>);

impl Known {
    /// The peer, if it has been talked to.
    #[inline(always)]
    pub(crate) fn get(&self, rank: Rank) -> Option<&Arc<Peer>> {
        self.0.get(rank as usize)?.get()
    }
}

/// Every process of the job.
pub(crate) struct Peers {
    own: Own,
    known: Known,
    lost: Box<[AtomicBool]>,
    /// By rank: those on other hosts. Set once, before anybody is talked to.
    elsewhere: OnceLock<Box<[Option<Card>]>>,
    /// `None` in a job of one.
    membership: Mutex<Option<Arc<Membership>>>,
    /// By which those come who are of no job; `None` while nobody has been invited.
    door: Mutex<Option<Arc<Door>>>,
    /// Has the kernel tell peers of this process's end.
    end: Mutex<Option<Held>>,
    /// Of the process whose node it is: children made by `fork` have others.
    generation: u32,
}

impl Peers {
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn new(own: Own) -> Peers {
        let known = Known((0..own.places).map(|_| OnceLock::new()).collect());
        let itself = Peer {
            rank: own.rank,
            place: own.rank,
            far: false,
            limit: AtomicU64::new(0),
            heap: own.heap.clone(),
            control: own.control.clone(),
            bell: own.control.bell(),
            fence: FenceMode::Symmetric,
            reach: Reach::of_oneself(&own.identity, own.control.end(), own.attach),
            asked_to_serve: AtomicBool::new(false),
            directory: own.identity.directory,
            in_its_space: [own.identity.allocated, own.identity.heap],
        };
        let lost = (0..own.places).map(|_| AtomicBool::new(false)).collect();
        let peers = Peers {
            own,
            known,
            lost,
            elsewhere: OnceLock::new(),
            membership: Mutex::default(),
            door: Mutex::default(),
            end: Mutex::default(),
            generation: vm::forks::generation(),
        };
        let _ = peers.known.0[peers.own.rank as usize].set(Arc::new(itself));
        peers
    }

    /// Gives the table its way to find peers; in a job of one there is none.
    pub(crate) fn set_membership(&self, membership: Membership) {
        *lock(&self.membership) = Some(Arc::new(membership));
    }

    /// Whether the process is a launched job's.
    pub(crate) fn is_launched(&self) -> bool {
        lock(&self.membership).is_some()
    }

    /// Tells the table who is on other hosts, before anybody is talked to.
    pub(crate) fn set_elsewhere(&self, cards: Box<[Option<Card>]>) {
        let _ = self.elsewhere.set(cards);
    }

    /// Leaves the job: peers are told, and no new ones are found.
    pub(crate) fn leave(&self) {
        let (membership, door) = (lock(&self.membership).take(), lock(&self.door).take());
        // A handler's handle on the node may be in the middle of a call at the door.
        if let Some(door) = &door {
            door.close();
        }
        drop((membership, door));
        // Who has not heard that yet sees it before it reaches this process again.
        drop(lock(&self.end).take());
    }

    /// Gives the table what tells peers of this process's end.
    pub(crate) fn set_end(&self, held: Held) {
        *lock(&self.end) = Some(held);
    }

    /// Gives the table its door, for those who come from outside.
    pub(crate) fn set_door(&self, door: &Arc<Door>) {
        *lock(&self.door) = Some(Arc::clone(door));
    }

    pub(crate) fn door(&self) -> Option<Arc<Door>> {
        lock(&self.door).clone()
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// Whether a peer is reached over the network.
    pub(crate) fn is_far(&self, rank: Rank) -> bool {
        if rank >= self.own.size {
            return self.known(rank).is_some_and(|peer| peer.far);
        }
        (self.own.network && rank != self.own.rank) || self.elsewhere(rank).is_some()
    }

    /// Those of no job that are reached over the network.
    pub(crate) fn far_outsiders(&self) -> impl Iterator<Item = Rank> {
        (self.own.size..self.own.places).filter(|rank| self.is_far(*rank))
    }

    /// Whether any rank is reached over the network.
    pub(crate) fn has_far(&self) -> bool {
        self.own.network || self.is_spread()
    }

    /// What a rank on another host has told of itself.
    pub(crate) fn elsewhere(&self, rank: Rank) -> Option<&Card> {
        self.elsewhere.get()?.get(rank as usize)?.as_ref()
    }

    /// This process's own entry.
    pub(crate) fn itself(&self) -> &Arc<Peer> {
        self.known.get(self.own.rank).expect("set when the table was made")
    }

    /// The peer, if it has been talked to.
    #[inline(always)]
    pub(crate) fn known(&self, rank: Rank) -> Option<&Arc<Peer>> {
        self.known.get(rank)
    }

    /// The table of those that have been talked to, for whoever wants it near.
    pub(crate) fn table(&self) -> &Known {
        &self.known
    }

    /// The peer; connects at the first call for it, which may wait so long for it to join.
    pub(crate) fn get(&self, rank: Rank, timeout: Option<Duration>) -> Result<&Arc<Peer>, Error> {
        if let Some(peer) = self.known(rank) {
            return if peer.is_lost() { Err(Error::PeerLost { peer: rank }) } else { Ok(peer) };
        }
        self.connect(rank, timeout)
    }

    #[cold]
    fn connect(&self, rank: Rank, timeout: Option<Duration>) -> Result<&Arc<Peer>, Error> {
        // Who is from outside is known from when it has come.
        if rank >= self.own.size {
            return Err(Error::NoSuchPeer { peer: rank, size: self.own.size });
        }
        let slot = &self.known.0[rank as usize];
        if self.is_lost(rank) {
            return Err(Error::PeerLost { peer: rank });
        }
        may_wait("the first contact with a peer", self.generation)?;
        let _span = tracing::debug_span!("connect", peer = rank).entered();
        let membership = lock(&self.membership).clone().ok_or(Error::PeerLost { peer: rank })?;
        let now = Instant::now();
        let deadline = now.checked_add(timeout.unwrap_or(CONNECT_WITHIN)).unwrap_or(now + CONNECT_WITHIN);
        let peer = match self.elsewhere(rank) {
            Some(card) => self.stand_in(rank, card)?,
            None => {
                let handles = membership.connect(rank, deadline);
                let handles = handles.map_err(|error| Error::connect(rank, &error))?;
                let terms =
                    Terms { rank, size: self.own.size, places: self.own.places, place: self.own.rank };
                self.introduce(rank, handles, terms)?
            }
        };
        tracing::debug!(peer = rank, pid = peer.reach.pid, attach = ?peer.reach.attach(), "connected");
        // Threads that connect at the same time each do it to the end; none waits for another's patience.
        let peer = slot.get_or_init(|| Arc::new(peer));
        // A loss that was noted before the slot was filled found nobody to mark.
        if self.is_lost(rank) {
            peer.lose();
            return Err(Error::PeerLost { peer: rank });
        }
        Ok(peer)
    }

    /// Enters a process from outside, which has a number that none had before, and which gave this one a place of so many
    /// that it has. The error says what is wrong with it.
    pub(crate) fn admit(
        &self,
        number: Rank,
        handles: PeerHandles,
        (place, places): (u32, u32),
    ) -> Result<(), Error> {
        check_place(number, (place, places))?;
        let peer = self.introduce(number, handles, Terms { rank: 0, size: 1, places, place })?;
        tracing::debug!(peer = number, pid = peer.reach.pid, attach = ?peer.reach.attach(), "connected");
        self.enter(number, peer)
    }

    /// Enters a process from outside, by a number that none had before.
    pub(crate) fn enter(&self, number: Rank, peer: Peer) -> Result<(), Error> {
        let full = Error::NoSuchPeer { peer: number, size: self.own.places };
        self.known.0.get(number as usize).and_then(|slot| slot.set(Arc::new(peer)).ok()).ok_or(full)
    }

    /// Ends the connection with a peer from outside that was found to be gone.
    pub(crate) fn forget(&self, rank: Rank) {
        if rank >= self.own.size {
            self.door().inspect(|door| door.forget(rank));
        }
    }

    /// What far peers are to know of this process.
    pub(crate) fn card(&self, host: Rank, provider: String, attends: bool) -> Card {
        let endpoint = self.own.control.endpoint().into();
        Card {
            endpoint,
            provider,
            names: self.own.names.clone(),
            directory: self.own.identity.directory,
            host,
            attends,
        }
    }

    fn introduce(&self, rank: Rank, handles: PeerHandles, terms: Terms) -> Result<Peer, Error> {
        let garbled = |what: String| Error::Protocol { peer: rank, what };
        let segment = Segment::open(handles.control).map_err(|e| garbled(e.to_string()))?;
        let heap = Segment::open(handles.heap).map_err(|error| match error {
            error if error.is_for_size() => no_room(rank, &error),
            error => garbled(error.to_string()),
        })?;
        let (control, identity) =
            Control::open(&segment, terms.places, terms.rank, terms.size).map_err(garbled)?;
        self.agree(rank, &control.names())?;
        let asymmetric = identity.fences_asymmetric && self.own.identity.fences_asymmetric;
        let reach = match self.own.network {
            true => Reach::none(handles.pid, control.end(), Why::Network),
            false => Reach::of(handles.pid, &identity, control.end(), self.own.attach),
        };
        Ok(Peer {
            rank,
            place: terms.place,
            far: self.own.network,
            limit: AtomicU64::new(0),
            heap: heap.memory().clone(),
            bell: control.bell(),
            control,
            fence: if asymmetric { FenceMode::Asymmetric } else { FenceMode::Symmetric },
            reach,
            asked_to_serve: AtomicBool::new(false),
            directory: identity.directory,
            in_its_space: if self.own.network {
                Default::default()
            } else {
                [identity.allocated, identity.heap]
            },
        })
    }

    /// A peer on another host: memory that nobody shares, with what it has told of itself.
    pub(crate) fn stand_in(&self, rank: Rank, card: &Card) -> Result<Peer, Error> {
        self.agree(rank, &card.names)?;
        if card.endpoint.len() > ENDPOINT_MAX {
            let what = format!(
                "an endpoint's address of {} bytes; it has at most {ENDPOINT_MAX}",
                card.endpoint.len()
            );
            return Err(Error::Protocol { peer: rank, what });
        }
        if !card.directory.is_multiple_of(size_of::<u64>() as u64) {
            let what = format!("a share of the directory at offset {:#x}, which no word has", card.directory);
            return Err(Error::Protocol { peer: rank, what });
        }
        let no_memory = |error: SegmentError| no_room(rank, &error);
        let (size, directory) = (self.own.size, card.directory);
        let identity = Identity {
            rank,
            size,
            nonce: 0,
            nonce_addr: 0,
            fences_asymmetric: false,
            ranges_only: false,
            directory,
            allocated: Mapping::default(),
            heap: Mapping::default(),
        };
        let (control, _) = Control::create(size, &identity, &card.names).map_err(no_memory)?;
        control.set_endpoint(&card.endpoint);
        let heap = Segment::create("standpipe-elsewhere", PAGE_BYTES).map_err(no_memory)?;
        let reach = Reach::none(0, control.end(), Why::Network);
        Ok(Peer {
            rank,
            place: self.own.rank,
            far: true,
            limit: AtomicU64::new(0),
            heap: heap.memory().clone(),
            bell: control.bell(),
            control,
            fence: FenceMode::Symmetric,
            reach,
            asked_to_serve: AtomicBool::new(false),
            directory: card.directory,
            in_its_space: Default::default(),
        })
    }

    /// Refuses a peer that has other handlers.
    fn agree(&self, rank: Rank, names: &[u8]) -> Result<(), Error> {
        if names == self.own.names {
            return Ok(());
        }
        let difference = crate::base::handler_names::difference(&self.own.names, names);
        Err(Error::HandlersDiffer { peer: rank, difference })
    }

    /// Lets a peer know that this process depends on its progress. It may be able to attach to all others itself, and
    /// not know that somebody cannot attach to it.
    pub(crate) fn ask_to_serve(&self, peer: &Peer) {
        // Who has the network serves by itself.
        if peer.far || peer.asked_to_serve.swap(true, Ordering::Relaxed) {
            return;
        }
        if peer.rank >= self.own.size {
            self.door().inspect(|door| door.ask_to_serve(peer.rank));
        } else if let Some(membership) = &*lock(&self.membership) {
            membership.ask_to_serve(peer.rank);
        }
    }

    /// Tells the launcher that this process has heard that `rank`, which is lost, is gone: once no thread of it is reaching that
    /// process by its number, which the launcher keeps from becoming another's until then.
    pub(crate) fn acknowledge(&self, rank: Rank) {
        let Some(membership) = lock(&self.membership).as_ref().map(Arc::downgrade) else { return };
        let tell = move || {
            if let Some(membership) = membership.upgrade() {
                membership.acknowledge(rank);
            }
        };
        match self.known(rank) {
            Some(peer) => peer.reach.when_unreached(tell),
            None => tell(),
        }
    }

    /// Whether the peer is known to be gone.
    pub(crate) fn is_lost(&self, rank: Rank) -> bool {
        self.lost.get(rank as usize).is_some_and(|lost| lost.load(Ordering::SeqCst))
    }

    /// Whether the peer is gone, be it that an operation has noticed so and nobody has said it.
    pub(crate) fn is_gone(&self, rank: Rank) -> bool {
        self.is_lost(rank) || self.known(rank).is_some_and(|peer| peer.is_lost())
    }

    /// Every peer known to be gone, in rising order, also where an operation noticed before the launcher said so.
    pub(crate) fn lost_ranks(&self) -> Vec<Rank> {
        (0..self.own.places).filter(|rank| self.is_gone(*rank)).collect()
    }

    /// Every other process that is connected to and not lost, in rising order.
    pub(crate) fn connected(&self) -> Vec<Rank> {
        let is_there = |rank: &Rank| self.known(*rank).is_some_and(|peer| !peer.is_lost());
        (0..self.own.places).filter(|rank| *rank != self.own.rank).filter(is_there).collect()
    }

    /// Takes note that a peer is gone; from now on its memory is not accessed. Returns whether that is news.
    pub(crate) fn lose(&self, rank: Rank) -> bool {
        let Some(lost) = self.lost.get(rank as usize) else { return false };
        let news = !lost.swap(true, Ordering::SeqCst);
        if let Some(peer) = self.known(rank) {
            peer.lose();
        }
        news
    }
}

/// Refuses a place that no node gives.
pub(crate) fn check_place(peer: Rank, (place, places): (u32, u32)) -> Result<(), Error> {
    if place >= places || places > PLACES_MAX {
        let what = format!("the place {place} of {places}, which cannot be");
        return Err(Error::Protocol { peer, what });
    }
    Ok(())
}

/// The error for a heap that this process cannot map.
fn no_room(peer: Rank, error: &SegmentError) -> Error {
    Error::Connect {
        peer,
        why: format!(
            "cannot map its heap: {error}; {HEAP_REMEDY}, or more mappings (sysctl vm.max_map_count)"
        ),
    }
}

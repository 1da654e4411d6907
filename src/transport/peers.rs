//! The peers that are reachable, and how: one entry a peer, made when it is first talked to.

mod attendance;
mod by_address;
mod clients;
mod failure_detection;
mod far;
mod handlers;
pub(crate) mod near;
mod unanswered;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use engine::{HandlerKey, MESSAGES_VERSION, PathReason, Rank};
use vm::forks::OnceTable;
use vm::robust::Held;
use vm::{FenceMode, SharedMemory};

use self::attendance::Attendance;
use self::by_address::ByAddress;
pub(crate) use self::clients::{CLIENTS, Clients};
pub(crate) use self::far::{Card, Far};
use self::handlers::{KnownHandlers, shown};
pub(crate) use self::handlers::{NotAdded, OwnHandlers, Standing};
use self::near::{HeapWindow, open_segment};
pub(crate) use self::near::{Ledgers, Near, NearPeers};
use super::shm::control::{Control, Identity};
use super::shm::ledger::Ledger;
use super::shm::reach::{Attach, Reach};
use crate::base::error::Error;
use crate::base::handler_scope::{CLOSED, may_call, may_wait};
use crate::base::lock::lock;
use crate::job::launched::{Membership, PeerHandles, PeerHandlesError};
use crate::job::unlaunched::PeerListener;
use crate::transport::protocol::NetProtocol;

/// No process has room for more peers.
pub(crate) const PLACES_MAX: u32 = 1 << 16;

/// How long a connection may take when the call that needs it has no deadline: the peer may not have started
/// yet.
const CONNECT_WITHIN: Duration = Duration::from_secs(60);

/// A peer that has been talked to.
#[derive(Clone, Copy)]
pub(crate) enum Peer<'a> {
    /// On this host, or this process itself.
    Near(&'a Near),
    /// Reached over the network.
    Far(&'a Far),
}

impl<'a> Peer<'a> {
    pub(crate) fn rank(self) -> Rank {
        match self {
            Peer::Near(near) => near.rank,
            Peer::Far(far) => far.rank,
        }
    }

    /// The same, if shared memory reaches it.
    pub(crate) fn near(self) -> Option<&'a Near> {
        match self {
            Peer::Near(near) => Some(near),
            Peer::Far(_) => None,
        }
    }

    /// Where its share of the directory lies in its heap.
    pub(crate) fn directory(self) -> u64 {
        match self {
            Peer::Near(near) => near.directory,
            Peer::Far(far) => far.directory,
        }
    }

    /// Whether cross-memory attach reaches its private memory, and if not, why.
    pub(crate) fn attach(self) -> Result<(), PathReason> {
        match self {
            Peer::Near(near) => near.reach.attach(),
            Peer::Far(_) => Err(PathReason::Network),
        }
    }

    /// The knowledge of its handlers.
    pub(crate) fn handlers(self) -> &'a KnownHandlers {
        match self {
            Peer::Near(near) => &near.handlers,
            Peer::Far(far) => &far.handlers,
        }
    }

    pub(crate) fn is_lost(self) -> bool {
        match self {
            Peer::Near(near) => near.is_lost(),
            Peer::Far(far) => far.is_lost(),
        }
    }

    /// From now on it is not reached.
    pub(crate) fn lose(self) {
        match self {
            Peer::Near(near) => near.lose(),
            Peer::Far(far) => far.lose(),
        }
    }
}

/// This process's identity to its peers.
pub(crate) struct Own {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// Peers that there is room for, this process included: those of the job, which have the numbers below
    /// its size, and those that come from outside.
    pub(crate) places: u32,
    pub(crate) identity: Identity,
    pub(crate) control: Control,
    pub(crate) heap: SharedMemory,
    pub(crate) handlers: OwnHandlers,
    pub(crate) attach: Attach,
    pub(crate) ledger: Arc<Ledger>,
    /// Whether all peers are reached over the network, those on this host too.
    pub(crate) network: bool,
}

/// As what a process that shares its segments is expected: its rank in its own job, what it has room for, and
/// this process's place there.
#[derive(Clone, Copy)]
struct Terms {
    rank: Rank,
    size: u32,
    places: u32,
    place: u32,
}

/// Every process of the job.
pub(crate) struct Peers {
    own: Own,
    itself: Arc<Near>,
    near: NearPeers,
    /// By number: the far ones that have been talked to. None of them is among the near ones.
    far: OnceTable<Far>,
    lost: Box<[AtomicBool]>,
    /// By rank: those on other hosts. Set once, before anybody is talked to.
    elsewhere: OnceLock<Box<[Option<Card>]>>,
    /// `None` in a job of one.
    membership: Mutex<Option<Arc<Membership>>>,
    /// By which those come who are of no job; `None` while nobody has been invited.
    peer_listener: Mutex<Option<Arc<PeerListener>>>,
    /// Has the kernel tell peers of this process's end.
    end: Mutex<Option<Held>>,
    /// Of the process whose node it is: children made by `fork` have others.
    generation: u32,
    /// The same, until the node has closed.
    open: AtomicU32,
    /// The clients that have the node.
    pub(crate) clients: Clients,
}

/// The error of a peer whose segments cannot be had.
fn unreached(peer: Rank, error: &PeerHandlesError) -> Error {
    match error {
        PeerHandlesError::Lost { .. } => Error::PeerLost { peer },
        PeerHandlesError::Timeout { .. } => Error::Timeout { peer, unattended: false },
        other => Error::Connect { peer, why: other.to_string() },
    }
}

impl Peers {
    /// The generation whose calls are taken: none once the node has closed.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether these are the copies that a child made by `fork` has.
    pub(crate) fn is_forked(&self) -> bool {
        vm::forks::known_generation() != self.generation
    }

    pub(crate) fn has_closed(&self) -> bool {
        self.open.load(Ordering::SeqCst) == CLOSED
    }

    /// From now on no memory of a peer is reached, nor this node's own by way of it.
    pub(crate) fn close(&self) {
        self.open.store(CLOSED, Ordering::SeqCst);
        self.clients.close();
        (0..self.own.places).filter_map(|rank| self.known(rank)).for_each(Peer::lose);
    }

    /// A table that knows this process alone.
    ///
    /// # Errors
    /// The kernel's, when it gives no memory.
    pub(crate) fn new(own: Own) -> io::Result<Peers> {
        let (near, far) = (OnceTable::new(own.places as usize)?, OnceTable::new(own.places as usize)?);
        let itself = Arc::new(Near {
            rank: own.rank,
            place: own.rank,
            window: HeapWindow::of(&own.heap),
            heap: own.heap.clone(),
            control: own.control.clone(),
            bell: own.control.bell(),
            fence: FenceMode::Symmetric,
            reach: Reach::of_oneself(&own.identity, own.control.end(), own.attach),
            asked_to_serve: AtomicBool::new(false),
            attendance: Attendance::of(own.identity.unattended),
            directory: own.identity.directory,
            handlers: KnownHandlers::shown_in(&own.control),
            by_address: ByAddress::default(),
            ledgers: Ledgers::open(&own.ledger, own.ledger.fd()),
            in_its_space: [own.identity.allocated, own.identity.heap],
        });
        let entered = near.set(own.rank as usize, Arc::clone(&itself)).is_ok();
        assert!(entered, "a node has a place for itself");
        itself.watched();
        let lost = (0..own.places).map(|_| AtomicBool::new(false)).collect();
        Ok(Peers {
            own,
            itself,
            near: NearPeers(near),
            far,
            lost,
            elsewhere: OnceLock::new(),
            membership: Mutex::default(),
            peer_listener: Mutex::default(),
            end: Mutex::default(),
            generation: vm::forks::generation(),
            open: AtomicU32::new(vm::forks::generation()),
            clients: Clients::new(),
        })
    }

    /// Gives the table its way to find peers; in a job of one there is none.
    pub(crate) fn set_membership(&self, membership: Membership) {
        *lock(&self.membership) = Some(Arc::new(membership));
    }

    /// How often this rank has been in its job before.
    pub(crate) fn round(&self) -> u32 {
        lock(&self.membership).as_ref().map_or(0, |membership| membership.round())
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
        let (membership, peer_listener) = (lock(&self.membership).take(), lock(&self.peer_listener).take());
        // A handler's handle on the node may be in the middle of a call at the listener.
        if let Some(peer_listener) = &peer_listener {
            peer_listener.close();
        }
        drop((membership, peer_listener));
        // A peer that has not heard that yet sees it before it reaches this process again.
        drop(lock(&self.end).take());
    }

    /// Gives the table what tells peers of this process's end.
    pub(crate) fn set_end(&self, held: Held) {
        *lock(&self.end) = Some(held);
    }

    /// Gives the table its listener, for those who come from outside.
    pub(crate) fn set_peer_listener(&self, peer_listener: &Arc<PeerListener>) {
        *lock(&self.peer_listener) = Some(Arc::clone(peer_listener));
    }

    pub(crate) fn peer_listener(&self) -> Option<Arc<PeerListener>> {
        lock(&self.peer_listener).clone()
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// Whether a peer is reached over the network.
    pub(crate) fn is_far(&self, rank: Rank) -> bool {
        if rank >= self.own.size {
            return self.far_known(rank).is_some();
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

    /// The card of a rank on another host.
    pub(crate) fn elsewhere(&self, rank: Rank) -> Option<&Card> {
        self.elsewhere.get()?.get(rank as usize)?.as_ref()
    }

    /// This process's own entry.
    pub(crate) fn itself(&self) -> &Arc<Near> {
        &self.itself
    }

    /// The peer, if it has been talked to.
    #[inline]
    pub(crate) fn known(&self, rank: Rank) -> Option<Peer<'_>> {
        match self.near.get(rank) {
            Some(near) => Some(Peer::Near(near)),
            None => self.far_known(rank).map(Peer::Far),
        }
    }

    #[inline]
    fn far_known(&self, rank: Rank) -> Option<&Far> {
        self.far.get(rank as usize)
    }

    /// The near ones that have been talked to, for whoever wants their table at hand.
    pub(crate) fn near(&self) -> &NearPeers {
        &self.near
    }

    /// The peer; connects at the first call for it, which may wait so long for it to join.
    pub(crate) fn get(&self, rank: Rank, timeout: Option<Duration>) -> Result<Peer<'_>, Error> {
        if let Some(peer) = self.known(rank) {
            return if peer.is_lost() { Err(self.lost_or_closed(rank)) } else { Ok(peer) };
        }
        self.connect(rank, timeout)
    }

    /// Why a peer that has been talked to is not reached.
    #[cold]
    fn lost_or_closed(&self, peer: Rank) -> Error {
        may_call("reaching a peer", self.generation()).err().unwrap_or(Error::PeerLost { peer })
    }

    #[cold]
    fn connect(&self, rank: Rank, timeout: Option<Duration>) -> Result<Peer<'_>, Error> {
        may_call("reaching a peer", self.generation())?;
        // A peer from outside is known from when it has come.
        if rank >= self.own.size {
            return Err(Error::NoSuchPeer { peer: rank, size: self.own.size });
        }
        if self.is_lost(rank) {
            return Err(Error::PeerLost { peer: rank });
        }
        may_wait("the first contact with a peer", self.generation())?;
        let _span = tracing::debug_span!("connect", peer = rank).entered();
        let membership = lock(&self.membership).clone().ok_or(Error::PeerLost { peer: rank })?;
        let now = Instant::now();
        let deadline = now.checked_add(timeout.unwrap_or(CONNECT_WITHIN)).unwrap_or(now + CONNECT_WITHIN);
        // Threads that connect at the same time each do it to the end; none waits for another's timeout.
        let at = rank as usize;
        let peer = match self.elsewhere(rank) {
            Some(card) => {
                let new = self.far_by_card(rank, card)?;
                Peer::Far(self.far.get_or_set(at, Arc::new(new)))
            }
            None => {
                let handles = membership.connect(rank, deadline);
                let handles = handles.map_err(|error| unreached(rank, &error))?;
                let terms =
                    Terms { rank, size: self.own.size, places: self.own.places, place: self.own.rank };
                match self.own.network {
                    true => {
                        let new = self.far_by_control(rank, handles, terms)?;
                        Peer::Far(self.far.get_or_set(at, Arc::new(new)))
                    }
                    false => {
                        let new = self.introduce(rank, handles, terms)?;
                        Peer::Near(self.near.0.get_or_set(at, Arc::new(new)).watched())
                    }
                }
            }
        };
        tracing::debug!(peer = rank, attach = ?peer.attach(), "connected");
        // A loss that was noted before the slot was filled found nobody to mark, and so did closing.
        if self.is_lost(rank) || self.has_closed() {
            peer.lose();
            return Err(self.lost_or_closed(rank));
        }
        Ok(peer)
    }

    /// Enters a process from outside, which has a number that none had before, and which gave this one a
    /// place of so many that it has. The error says what is wrong with it.
    pub(crate) fn admit(
        &self,
        number: Rank,
        handles: PeerHandles,
        (place, places): (u32, u32),
    ) -> Result<(), Error> {
        check_place(number, (place, places))?;
        let peer = self.introduce(number, handles, Terms { rank: 0, size: 1, places, place })?;
        tracing::debug!(peer = number, pid = peer.reach.pid, attach = ?peer.reach.attach(), "connected");
        let entered = self.near.0.set(number as usize, Arc::new(peer));
        let entered = entered.inspect(|peer| {
            peer.watched();
            if self.has_closed() {
                peer.lose()
            }
        });
        entered.map(drop).map_err(|_| Error::NoSuchPeer { peer: number, size: self.own.places })
    }

    /// Enters a process from outside that the network reaches, by a number that none had before.
    pub(crate) fn admit_far(&self, number: Rank, peer: Far) -> Result<(), Error> {
        let entered = self.far.set(number as usize, Arc::new(peer));
        let entered = entered.inspect(|peer| {
            if self.has_closed() {
                peer.lose()
            }
        });
        entered.map(drop).map_err(|_| Error::NoSuchPeer { peer: number, size: self.own.places })
    }

    /// Ends the connection with a peer from outside that was found to be gone.
    pub(crate) fn forget(&self, rank: Rank) {
        if rank >= self.own.size {
            self.peer_listener().inspect(|peer_listener| peer_listener.forget(rank));
        }
    }

    /// This process's card for far peers.
    pub(crate) fn card(&self, host: Rank, attends: bool) -> Card {
        Card {
            messages: MESSAGES_VERSION,
            endpoint: self.own.control.endpoint().into(),
            protocol: self.own.control.protocol(),
            handlers: self.own.handlers.all().iter().map(|key| (key.number, key.check)).collect(),
            directory: self.own.identity.directory,
            host,
            attends,
        }
    }

    /// A peer whose segments these are, by which shared memory reaches it.
    fn introduce(&self, rank: Rank, handles: PeerHandles, terms: Terms) -> Result<Near, Error> {
        let (control, identity) = self.control_of(rank, handles.control, terms)?;
        let heap = open_segment(rank, handles.heap)?;
        let asymmetric = identity.fences_asymmetric && self.own.identity.fences_asymmetric;
        let reach = Reach::of(handles.pid, &identity, control.end(), self.own.attach);
        let handlers = KnownHandlers::shown_in(&control);
        Ok(Near {
            rank,
            place: terms.place,
            window: HeapWindow::of(heap.memory()),
            heap: heap.memory().clone(),
            bell: control.bell(),
            control,
            fence: if asymmetric { FenceMode::Asymmetric } else { FenceMode::Symmetric },
            reach,
            asked_to_serve: AtomicBool::new(false),
            attendance: Attendance::of(identity.unattended),
            directory: identity.directory,
            handlers,
            by_address: ByAddress::default(),
            ledgers: Ledgers::open(&self.own.ledger, handles.ledger),
            in_its_space: [identity.allocated, identity.heap],
        })
    }

    /// A peer on this host that is reached over the network all the same: its control segment says where.
    fn far_by_control(&self, rank: Rank, handles: PeerHandles, terms: Terms) -> Result<Far, Error> {
        let (control, identity) = self.control_of(rank, handles.control, terms)?;
        self.understands(rank, &control.protocol())?;
        let (endpoint, handlers) = (control.endpoint(), shown(rank, &control)?);
        Ok(Far::new(rank, endpoint, identity.directory, &handlers, identity.unattended))
    }

    /// A peer's control segment, and what it says of itself, which is checked.
    fn control_of(&self, rank: Rank, segment: OwnedFd, terms: Terms) -> Result<(Control, Identity), Error> {
        let segment = open_segment(rank, segment)?;
        let (control, identity) =
            Control::open(&segment, terms.places, terms.rank, terms.size).map_err(|unfit| unfit.of(rank))?;
        self.agree(rank, &shown(rank, &control)?)?;
        Ok((control, identity))
    }

    /// A peer on another host, with what it has told of itself, which is checked.
    pub(crate) fn far_by_card(&self, rank: Rank, card: &Card) -> Result<Far, Error> {
        self.understands_card(rank, card)?;
        card.check().map_err(|what| Error::Protocol { peer: rank, what })?;
        let handlers = card.handlers();
        self.agree(rank, &handlers)?;
        let endpoint = card.endpoint.as_slice().into();
        Ok(Far::new(rank, endpoint, card.directory, &handlers, !card.attends))
    }

    /// Whether a far peer's messages, and its endpoint, speak as this process's do.
    ///
    /// # Errors
    /// [`Error::Versions`], and those of [`Peers::understands`].
    pub(crate) fn understands_card(&self, peer: Rank, card: &Card) -> Result<(), Error> {
        if card.messages != MESSAGES_VERSION {
            let (ours, theirs) = (MESSAGES_VERSION.into(), card.messages.into());
            return Err(Error::Versions { peer, what: "the engine's messages", ours, theirs });
        }
        self.understands(peer, &card.protocol)
    }

    /// Whether a peer's endpoint speaks as this process's does: else neither hears the other.
    ///
    /// # Errors
    /// [`Error::Connect`], which names what both speak, and what to do.
    pub(crate) fn understands(&self, peer: Rank, theirs: &NetProtocol) -> Result<(), Error> {
        let why = self.own.control.protocol().differs(theirs);
        why.map_or(Ok(()), |why| Err(Error::Connect { peer, why }))
    }

    /// As [`Peers::compare`], of a node of no job. Ranks of a job meet all the same, or one waits for ever.
    fn agree(&self, rank: Rank, theirs: &[HandlerKey]) -> Result<(), Error> {
        if rank < self.own.size { Ok(()) } else { self.compare(rank, theirs) }
    }

    /// Names a handler whose number the peer has given to another one.
    fn compare(&self, peer: Rank, theirs: &[HandlerKey]) -> Result<(), Error> {
        let differs = |number| Error::HandlersDiffer { peer, handler: format!("{number:#010x}") };
        self.own.handlers.colliding(theirs).map_or(Ok(()), |number| Err(differs(number)))
    }

    /// The number that a connected peer has given to another handler than this process.
    pub(crate) fn colliding_number(&self, peer: Peer<'_>) -> Result<Option<u32>, Error> {
        let theirs = match peer {
            Peer::Near(near) => shown(near.rank, &near.control)?,
            Peer::Far(far) => far.handlers.all(),
        };
        Ok(self.own.handlers.colliding(&theirs))
    }

    /// Tells the launcher that this process has heard that `rank`, which is lost, is gone. It does so once no
    /// thread of it is reaching that process by its number, which the launcher keeps from becoming another's
    /// until then.
    pub(crate) fn acknowledge(&self, rank: Rank) {
        let Some(membership) = lock(&self.membership).as_ref().map(Arc::downgrade) else { return };
        let tell = move || {
            if let Some(membership) = membership.upgrade() {
                membership.acknowledge(rank);
            }
        };
        match self.near.get(rank) {
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

    /// Every peer known to be gone, in rising order, also where an operation noticed before the launcher said
    /// so.
    pub(crate) fn lost_ranks(&self) -> Vec<Rank> {
        (0..self.own.places).filter(|rank| self.is_gone(*rank)).collect()
    }

    /// Every other process that is connected to and not lost, in rising order.
    pub(crate) fn connected(&self) -> Vec<Rank> {
        let is_there = |rank: &Rank| self.known(*rank).is_some_and(|peer| !peer.is_lost());
        (0..self.own.places).filter(|rank| *rank != self.own.rank).filter(is_there).collect()
    }

    /// From now on a peer's memory is not accessed. Whether that is news: to one that leaves it is not.
    pub(crate) fn lose(&self, rank: Rank) -> bool {
        let Some(lost) = self.lost.get(rank as usize) else { return false };
        let news = !self.clients.are_leaving() && !lost.swap(true, Ordering::SeqCst);
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

//! The engine's transport: shared memory for some peers, the network for the others.
//!
//! Which peers are *far* is for [`Peers`] to say. A process reaches itself by shared memory, always. Where
//! there is no network, that costs one branch a call.

use std::sync::Arc;

use engine::{
    Atomic, Copied, Counters, Deregistering, Direction, Event, HEAD_WORDS, Header, Inbox, KeyedPiece, Lane,
    Nanos, OpError, OpId, Piece, Place, Rank, RegId, Registering, SendError, Submit, Transport, Why,
};

use super::net_wakeup::NetWakeup;
use super::ofi::transport::{OfiTransport, Outsider, Rest};
use super::peers::Peers;
use super::shm::ShmTransport;
use super::shm::transport::Cold;
use crate::transport::mr_invalidation::{CachesRegistrations, ChangeSource};

/// Times in turn that the provider may say that there is something to poll when there is nothing.
const RESTLESS_MAX: u32 = 8;

/// Events of one way in turn before the other is asked first, though this one may have more.
const RUN_MAX: u32 = 64;

/// All ways to reach peers that a node has.
pub(crate) struct Router {
    shm: ShmTransport,
    net: Option<Box<Net>>,
    /// What [`Transport::unregistered_max`] says: asked for each copy, and always the same.
    unregistered_max: u64,
}

/// The way to far peers.
struct Net {
    ofi: OfiTransport,
    peers: Arc<Peers>,
    /// Rung for what this process sends to itself: who sleeps on the network hears no doorbell.
    net_wakeup: Arc<NetWakeup>,
    /// Polls that are still to ask the network first, as it gave the last event; at the others shared memory
    /// is. So nobody who talks without end keeps the others from being heard, and who has news is mostly
    /// asked alone.
    far_turns: u32,
    /// Events that shared memory has given in turn.
    near_run: u32,
    /// What this poll has been told by the network already.
    told: NetPoll,
    restless: u32,
}

/// What a poll knows of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetPoll {
    /// It has not been asked.
    Unasked,
    /// It has no event.
    Nothing,
    /// [`Transport::poll`] is to be asked.
    Unknown,
}

impl Router {
    /// Shared memory only.
    pub(crate) fn near(shm: ShmTransport) -> Router {
        Router { shm, net: None, unregistered_max: u64::MAX }
    }

    /// From now on far peers are reached over the network.
    pub(crate) fn set_network(&mut self, ofi: OfiTransport, peers: Arc<Peers>, net_wakeup: Arc<NetWakeup>) {
        self.unregistered_max =
            ofi.unregistered_max(Direction::Put).min(ofi.unregistered_max(Direction::Get));
        self.net = Some(Box::new(Net {
            ofi,
            peers,
            net_wakeup,
            far_turns: 0,
            near_run: 0,
            told: NetPoll::Unasked,
            restless: 0,
        }));
    }

    /// Makes a process from outside known to the network, by its number. `false`: it cannot be reached there.
    pub(crate) fn meet(&mut self, rank: Rank, outsider: &Outsider) -> bool {
        self.net.as_mut().is_some_and(|net| net.ofi.meet(rank, outsider))
    }

    /// The provider by which far peers are reached.
    pub(crate) fn provider(&self) -> Option<&str> {
        self.net.as_ref().map(|net| net.ofi.provider())
    }

    /// Waits a moment for a message, `looks` short looks at most. Not where only the network is polled: what
    /// comes there comes by no cache line that another core would keep, and is found later for each moment.
    #[inline(always)]
    pub(crate) fn spin_for_message(&mut self, looks: u32) {
        if self.net.is_none() || self.shm.is_polled() {
            self.shm.spin_for_message(looks);
        }
    }

    /// Prepares for sleep, and says whether there is something to do after all. To be asked after a poll that
    /// found nothing.
    pub(crate) fn prepare_sleep(&mut self) -> Cold {
        let near = self.shm.prepare_sleep();
        let Some(net) = &mut self.net else { return near };
        let far = match net.ofi.rest() {
            Rest::Sleep => {
                net.restless = 0;
                Cold::Quiet
            }
            Rest::Poll if net.restless < RESTLESS_MAX => {
                net.restless += 1;
                Cold::Work
            }
            Rest::Poll | Rest::Nap => Cold::Blocked,
        };
        match (near, far) {
            (Cold::Work, _) | (_, Cold::Work) => Cold::Work,
            (Cold::Blocked, _) | (_, Cold::Blocked) => Cold::Blocked,
            (Cold::Quiet, Cold::Quiet) => Cold::Quiet,
        }
    }

    /// Bytes of copies by key that the network has taken and not yet carried.
    pub(crate) fn bytes_on_the_way(&self) -> u64 {
        self.net.as_ref().map_or(0, |net| net.ofi.bytes_on_the_way())
    }

    /// Adds what only the network has counted: copies that need no word of the engine's, and messages that
    /// were none of the job's.
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        if let Some(net) = &self.net {
            counters.merge(net.ofi.counters());
            counters.malformed += net.ofi.strangers();
        }
    }

    /// Whether far peers have signalled by words of this process since this was asked last.
    #[inline]
    pub(crate) fn take_signalled(&mut self) -> bool {
        self.net.as_mut().is_some_and(|net| net.ofi.take_signalled())
    }

    /// Whether [`Router::take_lost`] has news.
    #[inline(always)]
    pub(crate) fn has_lost(&self) -> bool {
        self.net.as_ref().is_some_and(|net| net.ofi.has_lost())
    }

    /// The peers that the network has found to be gone since the last call.
    pub(crate) fn take_lost(&mut self) -> Vec<Rank> {
        self.net.as_mut().map(|net| net.ofi.take_lost()).unwrap_or_default()
    }

    /// Whether all that was sent has left this process.
    pub(crate) fn is_flushed(&self) -> bool {
        self.net.as_ref().is_none_or(|net| net.ofi.is_flushed())
    }

    /// Tells the peers on other hosts that this process leaves: nobody else does.
    pub(crate) fn take_leave(&mut self) {
        let Some(net) = &mut self.net else { return };
        let ranks = (0..net.peers.own().size).filter(|rank| net.peers.elsewhere(*rank).is_some());
        for rank in ranks.chain(net.peers.far_outsiders()) {
            net.ofi.take_leave(rank);
        }
    }

    /// Whether a peer has said over the network that it leaves.
    pub(crate) fn has_left(&self, rank: Rank) -> bool {
        self.net.as_ref().is_some_and(|net| net.ofi.has_left(rank))
    }

    /// Sees to it that the one is heard from whom this process watches for all others.
    pub(crate) fn keep_watch(&mut self) {
        let Some(net) = &mut self.net else { return };
        if let Some(rank) = net.peers.to_watch() {
            net.ofi.watch(rank);
        }
    }

    /// The network has lost a peer: unless that has left, its whole host may be gone, and it is for this
    /// process to find out.
    pub(crate) fn suspect_host_of(&mut self, lost: Rank) {
        let Some(net) = self.net.as_mut().filter(|net| !net.ofi.has_left(lost)) else { return };
        for rank in net.peers.to_suspect(lost) {
            net.ofi.suspect(rank);
        }
    }

    /// The network, if it is the way to this peer.
    #[inline(always)]
    fn far(&mut self, peer: Rank) -> Option<&mut OfiTransport> {
        let net = self.net.as_mut()?;
        net.peers.is_far(peer).then_some(&mut net.ofi)
    }

    #[inline(never)]
    fn send_routed(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        if let Some(ofi) = self.far(peer) {
            return ofi.send(peer, lane, header, payload);
        }
        self.shm.send(peer, lane, header, payload)?;
        if let Some(net) = &self.net {
            net.net_wakeup.ring();
        }
        Ok(())
    }

    #[inline(never)]
    fn poll_routed(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let net = self.net.as_mut()?;
        let told = std::mem::replace(&mut net.told, NetPoll::Unasked);
        if told == NetPoll::Unasked
            && let Some(event) = self.shm.poll(inbox)
        {
            net.note_near();
            return Some(event);
        }
        if let Some(event) = net.poll(inbox, told) {
            net.far_turns = if told == NetPoll::Unasked { RUN_MAX } else { net.far_turns - 1 };
            net.restless = 0;
            return Some(event);
        }
        let event = if told == NetPoll::Unasked { None } else { self.shm.poll(inbox) };
        if event.is_some() {
            net.note_near();
        }
        event
    }
}

impl Net {
    /// Shared memory has given an event.
    fn note_near(&mut self) {
        self.near_run = if self.far_turns > 0 { 1 } else { self.near_run + 1 };
        self.far_turns = u32::from(self.near_run.is_multiple_of(RUN_MAX));
        if self.far_turns > 0 {
            // It is asked so seldom that it would not know the time.
            self.ofi.look_at_clock_soon();
        }
        self.restless = 0;
    }

    /// Whether a peer that there is no link to is far.
    #[cold]
    #[inline(never)]
    fn is_unlinked_far(&self, peer: Rank) -> bool {
        self.peers.is_far(peer)
    }

    /// Looks for the end of a copy, where the network is asked first.
    #[inline(always)]
    fn poll_copied(&mut self) -> Copied {
        if self.far_turns == 0 {
            return Copied::Unknown;
        }
        match self.ofi.poll_copied() {
            Copied::Done(op) => {
                self.far_turns -= 1;
                return Copied::Done(op);
            }
            Copied::Nothing => self.told = NetPoll::Nothing,
            Copied::Unknown => self.told = NetPoll::Unknown,
        }
        // Shared memory may have something.
        Copied::Unknown
    }

    /// Asks the network for what it has not told yet.
    fn poll(&mut self, inbox: &mut Inbox, told: NetPoll) -> Option<Event> {
        match told {
            NetPoll::Nothing => None,
            NetPoll::Unknown => self.ofi.poll(inbox),
            NetPoll::Unasked => match self.ofi.poll_copied() {
                Copied::Done(op) => Some(Event::Completed { op, result: Ok(0) }),
                Copied::Nothing => None,
                Copied::Unknown => self.ofi.poll(inbox),
            },
        }
    }
}

impl CachesRegistrations for Router {
    #[inline]
    fn memory(&mut self) -> Option<&mut ChangeSource> {
        self.net.as_mut().map(|net| &mut net.ofi.memory)
    }
}

impl Transport for Router {
    #[inline(always)]
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        if self.net.is_none() {
            return self.shm.send(peer, lane, header, payload);
        }
        // A copy, so that the header need not be in memory on the other way.
        let header = *header;
        self.send_routed(peer, lane, &header, payload)
    }

    fn has_room(&mut self, peer: Rank, lane: Lane) -> bool {
        match self.far(peer) {
            Some(ofi) => ofi.has_room(peer, lane),
            None => self.shm.has_room(peer, lane),
        }
    }

    fn give_up_offers(&mut self) {
        self.shm.give_up_offers();
    }

    fn offers_given_up(&self, peer: Rank) -> Option<u32> {
        self.shm.offers_given_up(peer)
    }

    #[inline(always)]
    fn take_like(
        &mut self,
        peer: Rank,
        head: &[u64; HEAD_WORDS],
    ) -> Option<[u64; Header::WORDS - HEAD_WORDS]> {
        self.shm.take_like(peer, head)
    }

    #[inline(always)]
    fn poll_copied(&mut self) -> Copied {
        match &mut self.net {
            Some(net) => net.poll_copied(),
            None => Copied::Unknown,
        }
    }

    #[inline(always)]
    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        if self.net.is_none() {
            return self.shm.poll(inbox);
        }
        self.poll_routed(inbox)
    }

    fn payload_max(&self) -> usize {
        let far = self.net.as_ref().map_or(usize::MAX, |net| net.ofi.payload_max());
        self.shm.payload_max().min(far)
    }

    fn now(&self) -> Option<Nanos> {
        self.net.as_ref().and_then(|net| net.ofi.now())
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        self.shm.read(from, into)
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        self.shm.write(to, from)
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        self.shm.change_own(word, atomic)
    }

    fn signals_by_message(&self, peer: Rank) -> bool {
        self.is_keyed(peer)
    }

    fn reaches(&mut self, peer: Rank, pieces: &[Piece]) -> Result<(), Why> {
        match self.far(peer) {
            Some(ofi) => ofi.reaches(peer, pieces),
            None => self.shm.reaches(peer, pieces),
        }
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        match self.far(peer) {
            Some(ofi) => ofi.copy(op, peer, direction, pieces),
            None => self.shm.copy(op, peer, direction, pieces),
        }
    }

    fn bounce_bytes(&self) -> u64 {
        self.shm.bounce_bytes()
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        self.shm.make_bounce_buffer()
    }

    fn reaches_bounce_buffers(&mut self, peer: Rank) -> bool {
        match self.far(peer) {
            Some(ofi) => ofi.reaches_bounce_buffers(peer),
            None => self.shm.reaches_bounce_buffers(peer),
        }
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        match self.far(peer) {
            Some(ofi) => ofi.copy_bounced(op, peer, direction, piece),
            None => self.shm.copy_bounced(op, peer, direction, piece),
        }
    }

    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        self.shm.copy_own(from, to, len)
    }

    fn abandon(&mut self, op: OpId) {
        // What goes by shared memory is over when it is submitted.
        if let Some(net) = &mut self.net {
            net.ofi.abandon(op);
        }
    }

    fn disconnect(&mut self, peer: Rank) {
        self.shm.leave_alone(peer);
        match self.far(peer) {
            Some(ofi) => ofi.disconnect(peer),
            None => self.shm.disconnect(peer),
        }
    }

    fn doubt(&mut self, peer: Rank) {
        // Of those on this host the launcher tells.
        if let Some(net) = self.net.as_mut().filter(|net| net.peers.elsewhere(peer).is_some()) {
            net.ofi.believe_gone(peer);
        }
    }

    fn suspect(&mut self, peer: Rank) {
        match self.far(peer) {
            Some(ofi) => ofi.suspect(peer),
            None => self.shm.suspect(peer),
        }
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        match self.far(peer) {
            Some(ofi) => ofi.atomic(op, peer, word, atomic),
            None => self.shm.atomic(op, peer, word, atomic),
        }
    }

    fn register(&mut self, reg: RegId, offset: u64, len: u64) -> Registering {
        match &mut self.net {
            Some(net) => net.ofi.register(reg, offset, len),
            None => self.shm.register(reg, offset, len),
        }
    }

    fn deregister(&mut self, reg: RegId) -> Deregistering {
        match &mut self.net {
            Some(net) => net.ofi.deregister(reg),
            None => self.shm.deregister(reg),
        }
    }

    #[inline]
    fn is_keyed(&self, peer: Rank) -> bool {
        // Who is linked to is far: that is found sooner, by a table that the copy needs next.
        self.net.as_ref().is_some_and(|net| net.ofi.is_linked(peer) || net.is_unlinked_far(peer))
    }

    fn in_spaces(&mut self, peer: Rank, piece: Piece) -> Option<Piece> {
        self.far(peer)?.in_spaces(peer, piece)
    }

    #[inline(always)]
    fn unregistered_max(&self, _: Direction) -> u64 {
        self.unregistered_max
    }

    #[inline(always)]
    fn copy_keyed(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[KeyedPiece]) -> Submit {
        debug_assert!(self.is_keyed(peer), "keys are of far peers");
        match &mut self.net {
            Some(net) => net.ofi.copy_keyed(op, peer, direction, pieces),
            None => self.shm.copy_keyed(op, peer, direction, pieces),
        }
    }
}

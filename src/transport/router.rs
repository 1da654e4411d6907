//! The way to all peers of a node: shared memory for some of them, the network for the others.
//!
//! Which peers are *far* is for [`Peers`] to say. A process reaches itself by shared memory, always. Where
//! there is no network, that costs one branch a call.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use engine::{
    Atomic, Copied, Counters, Deregistering, Direction, Event, GrantId, HEAD_WORDS, Header, Inbox,
    KeyedPiece, Lane, Nanos, OpError, OpId, PathReason, Piece, Place, Rank, RegId, Registering, SendError,
    Submit, Transport,
};

use super::contract::{NodeTransport, Outsider, Rest};
use super::list::Network;
use super::mr_invalidation::{CachesRegistrations, ChangeSource};
use super::net_wakeup::NetWakeup;
use super::peers::Peers;
use super::shm::ShmTransport;

/// Times in turn that the provider may say that there is something to poll when there is nothing.
const RESTLESS_MAX: u32 = 8;

/// Events of one way in turn before the other is asked first, though this one may have more.
const RUN_MAX: u32 = 64;

/// All ways to reach peers that a node has.
pub(crate) struct Router {
    shm: ShmTransport,
    net: Option<Box<Net>>,
    /// The value of [`Transport::unregistered_max`]: asked for each copy, and always the same.
    unregistered_max: u64,
}

/// The way to far peers.
struct Net {
    way: Network,
    peers: Arc<Peers>,
    /// Rung for what this process sends to itself: who sleeps on the network hears no doorbell.
    net_wakeup: Arc<NetWakeup>,
    /// Polls that are still to ask the network first, as it gave the last event; at the others shared memory
    /// is. So nobody who talks without end keeps the others from being heard, and who has news is mostly
    /// asked alone.
    far_turns: u32,
    /// Events that shared memory has given in turn.
    near_run: u32,
    /// Events that this poll has been told by the network already.
    told: NetPoll,
    restless: u32,
}

/// The knowledge of a poll of the network.
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

    /// Shared memory, for what concerns no other way.
    pub(crate) fn shm(&mut self) -> &mut ShmTransport {
        &mut self.shm
    }

    /// Touches no memory any more that operations have lent: no network, no copying thread goes on.
    pub(crate) fn end(&mut self) {
        self.shm.end_copiers();
        self.net = None;
    }

    /// From now on far peers are reached over the network.
    pub(crate) fn set_network(&mut self, way: Network, peers: Arc<Peers>, net_wakeup: Arc<NetWakeup>) {
        self.shm.set_net_wakeup(&net_wakeup);
        self.unregistered_max =
            way.unregistered_max(Direction::Put).min(way.unregistered_max(Direction::Get));
        self.net = Some(Box::new(Net {
            way,
            peers,
            net_wakeup,
            far_turns: 0,
            near_run: 0,
            told: NetPoll::Unasked,
            restless: 0,
        }));
    }

    /// The network, if it is the way to this peer.
    #[inline(always)]
    fn far(&mut self, peer: Rank) -> Option<&mut Network> {
        let net = self.net.as_mut()?;
        net.peers.is_far(peer).then_some(&mut net.way)
    }

    #[inline(never)]
    fn send_routed(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        if let Some(way) = self.far(peer) {
            let sent = way.send(peer, lane, header, payload);
            self.tell_gathering();
            return sent;
        }
        self.shm.send(peer, lane, header, payload)?;
        if let Some(net) = &self.net {
            net.net_wakeup.ring();
        }
        Ok(())
    }

    /// Has the progress thread send what begins to gather, unless somebody polls before.
    #[inline]
    fn tell_gathering(&mut self) {
        if let Some(net) = &mut self.net
            && net.way.take_gathering()
        {
            net.net_wakeup.gathers();
        }
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
            self.way.look_at_clock_soon();
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
        match self.way.poll_copied() {
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
            NetPoll::Unknown => self.way.poll(inbox),
            NetPoll::Unasked => match self.way.poll_copied() {
                Copied::Done(op) => Some(Event::Completed { op, result: Ok(0) }),
                Copied::Nothing => None,
                Copied::Unknown => self.way.poll(inbox),
            },
        }
    }
}

impl CachesRegistrations for Router {
    #[inline]
    fn memory(&mut self) -> Option<&mut ChangeSource> {
        self.net.as_mut().and_then(|net| net.way.memory())
    }
}

impl NodeTransport for Router {
    fn provider(&self) -> Option<&str> {
        self.net.as_ref().and_then(|net| net.way.provider())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.net.as_ref().and_then(|net| net.way.wait_fd())
    }

    fn meet(&mut self, rank: Rank, outsider: &Outsider) -> bool {
        self.net.as_mut().is_some_and(|net| net.way.meet(rank, outsider))
    }

    #[inline(always)]
    fn is_linked(&self, peer: Rank) -> bool {
        self.net.as_ref().is_some_and(|net| net.way.is_linked(peer))
    }

    #[inline(always)]
    fn spin_for_message(&mut self, looks: u32) {
        match &mut self.net {
            // Nobody near is polled.
            Some(net) if !self.shm.is_polled() => net.way.spin_for_message(looks),
            _ => self.shm.spin_for_message(looks),
        }
    }

    fn prepare_sleep(&mut self) -> Rest {
        let near = self.shm.prepare_sleep();
        let Some(net) = &mut self.net else { return near };
        let far = match net.way.prepare_sleep() {
            Rest::Sleep => {
                net.restless = 0;
                Rest::Sleep
            }
            Rest::Poll if net.restless < RESTLESS_MAX => {
                net.restless += 1;
                Rest::Poll
            }
            Rest::Poll | Rest::Nap => Rest::Nap,
        };
        near.max(far)
    }

    fn look_at_clock_soon(&mut self) {
        if let Some(net) = &mut self.net {
            net.way.look_at_clock_soon();
        }
    }

    fn bytes_on_the_way(&self) -> u64 {
        self.net.as_ref().map_or(0, |net| net.way.bytes_on_the_way())
    }

    fn add_to(&self, counters: &mut Counters) {
        self.shm.add_to(counters);
        if let Some(net) = &self.net {
            net.way.add_to(counters);
        }
    }

    #[inline]
    fn take_signalled(&mut self) -> bool {
        self.net.as_mut().is_some_and(|net| net.way.take_signalled())
    }

    #[inline]
    fn take_gathering(&mut self) -> bool {
        self.net.as_mut().is_some_and(|net| net.way.take_gathering())
    }

    fn send_gathered(&mut self) {
        if let Some(net) = &mut self.net {
            net.way.send_gathered();
        }
    }

    #[inline(always)]
    fn has_lost(&self) -> bool {
        self.net.as_ref().is_some_and(|net| net.way.has_lost())
    }

    fn take_lost(&mut self) -> Vec<Rank> {
        self.net.as_mut().map(|net| net.way.take_lost()).unwrap_or_default()
    }

    fn is_flushed(&self) -> bool {
        self.net.as_ref().is_none_or(|net| net.way.is_flushed())
    }

    fn take_leave(&mut self, peer: Rank) {
        if let Some(net) = &mut self.net {
            net.way.take_leave(peer);
        }
    }

    fn has_left(&self, peer: Rank) -> bool {
        self.net.as_ref().is_some_and(|net| net.way.has_left(peer))
    }

    fn watch(&mut self, peer: Rank) {
        if let Some(net) = &mut self.net {
            net.way.watch(peer);
        }
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
            Some(way) => way.has_room(peer, lane),
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

    fn read_held(&mut self, at: usize, into: &mut [u8]) {
        // Networks leave no payload with them.
        self.shm.read_held(at, into);
    }

    fn copy_held(&mut self, at: usize, len: usize, to: Place) -> Result<(), OpError> {
        self.shm.copy_held(at, len, to)
    }

    fn payload_max(&self) -> usize {
        let far = self.net.as_ref().map_or(usize::MAX, |net| net.way.payload_max());
        self.shm.payload_max().min(far)
    }

    fn now(&self) -> Option<Nanos> {
        self.net.as_ref().and_then(|net| net.way.now())
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

    fn reaches(&mut self, peer: Rank, pieces: &[Piece]) -> Result<(), PathReason> {
        match self.far(peer) {
            Some(way) => way.reaches(peer, pieces),
            None => self.shm.reaches(peer, pieces),
        }
    }

    fn direct_min(&self, peer: Rank) -> u64 {
        let net = self.net.as_ref().filter(|net| net.peers.is_far(peer));
        net.map_or(0, |net| net.way.direct_min(peer))
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        match self.far(peer) {
            Some(way) => way.copy(op, peer, direction, pieces),
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
            Some(way) => way.reaches_bounce_buffers(peer),
            None => self.shm.reaches_bounce_buffers(peer),
        }
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        match self.far(peer) {
            Some(way) => way.copy_bounced(op, peer, direction, piece),
            None => self.shm.copy_bounced(op, peer, direction, piece),
        }
    }

    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        self.shm.copy_own(from, to, len)
    }

    fn take_unreached(&mut self, op: OpId) -> Option<(Direction, Vec<Piece>)> {
        self.shm.take_unreached(op)
    }

    fn learn_grant(&mut self, peer: Rank, direction: Direction, found: (GrantId, u64, u64)) {
        if let Some(near) = self.shm.peers.near().get(peer) {
            near.by_address.learn(direction, found);
        }
    }

    fn abandon(&mut self, op: OpId) -> bool {
        self.shm.abandon(op) || self.net.as_mut().is_some_and(|net| net.way.abandon(op))
    }

    fn disconnect(&mut self, peer: Rank) {
        self.shm.leave_alone(peer);
        match self.far(peer) {
            Some(way) => way.disconnect(peer),
            None => self.shm.disconnect(peer),
        }
    }

    fn doubt(&mut self, peer: Rank) {
        // The launcher tells of those on this host.
        if let Some(net) = self.net.as_mut().filter(|net| net.peers.elsewhere(peer).is_some()) {
            net.way.doubt(peer);
        }
    }

    fn suspect(&mut self, peer: Rank) {
        match self.far(peer) {
            Some(way) => way.suspect(peer),
            None => self.shm.suspect(peer),
        }
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        match self.far(peer) {
            Some(way) => {
                let started = way.atomic(op, peer, word, atomic);
                self.tell_gathering();
                started
            }
            None => self.shm.atomic(op, peer, word, atomic),
        }
    }

    fn register(&mut self, reg: RegId, offset: u64, len: u64) -> Registering {
        match &mut self.net {
            Some(net) => net.way.register(reg, offset, len),
            None => self.shm.register(reg, offset, len),
        }
    }

    fn deregister(&mut self, reg: RegId) -> Deregistering {
        match &mut self.net {
            Some(net) => net.way.deregister(reg),
            None => self.shm.deregister(reg),
        }
    }

    #[inline]
    fn is_keyed(&self, peer: Rank) -> bool {
        // A peer that is linked to is far: that is found sooner, by a table that the copy needs next.
        self.net.as_ref().is_some_and(|net| net.way.is_linked(peer) || net.is_unlinked_far(peer))
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
            Some(net) => net.way.copy_keyed(op, peer, direction, pieces),
            None => self.shm.copy_keyed(op, peer, direction, pieces),
        }
    }
}

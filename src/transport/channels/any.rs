//! Any network, where tests have two.

use std::os::fd::BorrowedFd;

use engine::{
    Atomic, Copied, Counters, Deregistering, Direction, Event, GrantId, HEAD_WORDS, Header, Inbox,
    KeyedPiece, Lane, Nanos, OpError, OpId, PathReason, Piece, Place, Rank, RegId, Registering, SendError,
    Submit,
};

use super::ChannelsNetwork;
use crate::transport::contract::{NodeTransport, Outsider, Rest};
use crate::transport::mr_invalidation::{CachesRegistrations, ChangeSource};
use crate::transport::ofi::transport::OfiTransport;

/// Libfabric as the network of a node.
pub(crate) fn of_ofi(network: OfiTransport) -> Network {
    Network::Ofi(network)
}

/// Any network.
#[expect(clippy::large_enum_variant, reason = "a node has one, which its router keeps behind a pointer")]
pub(crate) enum Network {
    Ofi(OfiTransport),
    Channels(ChannelsNetwork),
}

/// Calls whichever network it is.
macro_rules! pass_on {
    ($network:ident, $way:ident => $call:expr) => {
        match $network {
            Network::Ofi($way) => $call,
            Network::Channels($way) => $call,
        }
    };
}

impl engine::Transport for Network {
    #[inline(always)]
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        pass_on!(self, way => way.send(peer, lane, header, payload))
    }

    fn has_room(&mut self, peer: Rank, lane: Lane) -> bool {
        pass_on!(self, way => way.has_room(peer, lane))
    }

    #[inline(always)]
    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        pass_on!(self, way => way.poll(inbox))
    }

    fn read_held(&mut self, at: usize, into: &mut [u8]) {
        pass_on!(self, way => way.read_held(at, into))
    }

    fn copy_held(&mut self, at: usize, len: usize, to: Place) -> Result<(), OpError> {
        pass_on!(self, way => way.copy_held(at, len, to))
    }

    #[inline(always)]
    fn take_like(
        &mut self,
        peer: Rank,
        head: &[u64; HEAD_WORDS],
    ) -> Option<[u64; Header::WORDS - HEAD_WORDS]> {
        pass_on!(self, way => way.take_like(peer, head))
    }

    fn give_up_offers(&mut self) {
        pass_on!(self, way => way.give_up_offers())
    }

    fn offers_given_up(&self, peer: Rank) -> Option<u32> {
        pass_on!(self, way => way.offers_given_up(peer))
    }

    #[inline(always)]
    fn poll_copied(&mut self) -> Copied {
        pass_on!(self, way => way.poll_copied())
    }

    fn payload_max(&self) -> usize {
        pass_on!(self, way => way.payload_max())
    }

    fn now(&self) -> Option<Nanos> {
        pass_on!(self, way => way.now())
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        pass_on!(self, way => way.read(from, into))
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        pass_on!(self, way => way.write(to, from))
    }

    fn reaches(&mut self, peer: Rank, pieces: &[Piece]) -> Result<(), PathReason> {
        pass_on!(self, way => way.reaches(peer, pieces))
    }

    fn direct_min(&self, peer: Rank) -> u64 {
        pass_on!(self, way => way.direct_min(peer))
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        pass_on!(self, way => way.copy(op, peer, direction, pieces))
    }

    fn bounce_bytes(&self) -> u64 {
        pass_on!(self, way => way.bounce_bytes())
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        pass_on!(self, way => way.make_bounce_buffer())
    }

    fn reaches_bounce_buffers(&mut self, peer: Rank) -> bool {
        pass_on!(self, way => way.reaches_bounce_buffers(peer))
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        pass_on!(self, way => way.copy_bounced(op, peer, direction, piece))
    }

    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        pass_on!(self, way => way.copy_own(from, to, len))
    }

    fn take_unreached(&mut self, op: OpId) -> Option<(Direction, Vec<Piece>)> {
        pass_on!(self, way => way.take_unreached(op))
    }

    fn learn_grant(&mut self, peer: Rank, direction: Direction, found: (GrantId, u64, u64)) {
        pass_on!(self, way => way.learn_grant(peer, direction, found))
    }

    fn abandon(&mut self, op: OpId) -> bool {
        pass_on!(self, way => way.abandon(op))
    }

    fn disconnect(&mut self, peer: Rank) {
        pass_on!(self, way => way.disconnect(peer))
    }

    fn doubt(&mut self, peer: Rank) {
        pass_on!(self, way => way.doubt(peer))
    }

    fn suspect(&mut self, peer: Rank) {
        pass_on!(self, way => way.suspect(peer))
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        pass_on!(self, way => way.change_own(word, atomic))
    }

    fn signals_by_message(&self, peer: Rank) -> bool {
        pass_on!(self, way => way.signals_by_message(peer))
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        pass_on!(self, way => way.atomic(op, peer, word, atomic))
    }

    fn register(&mut self, reg: RegId, offset: u64, len: u64) -> Registering {
        pass_on!(self, way => way.register(reg, offset, len))
    }

    fn deregister(&mut self, reg: RegId) -> Deregistering {
        pass_on!(self, way => way.deregister(reg))
    }

    fn is_keyed(&self, peer: Rank) -> bool {
        pass_on!(self, way => way.is_keyed(peer))
    }

    fn in_spaces(&mut self, peer: Rank, piece: Piece) -> Option<Piece> {
        pass_on!(self, way => way.in_spaces(peer, piece))
    }

    #[inline(always)]
    fn unregistered_max(&self, direction: Direction) -> u64 {
        pass_on!(self, way => way.unregistered_max(direction))
    }

    #[inline(always)]
    fn copy_keyed(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[KeyedPiece]) -> Submit {
        pass_on!(self, way => way.copy_keyed(op, peer, direction, pieces))
    }
}

impl NodeTransport for Network {
    fn provider(&self) -> Option<&str> {
        pass_on!(self, way => way.provider())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        pass_on!(self, way => way.wait_fd())
    }

    fn meet(&mut self, rank: Rank, outsider: &Outsider) -> bool {
        pass_on!(self, way => way.meet(rank, outsider))
    }

    #[inline(always)]
    fn is_linked(&self, peer: Rank) -> bool {
        pass_on!(self, way => way.is_linked(peer))
    }

    fn spin_for_message(&mut self, looks: u32) {
        pass_on!(self, way => way.spin_for_message(looks))
    }

    fn prepare_sleep(&mut self) -> Rest {
        pass_on!(self, way => way.prepare_sleep())
    }

    fn look_at_clock_soon(&mut self) {
        pass_on!(self, way => way.look_at_clock_soon())
    }

    fn bytes_on_the_way(&self) -> u64 {
        pass_on!(self, way => way.bytes_on_the_way())
    }

    fn add_to(&self, counters: &mut Counters) {
        pass_on!(self, way => way.add_to(counters))
    }

    #[inline(always)]
    fn take_signalled(&mut self) -> bool {
        pass_on!(self, way => way.take_signalled())
    }

    #[inline]
    fn take_gathering(&mut self) -> bool {
        pass_on!(self, way => way.take_gathering())
    }

    fn send_gathered(&mut self) {
        pass_on!(self, way => way.send_gathered())
    }

    #[inline(always)]
    fn has_lost(&self) -> bool {
        pass_on!(self, way => way.has_lost())
    }

    fn take_lost(&mut self) -> Vec<Rank> {
        pass_on!(self, way => way.take_lost())
    }

    fn is_flushed(&self) -> bool {
        pass_on!(self, way => way.is_flushed())
    }

    fn take_leave(&mut self, peer: Rank) {
        pass_on!(self, way => way.take_leave(peer))
    }

    fn has_left(&self, peer: Rank) -> bool {
        pass_on!(self, way => way.has_left(peer))
    }

    fn watch(&mut self, peer: Rank) {
        pass_on!(self, way => way.watch(peer))
    }
}

impl CachesRegistrations for Network {
    #[inline(always)]
    fn memory(&mut self) -> Option<&mut ChangeSource> {
        pass_on!(self, way => way.memory())
    }
}

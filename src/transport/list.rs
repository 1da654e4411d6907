//! The transports that there are. A new one is a folder beside `shm` and `ofi`, an entry in each of the lists
//! here, and a word in the settings' table.
//!
//! [`Transport`] is what a program asks for, [`open`] opens the network that this means, and [`Network`] is
//! any of them, at no cost where there is one.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use engine::registration::{Settings, Strategy};
use engine::{
    Atomic, Copied, Counters, Deregistering, Direction, Event, HEAD_WORDS, Header, Inbox, KeyedPiece, Lane,
    Nanos, OpError, OpId, PathReason, Piece, Place, Rank, RegId, Registering, SendError, Submit,
};

#[cfg(all(test, debug_assertions))]
use super::channels::ChannelsNetwork;
use super::contract::{Endpoint, NodeTransport, Outsider, Reach, Rest, Setup};
use super::mr_invalidation::{CachesRegistrations, ChangeSource};
use super::ofi::endpoint::NetEndpoint;
use super::ofi::provider::{self, NetworkError};
use super::ofi::transport::OfiTransport;
use super::protocol::NetProtocol;
use crate::job::bootstrap::Listen;

/// How a node reaches other ranks. Itself it reaches within this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// By shared memory and cross-memory attach: all ranks are on one host.
    #[default]
    Shm,
    /// By libfabric, and nothing else.
    Ofi {
        /// libfabric's name of the provider, such as `tcp` or `verbs;ofi_rxm`; `None`: the best that can be
        /// opened.
        provider: Option<String>,
    },
    /// By channels between the threads of one process.
    #[cfg(all(test, debug_assertions))]
    #[doc(hidden)]
    Channels,
}

impl Transport {
    /// The transport of this name, as the setting `STANDPIPE_TRANSPORT` takes it.
    pub fn parse(name: &str) -> Option<Transport> {
        match name.split_once(':') {
            None if name == "shm" => Some(Transport::Shm),
            None if name == "ofi" => Some(Transport::Ofi { provider: None }),
            Some(("ofi", provider)) if !provider.is_empty() => {
                Some(Transport::Ofi { provider: Some(provider.to_owned()) })
            }
            #[cfg(all(test, debug_assertions))]
            None if name == "channels" => Some(Transport::Channels),
            _ => None,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Shm => f.write_str("shm"),
            Transport::Ofi { provider: None } => f.write_str("ofi"),
            Transport::Ofi { provider: Some(provider) } => write!(f, "ofi:{provider}"),
            #[cfg(all(test, debug_assertions))]
            Transport::Channels => f.write_str("channels"),
        }
    }
}

/// Opens an endpoint of the network that a node of this transport has: peers of other hosts are reached by
/// libfabric where shared memory is asked for.
pub(crate) fn open(transport: &Transport, reach: Reach) -> Result<OpenEndpoint, NetworkError> {
    match transport {
        Transport::Shm => Ok(OpenEndpoint::Ofi(provider::open(None, reach)?)),
        Transport::Ofi { provider } => Ok(OpenEndpoint::Ofi(provider::open(provider.as_deref(), reach)?)),
        #[cfg(all(test, debug_assertions))]
        Transport::Channels => Ok(OpenEndpoint::Channels(super::channels::open())),
    }
}

/// The same for a node that nobody launched, whose peers may be anywhere.
pub(crate) fn open_to_all(transport: &Transport, listen: Listen) -> Result<OpenEndpoint, NetworkError> {
    match transport {
        Transport::Shm => Ok(OpenEndpoint::Ofi(provider::open_to_all(None, listen)?)),
        Transport::Ofi { provider } => {
            Ok(OpenEndpoint::Ofi(provider::open_to_all(provider.as_deref(), listen)?))
        }
        #[cfg(all(test, debug_assertions))]
        Transport::Channels => Ok(OpenEndpoint::Channels(super::channels::open())),
    }
}

/// How a node uses the network, when it comes to that.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPlan {
    pub(crate) transport: Transport,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) pin_bytes: Option<u64>,
    /// How long peers of other hosts may be silent.
    pub(crate) silence: Option<Duration>,
    /// Whether the node may have a progress thread.
    pub(crate) attends: bool,
    /// Where the node listens, if it is of no job.
    pub(crate) listen: Listen,
}

/// An endpoint in any network.
#[cfg_attr(
    all(test, debug_assertions),
    expect(clippy::large_enum_variant, reason = "it is there while a node opens")
)]
pub(crate) enum OpenEndpoint {
    Ofi(NetEndpoint),
    #[cfg(all(test, debug_assertions))]
    Channels(super::channels::OpenEndpoint),
}

impl OpenEndpoint {
    /// As [`Endpoint::address`].
    pub(crate) fn address(&self) -> &[u8] {
        match self {
            OpenEndpoint::Ofi(endpoint) => Endpoint::address(endpoint),
            #[cfg(all(test, debug_assertions))]
            OpenEndpoint::Channels(endpoint) => endpoint.address(),
        }
    }

    /// As [`Endpoint::protocol`].
    pub(crate) fn protocol(&self) -> NetProtocol {
        match self {
            OpenEndpoint::Ofi(endpoint) => endpoint.protocol(),
            #[cfg(all(test, debug_assertions))]
            OpenEndpoint::Channels(endpoint) => endpoint.protocol(),
        }
    }

    /// As [`Endpoint::into_network`].
    pub(crate) fn into_network(self, setup: Setup) -> (Network, Option<Settings>) {
        match self {
            OpenEndpoint::Ofi(endpoint) => {
                let (network, settings) = endpoint.into_network(setup);
                (Network::Ofi(network), settings)
            }
            #[cfg(all(test, debug_assertions))]
            OpenEndpoint::Channels(endpoint) => {
                let (network, settings) = endpoint.into_network(setup);
                (Network::Channels(network), settings)
            }
        }
    }
}

/// Any network.
#[cfg_attr(
    all(test, debug_assertions),
    expect(clippy::large_enum_variant, reason = "a node has one, which its router keeps behind a pointer")
)]
pub(crate) enum Network {
    Ofi(OfiTransport),
    #[cfg(all(test, debug_assertions))]
    Channels(ChannelsNetwork),
}

/// Calls whichever network it is.
macro_rules! pass_on {
    ($network:ident, $way:ident => $call:expr) => {
        match $network {
            Network::Ofi($way) => $call,
            #[cfg(all(test, debug_assertions))]
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

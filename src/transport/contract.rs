//! A node's contract with each way to its peers, beside the engine's ([`engine::Transport`]).
//!
//! [Shared memory](super::shm), each network and the [router](super::router) between them have all of it.
//! Nothing here has a default: a router that passes a call on to nobody, or a network that leaves one out,
//! does not compile.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use engine::registration::{Settings, Strategy};
use engine::{Counters, OpError, Rank};

use super::mr_invalidation::CachesRegistrations;
use super::protocol::NetProtocol;
use super::shm::OwnMemory;
use super::shm::heap_pages::HeapState;

/// A way to peers, for a node. One thread at a time calls it, with the engine held; nothing here waits.
pub(crate) trait NodeTransport: CachesRegistrations {
    /// The name of the network's provider, the same at both ends. `None`: there is no network.
    fn provider(&self) -> Option<&str>;

    /// A descriptor that becomes readable when something comes by the network: an epoll instance that says 0
    /// of all that it waits for. `None`: there is none, and threads that sleep look again now and then.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Makes a process from outside the job known, by a number that none has had. `false`: it cannot be
    /// reached.
    fn meet(&mut self, rank: Rank, outsider: &Outsider) -> bool;

    /// Whether the peer is far, has been talked to, and is not gone.
    fn is_linked(&self, peer: Rank) -> bool;

    /// Waits a moment for a message, `looks` short looks at most, if one is worth waiting for.
    fn spin_for_message(&mut self, looks: u32);

    /// Prepares for sleep, and says what a thread may do. To be asked after a poll that found nothing.
    fn prepare_sleep(&mut self) -> Rest;

    /// Looks at the clock at the next poll: this transport is asked so seldom that it would not know the
    /// time.
    fn look_at_clock_soon(&mut self);

    /// Bytes of copies by key that the network has taken and not yet carried.
    fn bytes_on_the_way(&self) -> u64;

    /// Adds what only the transport has counted.
    fn add_to(&self, counters: &mut Counters);

    /// Whether peers have signalled by words of this process since this was asked last, without a word of the
    /// engine's: threads that sleep are to look at them.
    fn take_signalled(&mut self) -> bool;

    /// Whether messages have begun to gather since this was asked last: they go with the next poll, and
    /// somebody is to make one soon.
    fn take_gathering(&mut self) -> bool;

    /// Sends what has gathered, where nobody can poll.
    fn send_gathered(&mut self);

    /// Whether [`NodeTransport::take_lost`] has news.
    fn has_lost(&self) -> bool;

    /// The peers that the transport has found to be gone since the last call, for [`engine::Node::lose`].
    fn take_lost(&mut self) -> Vec<Rank>;

    /// Whether all that was to be sent to peers that are there has left this process.
    fn is_flushed(&self) -> bool;

    /// Tells a peer that this process leaves, if nobody else does and they have ever talked. Nothing is to be
    /// sent to it after that.
    fn take_leave(&mut self, peer: Rank);

    /// Whether a peer that is gone has said so itself.
    fn has_left(&self, peer: Rank) -> bool;

    /// Sees to it that this process finds out when the peer is gone, though it may never talk to it.
    fn watch(&mut self, peer: Rank);
}

/// The choices of an idle thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rest {
    /// Sleep: whatever comes wakes it.
    Sleep,
    /// Sleep for a moment: nothing announces what is waited for.
    Nap,
    /// Poll again.
    Poll,
}

/// An endpoint in a network: it has an address, and no node so far.
pub(crate) trait Endpoint {
    /// The network that it becomes.
    type Network: NodeTransport;

    /// Its address, for peers.
    fn address(&self) -> &[u8];

    /// Its protocol.
    fn protocol(&self) -> NetProtocol;

    /// Makes a node's network of it. With what the engine is to register, if it is to register anything.
    fn into_network(self, setup: Setup) -> (Self::Network, Option<Settings>);
}

/// A node's facts for its network.
pub(crate) struct Setup {
    pub(crate) members: Members,
    /// This process's memory.
    pub(crate) memory: OwnMemory,
    pub(crate) heap: Arc<HeapState>,
    pub(crate) silence: Silence,
    /// How memory is registered; `None`: as suits the network.
    pub(crate) strategy: Option<Strategy>,
    /// Bytes that may be registered at a time; `None`: as suits the host.
    pub(crate) pin_bytes: Option<u64>,
}

/// A process, as peers tell it from others that have had its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    pub(crate) rank: Rank,
    /// How many processes had the rank before.
    pub(crate) incarnation: u32,
}

/// Finds the address of a peer's endpoint. A network asks at the first word with the peer, from it or to it,
/// with the engine held: a handler that answers must not be the first to ask.
pub(crate) type Find = Box<dyn Fn(Rank) -> Result<Box<[u8]>, OpError> + Send>;

/// How long a peer may be silent before it is lost; `None`: as long as it likes. Asked when it is first
/// talked to.
pub(crate) type Silence = Box<dyn Fn(Rank) -> Option<Duration> + Send>;

/// The processes of a job, as this one is told.
pub(crate) struct Members {
    /// The secret that only they know.
    pub(crate) secret: Box<[u8]>,
    /// This process.
    pub(crate) own: Party,
    /// By rank: how many processes had it before.
    pub(crate) incarnations: Vec<u32>,
    pub(crate) find: Find,
}

/// A process from outside the job, which has met this one.
pub(crate) struct Outsider {
    /// The address of its endpoint, and at which its process was met.
    pub(crate) endpoint: Vec<u8>,
    pub(crate) met: Option<SocketAddr>,
    /// The secret that only the two know.
    pub(crate) secret: Box<[u8]>,
    /// Whether this process has called it, and speaks first.
    pub(crate) called: bool,
    /// Its name for this process.
    pub(crate) place: Rank,
    /// How long it may be silent before it is lost.
    pub(crate) silence: Option<Duration>,
}

/// From where an endpoint is to be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From this host, and from no other where the network can tell.
    Host,
    /// From other hosts, at this address, which may stand for all; or why there is none. A network that has
    /// interfaces of its own takes one of these where none has the address.
    Network(Result<SocketAddr, String>),
    /// At this address of the host's only.
    Interface(SocketAddr),
}

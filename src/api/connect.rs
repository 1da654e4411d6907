//! Peers from outside any job: nodes that find each other by their addresses, and come and go at any time.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::Rank;

use crate::api::node::Node;
use crate::base::code::{Code, into_io_error, of_system};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::Error;
use crate::base::lock::lock;
use crate::job::launched::{Decline, JoinError, Notice, Refusal};
use crate::job::unlaunched::{
    Address, AddressError, Arrival, CallError, Introduce, Introduction, Listen, ListenError, ListenerConfig,
    PeerListener, PeerRoute, check_address, ways_to,
};
use crate::runtime::bring_up_network;
use crate::runtime::core::{NodeCore, Outside};
use crate::transport::contract::Outsider;
use crate::transport::list::{NetworkPlan, Transport};
use crate::transport::peers::{Card, check_place};

/// How long a connection may take when the node has no timeout.
const CONNECT_WITHIN: Duration = Duration::from_secs(60);

/// Meetings that may come to nothing in one call, as each takes a number: the first may find a peer that was
/// lost just now.
const TRIES: u32 = 2;

debug_is_display!(ConnectError);

/// Why a node has no address, or another could not be made a peer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The bytes are no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The node is a launched job's, whose ranks are all the peers that it has.
    #[error("this node is of a launched job of {size}, which nobody joins later")]
    InJob {
        /// The job's size.
        size: u32,
    },
    /// The address is this very node's.
    #[error("the address is this node's own")]
    Oneself,
    /// The node is on another host, or in another network or process namespace, and its address names no way
    /// there: it had no network.
    #[error(
        "the node is on another host, or in another network or process namespace, and its address names no way there"
    )]
    Elsewhere,
    /// The node listens nowhere, by its setting: so it has no address, and reaches no node but by shared
    /// memory.
    #[error(
        "STANDPIPE_LISTEN=none: this node has no address, and reaches only nodes that share memory with it, since whatever is \
         reached over a network must listen itself"
    )]
    NotListening,
    /// The node cannot listen where it is told to.
    #[error(
        "cannot listen at {at}, as STANDPIPE_LISTEN says, which is to be an address of this host's and a free port: {source}"
    )]
    Listen {
        /// The address and port.
        at: SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// This process has no network, and the node can be reached by nothing else.
    #[error("the node is reached over a network only: {why}")]
    Network {
        /// Why there is none.
        why: String,
    },
    /// The node's host was not reached over the network, or others listen there: then the node is gone or
    /// stopped, or the address is not the one that it gave.
    #[error("the node was not reached over the network: {tried}")]
    Unreachable {
        /// The result of each way that the address names.
        tried: String,
    },
    /// The process that gave the address has ended, or has closed its node, or is just about to. If it was
    /// started again, it has another address.
    #[error("the node that gave the address is gone")]
    Gone,
    /// Another user's process listens where the node did. It has not been shown the secret.
    #[error("the node belongs to user {theirs}, this process to user {ours}")]
    OtherUser {
        /// This process's user.
        ours: u32,
        /// The other's.
        theirs: u32,
    },
    /// This node has had as many peers as it has room for: lost ones count.
    #[error(
        "this node has room for {peers} peers, and has had as many: give it more (STANDPIPE_PEERS, Config::peers_max)"
    )]
    Full {
        /// The most peers that it can have.
        peers: u32,
    },
    /// The node did not understand what it was sent.
    #[error("the node refused: {0}")]
    Refused(Refusal),
    /// The node does not take this one for a peer, and says why.
    #[error("the node does not take this one for a peer: {0}")]
    Declined(Decline),
    /// The node handed over something that cannot be used: it registered other handlers, or breaks the
    /// protocol.
    #[error("the node cannot be a peer: {what}")]
    Unfit {
        /// The fault.
        what: String,
    },
    /// The node's process is gone already, or in a process namespace out of sight.
    #[error("the node's process {pid} cannot be seen")]
    Unseen {
        /// Its number as it is seen from here, or zero.
        pid: u32,
    },
    /// The node did not answer in time: it may be stopped, or too much of the time went into opening
    /// libfabric here.
    #[error("the node did not answer within {} ms{}", waited.as_millis(), of_each(tried))]
    Timeout {
        /// How long the call took, the opening of libfabric included.
        waited: Duration,
        /// The result, by then, of each way that the address names, or nothing where the node itself was
        /// reached.
        tried: String,
    },
    /// The node answered what makes no sense.
    #[error("the node did not answer as nodes do")]
    Garbled,
    /// This node is closing, or has closed.
    #[error("this node is closing, or has closed")]
    Closed,
    /// The call may wait, and a handler must not.
    #[error("{call} may wait, and cannot be called in a handler")]
    InHandler {
        /// The call.
        call: &'static str,
    },
    /// This process is a child made by `fork`, and the node its parent's.
    #[error("{call}: the node is that of the process that this one was forked from; open one of its own")]
    Forked {
        /// The call.
        call: &'static str,
    },
    /// The system gave no socket, thread or file descriptor.
    #[error("the system refused a socket, a thread or a file descriptor: {0}")]
    Os(#[from] std::io::Error),
}

impl ConnectError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            ConnectError::Address(error) => error.code(),
            ConnectError::InJob { .. } => Code::InJob,
            ConnectError::Oneself | ConnectError::Elsewhere => Code::Address,
            ConnectError::NotListening | ConnectError::Listen { .. } => Code::NotListening,
            ConnectError::Network { .. } => Code::NoNetwork,
            ConnectError::Unreachable { .. } | ConnectError::Unseen { .. } => Code::Unreachable,
            ConnectError::Gone => Code::PeerLost,
            ConnectError::OtherUser { .. } => Code::Denied,
            ConnectError::Full { .. } => Code::NoRoom,
            ConnectError::Refused(_) | ConnectError::Declined(_) => Code::Refused,
            ConnectError::Unfit { .. } | ConnectError::Garbled => Code::Protocol,
            ConnectError::Timeout { .. } => Code::Timeout,
            ConnectError::Closed => Code::Closed,
            ConnectError::InHandler { .. } => Code::InHandler,
            ConnectError::Forked { .. } => Code::Forked,
            ConnectError::Os(error) => of_system(error),
        }
    }
}

into_io_error!(ConnectError);

/// The end of a sentence that says what became of each way, if there is anything to say.
fn of_each(tried: &str) -> String {
    if tried.is_empty() { String::new() } else { format!(": {tried}") }
}

/// Why a call of this node's is not taken.
fn refused(error: Error) -> ConnectError {
    match error {
        Error::Closed { .. } => ConnectError::Closed,
        Error::Forked { call } => ConnectError::Forked { call },
        Error::InHandler { call } => ConnectError::InHandler { call },
        other => unreachable!("no call is refused for {other}"),
    }
}

impl From<CallError> for ConnectError {
    fn from(error: CallError) -> ConnectError {
        match error {
            CallError::Address(error) => ConnectError::Address(error),
            CallError::Oneself => ConnectError::Oneself,
            CallError::Elsewhere => ConnectError::Elsewhere,
            CallError::NotListening => ConnectError::NotListening,
            CallError::Network(why) => ConnectError::Network { why },
            CallError::Unreachable(tried) => ConnectError::Unreachable { tried },
            // One place is this process's own.
            CallError::Full { places } => ConnectError::Full { peers: places - 1 },
            CallError::Join(error) => ConnectError::from(error),
            CallError::Declined(decline) => ConnectError::Declined(decline),
            CallError::Unfit(what) => ConnectError::Unfit { what },
            CallError::Unseen { pid } => ConnectError::Unseen { pid },
            CallError::Timeout { waited, tried } => ConnectError::Timeout { waited, tried },
            CallError::Closed => ConnectError::Closed,
        }
    }
}

impl From<ListenError> for ConnectError {
    fn from(error: ListenError) -> ConnectError {
        match error {
            ListenError::Listen { at, source } => ConnectError::Listen { at, source },
            ListenError::Os(error) => ConnectError::Os(error),
        }
    }
}

impl From<JoinError> for ConnectError {
    fn from(error: JoinError) -> ConnectError {
        match error {
            // A node that is just ending may have closed one socket and not yet the other.
            JoinError::NoBroker | JoinError::HungUp => ConnectError::Gone,
            JoinError::ForeignBroker { ours, theirs } => ConnectError::OtherUser { ours, theirs },
            JoinError::Refused(refusal) => ConnectError::Refused(refusal),
            JoinError::Timeout { waited } => ConnectError::Timeout { waited, tried: String::new() },
            JoinError::Io(error) => ConnectError::Os(error),
            JoinError::Malformed | JoinError::Descriptors { .. } => ConnectError::Garbled,
        }
    }
}

/// Peers from outside any job.
impl Node {
    /// This node's address: bytes to be sent, by any means, to those who are to be its peers. They are a
    /// secret: whoever has them may become a peer, on this host if it belongs to this user, and reads and
    /// writes this process's heap then, and what it [exposes](Node::expose).
    ///
    /// The address means nothing once the node is closed. It names the host's IP addresses as they are at the
    /// call: an address that was given before stays good for as long as one of those that it names leads
    /// here. The call opens the listener: from the first call on, a thread waits for those who come, at a
    /// socket of this host's and at a TCP port, or as [`Config::listen`](crate::Config::listen) says. Where
    /// the node has handlers, and [`ProgressThread::Auto`](crate::ProgressThread::Auto), it starts the
    /// progress thread besides, which runs them while no call waits. A peer that has come has a number here,
    /// which [`Call::from`] tells handlers, and which [`Node::peers`] lists.
    ///
    /// [`Call::from`]: crate::Call::from
    ///
    /// # Errors
    /// [`ConnectError::InJob`] in a launched job. [`ConnectError::Os`] where the system gives no socket or
    /// thread. [`ConnectError::Network`] where all peers are to be reached over a network, and there is none.
    /// [`ConnectError::NotListening`] and [`ConnectError::Listen`] where the node is to listen nowhere, or
    /// where it cannot.
    pub fn address(&self) -> Result<Address, ConnectError> {
        let peer_listener = self.peer_listener()?;
        if !peer_listener.listens() {
            return Err(ConnectError::NotListening);
        }
        self.core.attend_to_callers()?;
        Ok(peer_listener.address())
    }

    /// Makes the node that gave this address a peer, and returns its number here: what all operations want as
    /// the peer's rank. This node is then a peer of that one, too, with a number there. A node that is one
    /// already is not connected to again: its number is returned.
    ///
    /// Numbers are this node's own, counted from 1, and given once; one may be left out where the other ended
    /// while it was called. A node of this host that did not answer in time keeps the number that it was
    /// offered. The next call goes on waiting for the same answer, and where it comes meanwhile, the two are
    /// peers. When the peer ends or leaves, operations by its number end with [`Error::PeerLost`] for good: a
    /// process that is started again has another address, and gets another number.
    ///
    /// A node of this host and this network and process namespace is reached by shared memory, unless the
    /// configuration of either says [`Transport::Ofi`]. Others are reached over the network, which is opened
    /// for the first of them.
    ///
    /// The other need make no call meanwhile. Waits until it has answered, or as long as [`Node::within`] or
    /// the node's timeout says, 60 s where there is none. The first call of this or of [`Node::address`] that
    /// needs libfabric waits as long as libfabric takes to open, some tenths of a second on an idle machine.
    /// The ways to another host are tried one each 100 ms, or as soon as the one before has failed. A way
    /// that does not reach the node in 5 s, or says nothing in 15 s, is given up.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect_to(&self, address: impl AsRef<[u8]>) -> Result<Rank, ConnectError> {
        self.may_wait("connecting to a node").map_err(refused)?;
        let (now, within) = (Instant::now(), self.timeout.unwrap_or(CONNECT_WITHIN));
        let deadline = now.checked_add(within).unwrap_or(now + CONNECT_WITHIN);
        let _span = tracing::debug_span!("meet").entered();
        if !self.core.peers.is_launched() {
            // Before a network is opened for it.
            check_address(address.as_ref())?;
        }
        let peer_listener = self.peer_listener()?;
        let mut tries = 0;
        loop {
            let number = peer_listener.call(address.as_ref(), deadline).map_err(|error| {
                match ConnectError::from(error) {
                    ConnectError::Timeout { tried, .. } => {
                        ConnectError::Timeout { waited: now.elapsed(), tried }
                    }
                    error => error,
                }
            })?;
            // Its first word may have been refused.
            self.core.note_losses();
            if !self.core.peers.is_gone(number) {
                // The other may answer by handlers of this one, whose process may sleep meanwhile.
                self.core.attend_to_callers()?;
                return Ok(number);
            }
            // Its process may live, but was found to break the rules, or to be out of reach.
            peer_listener.forget(number);
            if Instant::now() >= deadline {
                return Err(ConnectError::Timeout { waited: now.elapsed(), tried: String::new() });
            }
            tries += 1;
            if tries == TRIES {
                let ways: Vec<String> = ways_to(address.as_ref()).iter().map(SocketAddr::to_string).collect();
                let tried = format!(
                    "the two have met, and lost each other at once, {tries} times, by {}",
                    ways.join(", ")
                );
                return Err(ConnectError::Unreachable { tried });
            }
        }
    }

    /// Every peer that this node is connected to now, in rising order of their numbers. Of a job those are
    /// the ranks that were talked to, and besides all that have come from outside and are not lost.
    pub fn peers(&self) -> Vec<Rank> {
        self.core.peers.connected()
    }

    /// The listener, which is opened at the first call.
    fn peer_listener(&self) -> Result<Arc<PeerListener>, ConnectError> {
        self.may_call("the node's address").map_err(refused)?;
        let peers = &self.core.peers;
        let (size, places) = (peers.own().size, peers.own().places);
        // Held until the listener is open, so that there is one.
        let mut outside = lock(&self.core.opening.outside);
        if let Some(peer_listener) = peers.peer_listener() {
            return Ok(peer_listener);
        }
        if peers.is_launched() {
            return Err(ConnectError::InJob { size });
        }
        if places == size {
            return Err(ConnectError::Full { peers: 0 });
        }
        let Outside { segments: [control, heap, ledger], plan } =
            outside.as_ref().ok_or(ConnectError::Closed)?;
        let (listens, near) = (plan.listen != Listen::Nowhere, plan.transport == Transport::Shm);
        if !near {
            if !listens {
                return Err(ConnectError::NotListening);
            }
            // Nobody can come otherwise.
            bring_up_network::introduce(&self.core, plan).map_err(|why| ConnectError::Network { why })?;
        }
        let config = ListenerConfig {
            segments: [control.try_clone()?, heap.try_clone()?, ledger.try_clone()?],
            first: size,
            places,
            near,
            listens,
            silence: plan.silence,
            introduce: introduce(&self.core, plan),
            admit: admit(&self.core, plan.silence),
            tell: tell(&self.core),
        };
        let peer_listener = Arc::new(PeerListener::open(config, plan.listen)?);
        if peer_listener.listens() {
            peers.own().control.publish_listener(&peer_listener.for_watchers());
        }
        peers.set_peer_listener(&peer_listener);
        *outside = None;
        Ok(peer_listener)
    }
}

/// How this node says what far peers must know.
fn introduce(core: &Arc<NodeCore>, plan: &NetworkPlan) -> Introduce {
    let (core, plan) = (Arc::downgrade(core), plan.clone());
    Box::new(move || {
        let core = core.upgrade().ok_or("it is closing")?;
        let card = bring_up_network::introduce(&core, &plan)?;
        Ok(postcard::to_stdvec(&card).expect("plain values can be written"))
    })
}

/// How those who come are entered.
fn admit(
    core: &Arc<NodeCore>,
    silence: Option<Duration>,
) -> Box<dyn Fn(Arrival) -> Result<(), String> + Send + Sync> {
    let core: Weak<NodeCore> = Arc::downgrade(core);
    Box::new(move |Arrival { number, place, places, way }| {
        let core = core.upgrade().ok_or("it is closing")?;
        let entered = match way {
            PeerRoute::Near(handles) => {
                let entered = core.peers.admit(number, handles, (place, places));
                // It may have rung before it was known here, and then nobody has listened.
                core.peers.own().control.bell().ring(number as usize);
                entered
            }
            PeerRoute::Far(far) => admit_far(&core, number, (place, places), far, silence),
        };
        entered.map_err(|error| match error {
            Error::HandlersDiffer { handler, .. } => format!("another handler of the number {handler}"),
            Error::Protocol { what, .. } | Error::Connect { why: what, .. } => what,
            other => other.to_string(),
        })
    })
}

fn admit_far(
    core: &Arc<NodeCore>,
    number: Rank,
    (place, places): (u32, u32),
    Introduction { card, secret, called, met }: Introduction,
    silence: Option<Duration>,
) -> Result<(), Error> {
    check_place(number, (place, places))?;
    let no_card = || Error::Protocol { peer: number, what: "a card that cannot be read".into() };
    let card: Card = match postcard::take_from_bytes(&card) {
        Ok((card, [])) => card,
        _ => return Err(no_card()),
    };
    let (endpoint, secret) = (card.endpoint.clone(), secret.bytes()[..].into());
    let silence = silence.filter(|_| card.attends);
    bring_up_network::meet(core, number, &card, &Outsider { endpoint, met, secret, called, place, silence })
}

fn tell(core: &Arc<NodeCore>) -> Box<dyn Fn(Notice) + Send + Sync> {
    let core = Arc::downgrade(core);
    Box::new(move |notice: Notice| {
        if let Some(core) = core.upgrade() {
            core.on_notice(&notice);
        }
    })
}

#[cfg(test)]
mod tests;

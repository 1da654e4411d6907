//! The listener of a node that takes peers at any time. It lets in each process that shows the token of the
//! node's address, calls on the nodes whose addresses this one is given, and tells when a peer is gone.
//!
//! ```text
//!   caller                                                  called
//!    | connect to the socket that the address names; the listener's user must be this one's, else no token is shown
//!    |--- Meet: token, which node, its place here + 2 descriptors -->| user, as the kernel says; token in constant time;
//!    |                                                               | maps and checks the segments; gives a number
//!    |<-- Met: the caller's place there + 2 descriptors -------------|
//!    | maps and checks the segments
//!   ... the connection stays open: who sees it or the other's process end has lost the peer
//! ```
//! A peer has a number at each of the two, which is its place in the control segment there. Numbers are given
//! once: a process that is started again is another node, which gets another number, and the old one stays
//! lost.
//!
//! That is the way between processes that share a network namespace; [over the network](network_handshake)
//! others meet.
//!
//! Two nodes may call each other at once. The call of the one whose name is lower then counts, and the other
//! is answered `Crossed`, upon which its caller waits for the first, or tries again. Over the network a call
//! counts from the end of its handshake on: the other's may be the only one that gets through.

mod dial;
mod listener_thread;
mod network_handshake;
mod peer_ids;
mod state;
mod tcp_acceptor;

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

pub(crate) use self::dial::CallError;
pub use self::network_handshake::check_handshake_words;
use self::peer_ids::PeerIds;
use self::state::ListenerState;
pub(crate) use self::state::{Arrival, Introduce, Introduction, ListenError, ListenerConfig, PeerRoute};
pub use self::tcp_acceptor::Listen;
use self::tcp_acceptor::TcpAcceptor;
use super::address::{Address, Told};
use crate::job::launched::socket::listen_at;
use crate::job::launched::unauthenticated::Unauthenticated;
use crate::job::launched::wire::How;
use crate::job::plumbing::addresses::ways_to;
use crate::job::plumbing::env::{JobName, NAME_BYTES};
use crate::job::plumbing::host_id::HostId;
use crate::job::plumbing::poll::Waker;
use crate::job::plumbing::secret::{SECRET_BYTES, Secret};

/// Connections that have not become a peer's, at a time.
const UNAUTHENTICATED_MAX: usize = 64;

/// An open listener. Dropping it takes leave of all peers.
///
/// Any thread may call its methods.
pub(crate) struct PeerListener {
    shared: Arc<ListenerState>,
    /// Where it listens for those who come over the network, if it does.
    bound: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl PeerListener {
    /// Opens it, and starts the thread that watches it.
    pub(crate) fn open(config: ListenerConfig, listen: Listen) -> Result<PeerListener, ListenError> {
        let (node, secret) = (JobName::random()?, Secret::random()?);
        let looking = Secret::random()?;
        let socket = if config.listens { Some(listen_at(&node)?) } else { None };
        let unauthenticated = Unauthenticated::new(socket, UNAUTHENTICATED_MAX);
        let peer_ids = Mutex::new(PeerIds::new(config.first, config.places));
        let waker = Waker::new()?;
        let tcp_acceptor = TcpAcceptor::open(listen)?;
        let bound = tcp_acceptor.bound();
        let shared = Arc::new(ListenerState {
            node,
            secret,
            looking,
            config,
            peer_ids,
            settled: Condvar::new(),
            waker,
        });
        let thread = listener_thread::start(Arc::clone(&shared), unauthenticated, tcp_acceptor)?;
        Ok(PeerListener { shared, bound, thread: Some(thread), pid: std::process::id() })
    }

    /// The node's address, which is of use only where it [listens](ListenerConfig::listens). It names the
    /// ways that lead here now: interfaces come and go.
    pub(crate) fn address(&self) -> Address {
        let ListenerState { node, secret, config, .. } = &*self.shared;
        let ways = self.bound.map(ways_to).unwrap_or_default();
        Told::new(HostId::own(), node, secret.clone()).over_network(ways, config.near).to_address()
    }

    /// The way for those who only look here:
    /// [`JobEnv::of_listener`](crate::job::plumbing::env::JobEnv::of_listener).
    pub(crate) fn for_watchers(&self) -> [u8; NAME_BYTES + SECRET_BYTES] {
        let mut bytes = [0; NAME_BYTES + SECRET_BYTES];
        let (name, secret) = bytes.split_at_mut(NAME_BYTES);
        name.copy_from_slice(&self.shared.node.bytes());
        secret.copy_from_slice(self.shared.looking.bytes());
        bytes
    }

    /// Whether anybody can come.
    pub(crate) fn listens(&self) -> bool {
        self.shared.config.listens
    }

    /// Makes the node at `address` a peer, and returns its number, which is the same at every call for the
    /// same node, as long as it is not lost.
    pub(crate) fn call(&self, address: &[u8], deadline: Instant) -> Result<u32, CallError> {
        self.shared.call(&Told::parse(address)?, deadline)
    }

    /// Lets a peer know that its private memory cannot be attached to from here. Does not wait.
    pub(crate) fn request_progress(&self, number: u32) {
        self.shared.peer_ids().request_progress(number);
    }

    /// Ends the connection with a peer that was found to be gone, or was given up.
    pub(crate) fn forget(&self, number: u32) {
        self.shared.lose(number, How::Vanished);
    }

    /// Takes leave of all peers, and lets nobody in any more. Does not wait. Says whether the thread wakes,
    /// and ends.
    pub(crate) fn close(&self) -> bool {
        if std::process::id() != self.pid {
            // After a fork the thread is not here, and the peers are the parent's.
            return false;
        }
        for line in self.shared.peer_ids().close() {
            line.take_leave();
        }
        let wakes = self.shared.waker.wake();
        self.shared.settled.notify_all();
        wakes
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        // Where the program has closed the descriptor, to wait for the thread would be for ever.
        if self.close()
            && let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the owner's callback has been printed by the thread it happened on.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod network_handshake_tests;
#[cfg(test)]
mod tests;

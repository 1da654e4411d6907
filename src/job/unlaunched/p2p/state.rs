//! The configuration of a listener, and the state that callers and the listener's thread share.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::peer_ids::{PeerIds, Standing, Who};
use crate::job::launched::member::{Notice, PeerHandles};
use crate::job::launched::socket::HANDLES;
use crate::job::launched::wire::{Decline, How};
use crate::job::plumbing::env::JobName;
use crate::job::plumbing::poll::Waker;
use crate::job::plumbing::secret::Secret;

/// A process that is to be a peer.
pub(crate) struct Arrival {
    /// Its number here.
    pub(crate) number: u32,
    /// This process's place there, and how many there are.
    pub(crate) place: u32,
    pub(crate) places: u32,
    pub(crate) way: PeerRoute,
}

/// How a process that is to be a peer is reached.
pub(crate) enum PeerRoute {
    /// By the memory that it shares.
    Near(PeerHandles),
    /// Over the network.
    Far(Introduction),
}

/// The knowledge of a process that shares nothing with this one.
pub(crate) struct Introduction {
    /// Its card, as [`ListenerConfig::introduce`] makes one of this process.
    pub(crate) card: Vec<u8>,
    /// The secret that only the two know.
    pub(crate) secret: Secret,
    /// Whether this process has called that one.
    pub(crate) called: bool,
    /// The address of its host at which the two have met.
    pub(crate) met: Option<SocketAddr>,
}

/// Says what far peers must know of this process, which from then on is to be reached over the network; or
/// why it is not. May wait for the network. Called by any thread.
pub(crate) type Introduce = Box<dyn Fn() -> Result<Vec<u8>, String> + Send + Sync>;

/// Makes an arrival a peer, or says what is wrong with it. Called by any thread.
pub(crate) type Admit = Box<dyn Fn(Arrival) -> Result<(), String> + Send + Sync>;

/// Is told what becomes of peers. Called by any thread.
pub(crate) type Tell = Box<dyn Fn(Notice) + Send + Sync>;

/// Why a listener cannot be opened.
#[derive(Debug)]
pub(crate) enum ListenError {
    /// Nobody can listen at the address that was given.
    Listen { at: SocketAddr, source: io::Error },
    /// The system gave no socket or thread.
    Os(io::Error),
}

impl<E: Into<io::Error>> From<E> for ListenError {
    fn from(error: E) -> ListenError {
        ListenError::Os(error.into())
    }
}

/// The configuration of a listener.
pub(crate) struct ListenerConfig {
    /// The segments that peers are handed: control segment, heap and ledger.
    pub(crate) segments: [OwnedFd; HANDLES],
    /// Peers have the numbers from `first` on, below `places`.
    pub(crate) first: u32,
    pub(crate) places: u32,
    /// Whether peers of this host are reached by shared memory.
    pub(crate) near: bool,
    /// Whether anything listens for those who come.
    pub(crate) listens: bool,
    /// How long nothing may be heard from a far peer's host before that is lost.
    pub(crate) silence: Option<Duration>,
    pub(crate) introduce: Introduce,
    pub(crate) admit: Admit,
    pub(crate) tell: Tell,
}

/// The state that callers and the listener's thread share.
pub(super) struct ListenerState {
    pub(super) node: JobName,
    pub(super) secret: Secret,
    /// For those who only look.
    pub(super) looking: Secret,
    pub(super) config: ListenerConfig,
    pub(super) peer_ids: Mutex<PeerIds>,
    /// Rung when a call has ended or a peer has come.
    pub(super) settled: Condvar,
    pub(super) waker: Waker,
}

impl ListenerState {
    /// No panic leaves the table of peers half-written, so a poisoned lock is as good as another.
    pub(super) fn peer_ids(&self) -> MutexGuard<'_, PeerIds> {
        self.peer_ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer is gone.
    pub(super) fn lose(&self, number: u32, how: How) {
        if self.peer_ids().strike(number) {
            (self.config.tell)(Notice::Lost { rank: number, how });
        }
    }

    /// Whether a node that has called, and shown the secret, is to be a peer: the number that it gets.
    pub(super) fn expect(&self, who: &Who) -> Result<u32, Decline> {
        let mut peer_ids = self.peer_ids();
        let is_called = match peer_ids.standing(who) {
            // It says that it is this one.
            _ if who.node == self.node => return Err(Decline::Crossed),
            Some(Standing::Peer(_) | Standing::Entering) => return Err(Decline::Crossed),
            Some(Standing::Called(_)) => true,
            // An earlier question to it may still be answered: that is a call, too. A thread that only knocks
            // has said nothing, and says nothing once it finds that this one has called.
            Some(Standing::Dialling(_)) | None => peer_ids.is_asked(who),
        };
        if is_called && self.node < who.node {
            return Err(Decline::Crossed);
        }
        let peers = self.config.places - self.config.first;
        let number = peer_ids.take_number().ok_or(Decline::Full { peers })?;
        peer_ids.set(who, Standing::Entering);
        Ok(number)
    }

    /// The result of one that has called and was [expected](ListenerState::expect) is settled.
    pub(super) fn settle(&self, who: &Who) {
        self.peer_ids().clear(who, Standing::Entering);
        self.settled.notify_all();
    }
}

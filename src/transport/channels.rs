//! A network for tests: channels between the threads of one process. It has messages and atomics: the engine
//! puts and gets by message.
//!
//! It shows what a transport has to have. Beside this folder it is known to the [list](super::list) alone.

pub(crate) mod any;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex};

use engine::registration::Settings;
use engine::{
    Atomic, Counters, Event, Header, Inbox, Lane, OpError, OpId, Place, Rank, SendError, Submit, Transport,
};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::contract::{Endpoint, Members, NodeTransport, Outsider, Rest, Setup};
use super::mr_invalidation::{CachesRegistrations, ChangeSource};
use super::protocol::NetProtocol;
use super::shm::OwnMemory;
use super::shm::atomic::atomic_at;
use crate::base::lock::lock;

/// Its name.
const PROVIDER: &str = "channels";

/// Bytes of a message's payload, at most.
const PAYLOAD_MAX: usize = 4096;

/// All endpoints of this process, by address.
static ENDPOINTS: LazyLock<Mutex<Endpoints>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Endpoints {
    open: BTreeMap<u64, Arc<Mailbox>>,
    /// How many there were.
    opened: u64,
}

/// An endpoint's letters, and the bell that wakes its node.
struct Mailbox {
    letters: Mutex<VecDeque<Letter>>,
    bell: OwnedFd,
}

/// One endpoint's words to another.
struct Letter {
    /// What the receiver calls the sender.
    from: Rank,
    what: What,
}

enum What {
    Message {
        lane: Lane,
        header: [u64; Header::WORDS],
        payload: Vec<u8>,
    },
    /// An atomic on a word of the receiver's.
    Atomic {
        op: OpId,
        word: Place,
        atomic: Atomic,
    },
    /// How one of the receiver's ended.
    Done {
        op: OpId,
        result: Result<u64, OpError>,
    },
    /// The sender leaves.
    Bye,
    /// The sender has ended, or has given the receiver up.
    End,
}

/// An endpoint that is open.
pub(crate) struct OpenEndpoint {
    address: [u8; size_of::<u64>()],
    mailbox: Arc<Mailbox>,
    /// What threads sleep on.
    wait: OwnedFd,
}

/// Opens an endpoint.
pub(crate) fn open() -> OpenEndpoint {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
    let wait = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    epoll::add(&wait, &bell, EventData::new_u64(0), EventFlags::IN).expect("two descriptors");
    let mailbox = Arc::new(Mailbox { letters: Mutex::default(), bell });
    let mut endpoints = lock(&ENDPOINTS);
    endpoints.opened += 1;
    let address = endpoints.opened;
    endpoints.open.insert(address, Arc::clone(&mailbox));
    OpenEndpoint { address: address.to_le_bytes(), mailbox, wait }
}

impl Endpoint for OpenEndpoint {
    type Network = ChannelsNetwork;

    fn address(&self) -> &[u8] {
        &self.address
    }

    fn protocol(&self) -> NetProtocol {
        NetProtocol { provider: PROVIDER.to_owned(), ..NetProtocol::default() }
    }

    fn into_network(self, setup: Setup) -> (ChannelsNetwork, Option<Settings>) {
        let network = ChannelsNetwork {
            endpoint: self,
            own: setup.memory,
            members: setup.members,
            links: BTreeMap::new(),
            left: BTreeSet::new(),
            lost: Vec::new(),
            signalled: false,
        };
        (network, None)
    }
}

/// A peer that was talked to.
struct Link {
    /// `None`: it is gone.
    mailbox: Option<Arc<Mailbox>>,
    /// What it calls this process.
    place: Rank,
}

/// Messages by channels, as a node's transport.
pub(crate) struct ChannelsNetwork {
    endpoint: OpenEndpoint,
    own: OwnMemory,
    members: Members,
    links: BTreeMap<Rank, Link>,
    left: BTreeSet<Rank>,
    lost: Vec<Rank>,
    /// A peer has changed a word, and threads that sleep have not been told.
    signalled: bool,
}

impl ChannelsNetwork {
    /// The link to a member of the job, made if this is the first word.
    fn link(&mut self, peer: Rank) -> Result<&Link, OpError> {
        if !self.links.contains_key(&peer) {
            let mailbox = mailbox_at(&(self.members.find)(peer)?);
            if mailbox.is_none() {
                self.lost.push(peer);
            }
            self.links.insert(peer, Link { mailbox, place: self.members.own.rank });
        }
        Ok(&self.links[&peer])
    }

    fn post(&mut self, peer: Rank, what: What) -> Result<(), OpError> {
        let Link { mailbox, place } = self.link(peer)?;
        let mailbox = mailbox.as_ref().ok_or(OpError::PeerLost { peer })?;
        lock(&mailbox.letters).push_back(Letter { from: *place, what });
        rustix::io::write(&mailbox.bell, &1_u64.to_ne_bytes()).expect("few letters");
        Ok(())
    }

    /// From now on nothing goes to the peer. Whether something could before.
    fn part_with(&mut self, peer: Rank) -> bool {
        self.links.get_mut(&peer).is_some_and(|link| link.mailbox.take().is_some())
    }

    fn lose(&mut self, peer: Rank) {
        if self.part_with(peer) {
            self.lost.push(peer);
        }
    }
}

/// An error that a peer has found in its own memory.
fn of(peer: Rank, error: OpError) -> OpError {
    match error {
        OpError::Fault { mem, addr, len, .. } => OpError::Fault { peer, mem, addr, len },
        other => other,
    }
}

/// The mailbox of the endpoint at an address, if that is open.
fn mailbox_at(address: &[u8]) -> Option<Arc<Mailbox>> {
    let address = u64::from_le_bytes(address.try_into().ok()?);
    lock(&ENDPOINTS).open.get(&address).cloned()
}

impl Drop for ChannelsNetwork {
    fn drop(&mut self) {
        lock(&ENDPOINTS).open.remove(&u64::from_le_bytes(self.endpoint.address));
        for peer in self.links.keys().copied().collect::<Vec<_>>() {
            let _ = self.post(peer, What::End);
        }
    }
}

impl CachesRegistrations for ChannelsNetwork {
    fn memory(&mut self) -> Option<&mut ChangeSource> {
        None
    }
}

impl Transport for ChannelsNetwork {
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let what = What::Message { lane, header: *header, payload: payload.to_vec() };
        self.post(peer, what).map_err(SendError::Failed)
    }

    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        loop {
            let Letter { from, what } = lock(&self.endpoint.mailbox.letters).pop_front()?;
            // Not first when it is answered: a handler cannot wait until the peer's address is found.
            let gone = self.link(from).is_ok_and(|link| link.mailbox.is_none());
            match what {
                _ if gone => {}
                What::Message { lane, header, payload } => {
                    (inbox.header, inbox.payload) = (header, payload);
                    return Some(Event::Message { peer: from, lane });
                }
                What::Atomic { op, word, atomic } => {
                    let result = atomic_at(self.own.itself(), word, atomic);
                    // Threads may wait for the word.
                    self.signalled = true;
                    let _ = self.post(from, What::Done { op, result });
                }
                What::Done { op, result } => {
                    return Some(Event::Completed { op, result: result.map_err(|error| of(from, error)) });
                }
                What::Bye | What::End => {
                    if matches!(what, What::Bye) {
                        self.left.insert(from);
                    }
                    self.lose(from);
                    // The caller asks next for lost peers.
                    return None;
                }
            }
        }
    }

    fn payload_max(&self) -> usize {
        PAYLOAD_MAX
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        self.own.read(from, into)
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        self.own.write(to, from)
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        self.own.change(word, atomic)
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        match self.post(peer, What::Atomic { op, word, atomic }) {
            Ok(()) => Submit::Pending,
            Err(error) => Submit::Failed(error),
        }
    }

    fn disconnect(&mut self, peer: Rank) {
        let _ = self.post(peer, What::End);
        self.part_with(peer);
    }

    fn doubt(&mut self, peer: Rank) {
        let _ = self.link(peer);
        self.lose(peer);
    }
}

impl NodeTransport for ChannelsNetwork {
    fn provider(&self) -> Option<&str> {
        Some(PROVIDER)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.endpoint.wait.as_fd())
    }

    fn meet(&mut self, rank: Rank, outsider: &Outsider) -> bool {
        let Some(mailbox) = mailbox_at(&outsider.endpoint) else { return false };
        self.links.insert(rank, Link { mailbox: Some(mailbox), place: outsider.place });
        true
    }

    fn is_linked(&self, peer: Rank) -> bool {
        self.links.get(&peer).is_some_and(|link| link.mailbox.is_some())
    }

    fn spin_for_message(&mut self, _: u32) {}

    fn prepare_sleep(&mut self) -> Rest {
        // The next letter rings again.
        let _ = rustix::io::read(&self.endpoint.mailbox.bell, &mut [0; 8]);
        let is_empty = lock(&self.endpoint.mailbox.letters).is_empty() && self.lost.is_empty();
        if is_empty { Rest::Sleep } else { Rest::Poll }
    }

    fn look_at_clock_soon(&mut self) {}

    fn bytes_on_the_way(&self) -> u64 {
        0
    }

    fn add_to(&self, _: &mut Counters) {}

    fn take_signalled(&mut self) -> bool {
        std::mem::take(&mut self.signalled)
    }

    fn take_gathering(&mut self) -> bool {
        false
    }

    fn send_gathered(&mut self) {}

    fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    fn take_lost(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.lost)
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn take_leave(&mut self, peer: Rank) {
        if self.is_linked(peer) {
            let _ = self.post(peer, What::Bye);
        }
    }

    fn has_left(&self, peer: Rank) -> bool {
        self.left.contains(&peer)
    }

    fn watch(&mut self, peer: Rank) {
        let _ = self.link(peer);
    }
}

#[cfg(test)]
mod tests;

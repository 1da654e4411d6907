//! Calling on another node.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vm::spawn::{peer_credentials, peer_process};

use super::peer_ids::{Asked, PeerConnection, Standing, Who, Wire};
use super::state::{Arrival, ListenerState, PeerRoute};
use crate::job::launched::member::{JoinError, Notice, PeerHandles, ask, hear_answer};
use crate::job::launched::socket::{HANDLES, Sent, send};
use crate::job::launched::wire::{Decline, How, Reply, Request, encode};
use crate::job::plumbing::host_id::{HostId, why_alone};
use crate::job::plumbing::identity_proof::Proof;
use crate::job::unlaunched::address::{AddressError, Told};

/// How soon to call again a node that calls this one: the first time, and at most.
const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MAX: Duration = Duration::from_millis(50);

/// Why a node could not be made a peer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The bytes are no address.
    Address(AddressError),
    /// It is this very node's.
    Oneself,
    /// The node is on another host, or in another namespace, and its address names no way there.
    Elsewhere,
    /// This process has no network.
    Network(String),
    /// Nothing listens here, and over a network something has to.
    NotListening,
    /// The node's host was not reached, or somebody else listens there; of each way why not.
    Unreachable(String),
    /// All numbers have been given.
    Full { places: u32 },
    /// There was no connection, or no sensible word by it.
    Join(JoinError),
    /// The node said no.
    Declined(Decline),
    /// The segments that it handed over cannot be used.
    Unfit(String),
    /// Its process cannot be watched.
    Unseen { pid: u32 },
    /// The deadline has come; what had come of each way by then, where it has several.
    Timeout { waited: Duration, tried: String },
    /// This node is closing.
    Closed,
}

impl CallError {
    /// The deadline of a call has come that was begun then.
    pub(super) fn timeout(begun: Instant) -> CallError {
        CallError::Timeout { waited: begun.elapsed(), tried: String::new() }
    }

    /// An address names no way to a node that is not known to be on this host.
    pub(super) fn no_way() -> CallError {
        why_alone().map_or(CallError::Elsewhere, CallError::Network)
    }
}

impl From<AddressError> for CallError {
    fn from(error: AddressError) -> CallError {
        CallError::Address(error)
    }
}

/// A call that this thread has begun; dropping it ends it.
struct Turn<'a> {
    shared: &'a ListenerState,
    who: Who,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        {
            let mut peer_ids = self.shared.peer_ids();
            peer_ids.clear(&self.who, Standing::Dialling(self.number));
            peer_ids.clear(&self.who, Standing::Called(self.number));
        }
        self.shared.settled.notify_all();
    }
}

enum Begun<'a> {
    Peer(u32),
    Call(Turn<'a>),
}

impl ListenerState {
    pub(super) fn call(&self, told: &Told, deadline: Instant) -> Result<u32, CallError> {
        let begun = Instant::now();
        let node = told.node();
        if node == self.node {
            return Err(CallError::Oneself);
        }
        let near = self.is_near(told)?;
        // The identity that it would show if it called this one.
        let who = Who { proof: Proof::of(&told.secret, &node, &self.node), node };
        let mut pause = AGAIN;
        loop {
            let turn = match self.begin(&who, near, begun, deadline)? {
                // The thread that watches it may not have got to tell.
                Begun::Peer(number) if self.peer_ids().line(number).is_some_and(|line| line.has_ended()) => {
                    self.lose(number, How::Vanished);
                    continue;
                }
                Begun::Peer(number) => return Ok(number),
                Begun::Call(turn) => turn,
            };
            let called = match near {
                true => self.try_call(told, &who, deadline),
                false => self.try_call_far(told, &who, turn.number, deadline),
            };
            match called {
                Ok(number) => return Ok(number),
                // That counts, whatever became of this call.
                Err(_) if self.has_called(&who, deadline) => {}
                Err(CallError::Declined(Decline::Crossed)) if Instant::now() < deadline => {}
                Err(CallError::Declined(Decline::Crossed)) => {
                    return Err(CallError::timeout(begun));
                }
                Err(error) => return Err(error),
            }
            drop(turn);
            std::thread::sleep(pause);
            pause = AGAIN_MAX.min(pause * 2);
        }
    }

    /// Whether the node is to be called by its socket, where each sees the other's process, or over the
    /// network. Another user's socket the listener tells.
    fn is_near(&self, told: &Told) -> Result<bool, CallError> {
        let here = told.host.sees(&HostId::own());
        match here && told.near && self.config.near {
            false if told.ways.is_empty() => Err(CallError::no_way()),
            near => Ok(near),
        }
    }

    /// Whether the node that this one calls is a peer by a call of its own, or is being let in, and may be
    /// one in time.
    pub(super) fn has_called(&self, who: &Who, deadline: Instant) -> bool {
        match self.peer_ids().standing(who) {
            Some(Standing::Peer(_)) => true,
            Some(Standing::Entering) => Instant::now() < deadline,
            Some(Standing::Dialling(_) | Standing::Called(_)) | None => false,
        }
    }

    /// Waits for calls of others to and from the node, and then begins one unless it is a peer. One over the
    /// network only knocks at first.
    fn begin(
        &self,
        who: &Who,
        near: bool,
        begun: Instant,
        deadline: Instant,
    ) -> Result<Begun<'_>, CallError> {
        let mut peer_ids = self.peer_ids();
        loop {
            if peer_ids.is_closed() {
                return Err(CallError::Closed);
            }
            match peer_ids.standing(who) {
                Some(Standing::Peer(number)) => return Ok(Begun::Peer(number)),
                None => {
                    let number = peer_ids.next_turn();
                    peer_ids
                        .set(who, if near { Standing::Called(number) } else { Standing::Dialling(number) });
                    return Ok(Begun::Call(Turn { shared: self, who: who.clone(), number }));
                }
                Some(Standing::Dialling(_) | Standing::Called(_) | Standing::Entering) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(CallError::timeout(begun));
                    }
                    peer_ids = match self.settled.wait_timeout(peer_ids, left) {
                        Ok((peer_ids, _)) => peer_ids,
                        Err(poisoned) => poisoned.into_inner().0,
                    };
                }
            }
        }
    }

    fn try_call(&self, told: &Told, who: &Who, deadline: Instant) -> Result<u32, CallError> {
        let asked = self.peer_ids().take_asked(who);
        let asked = asked.map_or_else(|| self.ask(told, who, deadline).map(Arc::new), Ok)?;
        self.hear_of(who, &asked, deadline)
    }

    /// Asks a node of this host to be a peer.
    fn ask(&self, told: &Told, who: &Who, deadline: Instant) -> Result<Asked, CallError> {
        let places = self.config.places;
        let number = self.peer_ids().take_number().ok_or(CallError::Full { places })?;
        let proof = Proof::of(&self.secret, &self.node, &who.node);
        let (secret, node) = (told.secret.clone(), self.node.bytes());
        let meet = Request::Meet { secret, node, proof, place: number, places };
        let handles = self.config.segments.each_ref().map(AsFd::as_fd);
        match ask(&who.node, &meet, &handles, deadline) {
            Ok(socket) => Ok(Asked { number, socket }),
            Err(error) => {
                self.peer_ids().give_back(number);
                Err(CallError::Join(error))
            }
        }
    }

    /// Hears the answer of a node that nobody calls just now, which has not answered when it was called.
    pub(super) fn hear_late(&self, who: &Who) {
        let (_turn, asked) = {
            let mut peer_ids = self.peer_ids();
            let standing = peer_ids.standing(who);
            if matches!(standing, Some(Standing::Called(_))) {
                // A process that calls it hears it.
                return;
            }
            let Some(asked) = peer_ids.take_asked(who) else { return };
            // A process that only knocks finds that.
            let turn = matches!(standing, None | Some(Standing::Dialling(_))).then(|| {
                let number = peer_ids.next_turn();
                peer_ids.set(who, Standing::Called(number));
                Turn { shared: self, who: who.clone(), number }
            });
            (turn, asked)
        };
        if let Err(error) = self.hear_of(who, &asked, Instant::now()) {
            tracing::debug!(?error, "a node that was called in vain has answered, and is no peer");
        }
    }

    /// Hears the answer of a node that was asked, and makes it a peer if it agrees. Where it has not answered
    /// in time, it may do so later. Its number is lost where it may have taken it: it has the memory in which
    /// that is its place.
    fn hear_of(&self, who: &Who, asked: &Arc<Asked>, deadline: Instant) -> Result<u32, CallError> {
        let Asked { number, socket } = &**asked;
        let number = *number;
        let (reply, fds) = hear_answer(socket, deadline).map_err(|error| {
            match error {
                JoinError::Timeout { .. } => {
                    self.peer_ids().keep_asked(who, Arc::clone(asked));
                    // The thread that watches has one more to watch.
                    self.waker.wake();
                }
                JoinError::Refused(_) => self.peer_ids().give_back(number),
                _ => {}
            }
            CallError::Join(error)
        })?;
        let failed = |error: io::Error| CallError::Join(JoinError::Io(error));
        match reply {
            Reply::Met { place, places } => {
                let pid = peer_credentials(socket.as_fd()).map_err(failed)?.pid;
                // The system hands over none where this process has no room for them.
                let handles = handles_of(pid, fds).ok_or(failed(Errno::MFILE.into()))?;
                let wire =
                    Wire::Near { socket: socket.try_clone().map_err(failed)?, process: watch(socket, pid)? };
                let line = PeerConnection { who: who.clone(), wire };
                self.enter(line, Arrival { number, place, places, way: PeerRoute::Near(handles) }, None)
            }
            Reply::Declined(decline) => {
                self.peer_ids().give_back(number);
                Err(CallError::Declined(decline))
            }
            _ => Err(CallError::Join(JoinError::Malformed)),
        }
    }

    /// Makes the arrival a peer, and if it is the one that has called tells it so. Returns the number by
    /// which it is one: another where it has become one by another connection meanwhile.
    pub(super) fn enter(
        &self,
        line: PeerConnection,
        arrival: Arrival,
        met: Option<&Reply>,
    ) -> Result<u32, CallError> {
        let number = arrival.number;
        if let Err(what) = (self.config.admit)(arrival) {
            if met.is_none() {
                line.hang_up();
            }
            return Err(CallError::Unfit(what));
        }
        self.keep(number, line, met)
    }

    /// Keeps the connection of one that was made a peer.
    pub(super) fn keep(
        &self,
        number: u32,
        line: PeerConnection,
        met: Option<&Reply>,
    ) -> Result<u32, CallError> {
        let entered = self.enter_peer(number, line, met);
        if !matches!(entered, Ok(known) if known == number) {
            // Other threads may have used the number already.
            (self.config.tell)(Notice::Lost { rank: number, how: How::Vanished });
        }
        self.waker.wake();
        self.settled.notify_all();
        entered
    }

    fn enter_peer(&self, number: u32, line: PeerConnection, met: Option<&Reply>) -> Result<u32, CallError> {
        // Held throughout: what else is said to the peer is said by the line that stands in the table of
        // peers, after what is said here.
        let mut peer_ids = self.peer_ids();
        let handles = self.config.segments.each_ref().map(AsFd::as_fd);
        let told = |met: &Reply| match &line.wire {
            Wire::Near { socket, .. } => matches!(send(socket, &encode(met), &handles), Ok(Sent::Done)),
            Wire::Far(_) => true,
        };
        let refused = match peer_ids.standing(&line.who) {
            _ if peer_ids.is_closed() => {
                if met.is_none() {
                    line.take_leave();
                }
                Err(CallError::Closed)
            }
            Some(Standing::Peer(known)) => Ok(known),
            // It has hung up, or the system has no room for descriptors.
            _ if met.is_some_and(|met| !told(met)) => Err(CallError::Join(JoinError::HungUp)),
            _ => {
                peer_ids.enter(number, line);
                return Ok(number);
            }
        };
        line.hang_up();
        refused
    }
}

/// The descriptor that came with an answer, if it is what belongs to it.
pub(super) fn handles_of(pid: u32, fds: Vec<OwnedFd>) -> Option<PeerHandles> {
    let [control, heap, ledger] = <[OwnedFd; HANDLES]>::try_from(fds).ok()?;
    Some(PeerHandles { pid, control, heap, ledger })
}

/// A descriptor that tells of the end of the process at the other end of a connection, whose number is `pid`.
pub(super) fn watch(socket: &OwnedFd, pid: u32) -> Result<OwnedFd, CallError> {
    peer_process(socket.as_fd(), pid).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::SRCH | Errno::INVAL) | None => CallError::Unseen { pid },
        _ => CallError::Join(JoinError::Io(error)),
    })
}

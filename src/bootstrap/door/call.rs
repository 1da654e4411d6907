//! Calling on another node.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vm::spawn::peer_credentials;

use super::book::{Line, Standing};
use super::shared::{Arrival, Shared};
use crate::bootstrap::address::{AddressError, Told};
use crate::bootstrap::env::JobName;
use crate::bootstrap::host_id::HostId;
use crate::bootstrap::member::{JoinError, PeerHandles, greet};
use crate::bootstrap::socket::HANDLES;
use crate::bootstrap::wire::{Decline, Reply, Request};

/// How soon to call again a node that calls this one.
const AGAIN: Duration = Duration::from_millis(1);

/// Why a node could not be made a peer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The bytes are no address.
    Address(AddressError),
    /// It is this very node's.
    Oneself,
    /// The node is on another host, or in another network namespace.
    Elsewhere,
    /// All numbers have been given.
    Full { places: u32 },
    /// There was no connection, or no sensible word by it.
    Join(JoinError),
    /// The node said no.
    Declined(Decline),
    /// What it handed over cannot be used.
    Unfit(String),
    /// Its process cannot be watched.
    Unseen { pid: u32 },
    /// The deadline has come.
    Timeout { waited: Duration },
    /// This node is closing.
    Closed,
}

impl From<AddressError> for CallError {
    fn from(error: AddressError) -> CallError {
        CallError::Address(error)
    }
}

/// A call that this thread has begun; dropping it ends it.
struct Turn<'a> {
    shared: &'a Shared,
    node: JobName,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shared.book().clear(&self.node, Standing::Called);
        self.shared.settled.notify_all();
    }
}

enum Begun<'a> {
    Peer(u32),
    Call(Turn<'a>),
}

impl Shared {
    pub(super) fn call(&self, told: &Told, deadline: Instant) -> Result<u32, CallError> {
        let begun = Instant::now();
        let node = told.node();
        if node == self.node {
            return Err(CallError::Oneself);
        }
        self.is_here(&told.host)?;
        loop {
            let turn = match self.begin(&node, begun, deadline)? {
                Begun::Peer(number) => return Ok(number),
                Begun::Call(turn) => turn,
            };
            match self.try_call(told, deadline) {
                Err(CallError::Declined(Decline::Crossed)) if Instant::now() < deadline => {}
                result => return result,
            }
            drop(turn);
            std::thread::sleep(AGAIN);
        }
    }

    /// Whether the socket that the address names can be this network namespace's. Another user's the listener tells.
    fn is_here(&self, theirs: &HostId) -> Result<(), CallError> {
        let ours = HostId::own();
        match (&theirs.boot, theirs.network) == (&ours.boot, ours.network) {
            true => Ok(()),
            false => Err(CallError::Elsewhere),
        }
    }

    /// Waits for calls of others to and from the node, and then begins one unless it is a peer.
    fn begin(&self, node: &JobName, begun: Instant, deadline: Instant) -> Result<Begun<'_>, CallError> {
        let mut book = self.book();
        loop {
            if book.is_closed() {
                return Err(CallError::Closed);
            }
            match book.standing(node) {
                Some(Standing::Peer(number)) => return Ok(Begun::Peer(number)),
                None => {
                    book.set(node, Standing::Called);
                    return Ok(Begun::Call(Turn { shared: self, node: node.clone() }));
                }
                Some(Standing::Called | Standing::Entering) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(CallError::Timeout { waited: begun.elapsed() });
                    }
                    book = match self.settled.wait_timeout(book, left) {
                        Ok((book, _)) => book,
                        Err(poisoned) => poisoned.into_inner().0,
                    };
                }
            }
        }
    }

    fn try_call(&self, told: &Told, deadline: Instant) -> Result<u32, CallError> {
        let places = self.house.places;
        let number = self.book().take_number().ok_or(CallError::Full { places })?;
        let (secret, node) = (told.secret.clone(), self.node.bytes());
        let meet = Request::Meet { secret, node, place: number, places };
        let handles = [self.house.control.as_fd(), self.house.heap.as_fd()];
        let (socket, reply, fds) = match greet(&told.node(), &meet, &handles, deadline) {
            Ok(answered) => answered,
            Err(error) => {
                // Who did not answer may have taken the number for good.
                if matches!(
                    error,
                    JoinError::NoBroker | JoinError::ForeignBroker { .. } | JoinError::Refused(_)
                ) {
                    self.book().give_back(number);
                }
                return Err(CallError::Join(error));
            }
        };
        match reply {
            Reply::Met { place, places } => {
                let pid = peer_credentials(socket.as_fd())
                    .map_err(|error| CallError::Join(JoinError::Io(error)))?
                    .pid;
                // The system hands over none where this process has no room for them.
                let handles =
                    handles_of(pid, fds).ok_or(CallError::Join(JoinError::Io(Errno::MFILE.into())))?;
                let line = Line { node: told.node(), socket, process: watch(pid)? };
                self.enter(line, Arrival { number, handles, place, places })
            }
            Reply::Declined(decline) => {
                self.book().give_back(number);
                Err(CallError::Declined(decline))
            }
            _ => Err(CallError::Join(JoinError::Malformed)),
        }
    }

    /// Makes the arrival a peer.
    pub(super) fn enter(&self, line: Line, arrival: Arrival) -> Result<u32, CallError> {
        let number = arrival.number;
        (self.house.admit)(arrival).map_err(CallError::Unfit)?;
        let mut book = self.book();
        if book.is_closed() {
            line.say(&Request::Leave);
            return Err(CallError::Closed);
        }
        book.enter(number, line);
        drop(book);
        self.waker.wake();
        self.settled.notify_all();
        Ok(number)
    }
}

/// What came with an answer, if it is what belongs to it.
pub(super) fn handles_of(pid: u32, fds: Vec<OwnedFd>) -> Option<PeerHandles> {
    let [control, heap] = <[OwnedFd; HANDLES]>::try_from(fds).ok()?;
    Some(PeerHandles { pid, control, heap })
}

/// A descriptor that tells of the process's end.
pub(super) fn watch(pid: u32) -> Result<OwnedFd, CallError> {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    known.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).ok_or(CallError::Unseen { pid })
}

//! The thread that owns a member's connection: it sends what is asked, and hands on what the broker says.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::notice::{Notice, OnNotice};
use super::pending_connects::{Asked, PeerHandles, PeerHandlesError, PendingConnects};
use crate::job::launched::socket::{Received, Sent, receive, send};
use crate::job::launched::wire::{Reply, Request, decode, encode};
use crate::job::plumbing::poll::{Waker, poll_until};

/// How long taking leave may wait for a broker that does not read. Hanging up is then all the leave it gets.
const LEAVE_MAX: Duration = Duration::from_millis(200);
/// How soon to send again when the kernel is short of memory.
const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// The state that the members' callers and the watching thread share.
#[derive(Debug)]
pub(super) struct Shared {
    socket: OwnedFd,
    waker: Waker,
    pending_connects: Mutex<PendingConnects>,
}

impl Shared {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket, waker: Waker::new()?, pending_connects: Mutex::default() })
    }

    pub(super) fn connect(&self, peer: u32, deadline: Instant) -> Result<PeerHandles, PeerHandlesError> {
        let begun = Instant::now();
        let (answer, ticket) = match self.pending_connects().ask(peer) {
            Asked::Answered(error) => return Err(error),
            Asked::Waits { answer, ticket } => (answer, ticket),
        };
        self.waker.wake();
        match answer.recv_timeout(deadline.saturating_duration_since(begun)) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.pending_connects().give_up(peer, ticket);
                // It may have come between the two.
                answer.try_recv().unwrap_or(Err(PeerHandlesError::Timeout { peer, waited: begun.elapsed() }))
            }
            Err(RecvTimeoutError::Disconnected) => Err(PeerHandlesError::BrokerGone),
        }
    }

    /// Has the watching thread say something to the broker.
    pub(super) fn say(&self, request: Request) {
        self.pending_connects().outbox.push_back(request);
        self.waker.wake();
    }

    /// Whether the thread hears of it, and ends.
    pub(super) fn leave(&self) -> bool {
        let mut pending_connects = self.pending_connects();
        pending_connects.leaving = true;
        pending_connects.outbox.push_back(Request::Leave);
        drop(pending_connects);
        self.waker.wake()
    }

    /// No panic leaves the table half-changed, so a poisoned lock is as good as another.
    fn pending_connects(&self) -> MutexGuard<'_, PendingConnects> {
        self.pending_connects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn start(shared: Arc<Shared>, on_notice: OnNotice) -> io::Result<JoinHandle<()>> {
    vm::threads::spawn("standpipe-watch", move || {
        // Also when the callback panics, nobody may wait for an answer that does not come.
        let _close = CloseOnDrop(&shared);
        if watch(&shared, &on_notice) == End::BrokerGone {
            shared.pending_connects().close();
            on_notice(Notice::BrokerGone);
        }
    })
}

struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.pending_connects().close();
    }
}

#[derive(PartialEq, Eq)]
enum End {
    BrokerGone,
    Left,
}

fn watch(shared: &Shared, on_notice: &OnNotice) -> End {
    let mut leave_by = None;
    loop {
        shared.waker.clear();
        // Asked before the outbox is emptied: the leave is in it by then.
        let leaving = shared.pending_connects().leaving;
        let Ok(flushed) = flush(shared) else { return End::BrokerGone };
        let now = Instant::now();
        if leaving {
            let leave_by = *leave_by.get_or_insert(now + LEAVE_MAX);
            if flushed == Sent::Done || now >= leave_by {
                return End::Left;
            }
        }
        let (room, until) = match flushed {
            Sent::Done => (PollFlags::empty(), leave_by),
            Sent::Full => (PollFlags::OUT, leave_by),
            Sent::Starved => (PollFlags::empty(), Some(now + STARVED_PAUSE)),
        };
        let mut fds =
            [PollFd::new(&shared.waker, PollFlags::IN), PollFd::new(&shared.socket, PollFlags::IN | room)];
        if let Err(error) = poll_until(&mut fds, until) {
            tracing::warn!(%error, "cannot poll the job's broker");
            std::thread::sleep(STARVED_PAUSE);
        }
        if fds[1].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            && read(shared, on_notice).is_err()
        {
            return End::BrokerGone;
        }
    }
}

/// Sends what waits in the outbox. `Done` means that nothing is left there.
fn flush(shared: &Shared) -> Result<Sent, Errno> {
    let mut pending_connects = shared.pending_connects();
    while let Some(request) = pending_connects.outbox.front() {
        match send(&shared.socket, &encode(request), &[])? {
            Sent::Done => drop(pending_connects.outbox.pop_front()),
            blocked => return Ok(blocked),
        }
    }
    Ok(Sent::Done)
}

struct BrokerGone;

/// Reads all there is now.
fn read(shared: &Shared, on_notice: &OnNotice) -> Result<(), BrokerGone> {
    loop {
        let (bytes, fds) = match receive(&shared.socket) {
            Received::Datagram { bytes, fds } => (bytes, fds),
            Received::Nothing => return Ok(()),
            Received::Closed | Received::TooLong => return Err(BrokerGone),
        };
        match decode(&bytes) {
            Ok(Reply::Peer { rank, pid }) => shared.pending_connects().found(rank, pid, fds.try_into().ok()),
            Ok(Reply::Lost { rank, how }) => {
                let notice = shared.pending_connects().lose(rank, how);
                on_notice(notice);
            }
            Ok(Reply::Serve) => on_notice(Notice::Serve),
            Ok(Reply::Look) => on_notice(Notice::Look),
            Ok(
                Reply::Welcome { .. }
                | Reply::Watching { .. }
                | Reply::Met { .. }
                | Reply::Declined(_)
                | Reply::Next { .. }
                | Reply::Refused(_),
            )
            | Err(_) => {
                tracing::warn!("the job's broker broke the joining protocol");
                return Err(BrokerGone);
            }
        }
    }
}

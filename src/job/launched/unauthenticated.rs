//! Connections that have not shown the secret yet: few, and not for long.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use vm::forks::Alone;
use vm::spawn::peer_credentials;

use super::socket::{Received, receive, send};
use super::wire::{DecodeError, Refusal, Reply, Request, WIRE_VERSION, decode, encode};
use crate::job::plumbing::poll::poll_until;

/// An unauthenticated connection that has said nothing by then is shown out.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How long to leave the listener alone when the process has no file descriptors left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// The connections between `accept` and joining.
#[derive(Debug)]
pub(in crate::job) struct Unauthenticated {
    /// `None`: nobody can come. A caller is not to wait for an answer of a child that lives on.
    listener: Option<Alone<OwnedFd>>,
    waiting: BTreeMap<u64, UnauthenticatedConnection>,
    waiting_max: usize,
    next_id: u64,
    pause_until: Option<Instant>,
    uid: u32,
}

#[derive(Debug)]
struct UnauthenticatedConnection {
    socket: OwnedFd,
    pid: u32,
    leave_at: Instant,
}

/// An unauthenticated connection that asked to join, with what it said. Nothing of it has been checked but
/// its user.
#[derive(Debug)]
pub(in crate::job) struct Applicant {
    pub(in crate::job) socket: OwnedFd,
    /// As the kernel says, not as the unauthenticated connection does.
    pub(in crate::job) pid: u32,
    pub(in crate::job) request: Result<Request, Refusal>,
    pub(in crate::job) fds: Vec<OwnedFd>,
}

impl Applicant {
    /// Answers with a refusal and hangs up.
    pub(in crate::job) fn refuse(self, refusal: Refusal) {
        tracing::debug!(pid = self.pid, %refusal, "refused to let a process join");
        turn_away(&self.socket, refusal);
    }

    /// Whether nobody is there any more to be answered.
    pub(in crate::job) fn has_hung_up(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        matches!(poll_until(&mut socket, Some(Instant::now())), Ok(1))
    }

    /// Answers, and hangs up.
    pub(in crate::job) fn answer(self, reply: &Reply) {
        // An unauthenticated connection that cannot be told hears that the connection ends.
        let _ = send(&self.socket, &encode(reply), &[]);
    }
}

impl Unauthenticated {
    pub(in crate::job) fn new(listener: Option<OwnedFd>, waiting_max: usize) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let listener = listener.map(Alone::new);
        Self { listener, waiting: BTreeMap::new(), waiting_max, next_id: 0, pause_until: None, uid }
    }

    /// The listening socket, unless there is no room for another unauthenticated connection.
    pub(in crate::job) fn listener(&self) -> Option<&OwnedFd> {
        let open = self.waiting.len() < self.waiting_max && self.pause_until.is_none();
        self.listener.as_deref().filter(|_| open)
    }

    pub(in crate::job) fn sockets(&self) -> impl Iterator<Item = (u64, &OwnedFd)> {
        self.waiting.iter().map(|(id, guest)| (*id, &guest.socket))
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(in crate::job) fn expire_at(&self) -> Option<Instant> {
        self.waiting.values().map(|guest| guest.leave_at).chain(self.pause_until).min()
    }

    /// Shows out whoever has been silent too long.
    pub(in crate::job) fn expire(&mut self, now: Instant) {
        self.waiting.retain(|_, guest| guest.leave_at > now);
        self.pause_until = self.pause_until.filter(|until| *until > now);
    }

    /// Takes in whoever knocks, as far as there is room. Returns after a while even if the knocking never
    /// ends, as that of other users might, who take no room: members wait to be served meanwhile.
    pub(in crate::job) fn accept(&mut self, now: Instant) {
        for _ in 0..self.waiting_max {
            let Some(listener) = self.listener.as_ref().filter(|_| self.waiting.len() < self.waiting_max)
            else {
                return;
            };
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.add_connection(socket, now),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection now");
                    self.pause_until = Some(now + EXHAUSTED_PAUSE);
                    return;
                }
            }
        }
    }

    fn add_connection(&mut self, socket: OwnedFd, now: Instant) {
        let Ok(peer) = peer_credentials(socket.as_fd()) else { return };
        if peer.uid != self.uid {
            return turn_away(&socket, Refusal::Uid { ours: self.uid, theirs: peer.uid });
        }
        let guest = UnauthenticatedConnection { socket, pid: peer.pid, leave_at: now + HANDSHAKE_MAX };
        self.waiting.insert(self.next_id, guest);
        self.next_id += 1;
    }

    /// Reads what guest `id` has to say. In every case the connection leaves this list.
    pub(in crate::job) fn hear(&mut self, id: u64) -> Option<Applicant> {
        let received = receive(&self.waiting.get(&id)?.socket);
        if matches!(received, Received::Nothing) {
            return None;
        }
        let UnauthenticatedConnection { socket, pid, .. } = self.waiting.remove(&id)?;
        let (request, fds) = match received {
            Received::Datagram { bytes, fds } => (decode(&bytes).map_err(refusal), fds),
            Received::TooLong => (Err(Refusal::Malformed), Vec::new()),
            Received::Nothing | Received::Closed => return None,
        };
        Some(Applicant { socket, pid, request, fds })
    }
}

fn refusal(error: DecodeError) -> Refusal {
    match error {
        DecodeError::Version { theirs } => Refusal::Version { ours: WIRE_VERSION, theirs },
        DecodeError::Malformed => Refusal::Malformed,
    }
}

fn turn_away(socket: &OwnedFd, refusal: Refusal) {
    // An unauthenticated connection that cannot be told is refused all the same.
    let _ = send(socket, &encode(&Reply::Refused(refusal)), &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::launched::socket::{connect_to, listen_at};
    use crate::job::plumbing::env::JobName;

    #[test]
    fn knocking_without_end_leaves_time_for_members() {
        let name = JobName::random().expect("random numbers");
        let mut unauthenticated = Unauthenticated::new(Some(listen_at(&name).expect("a free name")), 4);
        // Whoever knocks is then another user's, and takes no room.
        unauthenticated.uid = unauthenticated.uid.wrapping_add(1);
        let knocking: Vec<OwnedFd> = (0..10).map(|_| connect_to(&name).expect("room to knock")).collect();
        unauthenticated.accept(Instant::now());
        let told = knocking.iter().filter(|socket| !matches!(receive(socket), Received::Nothing)).count();
        assert_eq!((told, unauthenticated.waiting.len()), (4, 0));
    }
}

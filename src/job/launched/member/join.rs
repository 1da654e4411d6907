//! The handshake: connect, show the secret, be welcomed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use vm::spawn::peer_credentials;

use crate::base::debug_is_display::debug_is_display;
use crate::job::launched::socket::{Received, Sent, connect_to, receive, send};
use crate::job::launched::wire::{
    DecodeError, ROUNDS_MAX, Refusal, Reply, Request, WIRE_VERSION, decode, encode, short_program,
};
use crate::job::plumbing::env::{JobEnv, JobName};
use crate::job::plumbing::poll::poll_until;

/// How soon to knock again when too many others are at the listener.
const KNOCK_AGAIN: Duration = Duration::from_millis(1);

debug_is_display!(JoinError);

/// Why a process did not become a member of its job, or may not watch it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Nobody listens for the job: its launcher has ended, or this process is in another network namespace.
    #[error("the job's launcher is not there")]
    NoBroker,
    /// Somebody else's process listens in the launcher's place. It has not been shown the secret.
    #[error("user {theirs} listens in place of the job's launcher; this process belongs to user {ours}")]
    ForeignBroker {
        /// This process's user.
        ours: u32,
        /// The listener's user.
        theirs: u32,
    },
    /// The broker refused, and said why.
    #[error("the launcher refused: {0}")]
    Refused(#[from] Refusal),
    /// The broker hung up without an answer.
    #[error("the launcher hung up without an answer")]
    HungUp,
    /// The broker's answer made no sense.
    #[error("the launcher's answer was malformed")]
    Malformed,
    /// The broker did not answer in time.
    #[error("the launcher did not answer within {} ms", waited.as_millis())]
    Timeout {
        /// How long the join had been under way.
        waited: Duration,
    },
    /// Watching takes a file descriptor of each rank: more than this process may have.
    #[error(
        "watching a job of {ranks} takes {needed} file descriptors, and {allowed} are allowed (ulimit -n)"
    )]
    Descriptors {
        /// The job's size.
        ranks: u32,
        /// File descriptors needed.
        needed: u64,
        /// File descriptors allowed.
        allowed: u64,
    },
    /// The operating system refused a socket or a thread.
    #[error("the system refused a socket or a thread: {0}")]
    Io(#[source] std::io::Error),
}

/// A member's place.
pub(super) struct Welcomed {
    pub(super) socket: OwnedFd,
    pub(super) launcher_pid: u32,
    /// How often the rank has been in the job before.
    pub(super) round: u32,
}

/// Joins as `env` says.
pub(super) fn shake_hands(
    env: &JobEnv,
    handles: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<Welcomed, JoinError> {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.to_string_lossy();
    let program = short_program(program.rsplit('/').next().unwrap_or_default());
    let join = Request::Join { secret: env.secret.clone(), rank: env.rank, size: env.size, program };
    match greet_round(env, &join, handles, deadline)? {
        (socket, Reply::Welcome { launcher_pid }, round) => Ok(Welcomed { socket, launcher_pid, round }),
        _ => Err(JoinError::Malformed),
    }
}

/// As [`greet`], at the broker of the job's round that this process is sent on to, whose number it gives.
pub(in crate::job) fn greet_round(
    env: &JobEnv,
    request: &Request,
    handles: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(OwnedFd, Reply, u32), JoinError> {
    let mut name = env.name.clone();
    for round in 0..ROUNDS_MAX {
        match greet(&name, request, handles, deadline)? {
            (_, Reply::Next { name: next }, _) => name = JobName::of(&next),
            (socket, reply, _) => return Ok((socket, reply, round)),
        }
    }
    // A broker refuses whoever has left the last round.
    Err(JoinError::Malformed)
}

/// Connects to whoever listens under `name`, a broker or a node, says `request` and hears the answer, which
/// is no refusal, with the file descriptors that come with it.
pub(in crate::job) fn greet(
    name: &JobName,
    request: &Request,
    handles: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(OwnedFd, Reply, Vec<OwnedFd>), JoinError> {
    let attempt = Attempt { begun: Instant::now(), deadline };
    let socket = attempt.ask(name, request, handles)?;
    let (reply, fds) = attempt.hear(&socket)?;
    Ok((socket, reply, fds))
}

/// The first half of [`greet`]. The error: nothing was said.
pub(in crate::job) fn ask(
    name: &JobName,
    request: &Request,
    handles: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<OwnedFd, JoinError> {
    Attempt { begun: Instant::now(), deadline }.ask(name, request, handles)
}

/// The second half of [`greet`], which may be tried again after [`JoinError::Timeout`].
pub(in crate::job) fn hear_answer(
    socket: &OwnedFd,
    deadline: Instant,
) -> Result<(Reply, Vec<OwnedFd>), JoinError> {
    Attempt { begun: Instant::now(), deadline }.hear(socket)
}

/// The name is free again once the launcher is gone, and anybody could take it.
fn check_broker(socket: &OwnedFd) -> Result<(), JoinError> {
    let theirs = peer_credentials(socket.as_fd()).map_err(JoinError::Io)?.uid;
    let ours = rustix::process::geteuid().as_raw();
    if ours == theirs { Ok(()) } else { Err(JoinError::ForeignBroker { ours, theirs }) }
}

struct Attempt {
    begun: Instant,
    deadline: Instant,
}

impl Attempt {
    fn ask(
        &self,
        name: &JobName,
        request: &Request,
        handles: &[BorrowedFd<'_>],
    ) -> Result<OwnedFd, JoinError> {
        let socket = self.knock(name)?;
        check_broker(&socket)?;
        self.say(&socket, &encode(request), handles)?;
        Ok(socket)
    }

    fn knock(&self, name: &JobName) -> Result<OwnedFd, JoinError> {
        loop {
            match connect_to(name) {
                Ok(socket) => return Ok(socket),
                Err(Errno::CONNREFUSED) => return Err(JoinError::NoBroker),
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.check_time()?;
                    std::thread::sleep(KNOCK_AGAIN);
                }
                Err(error) => return Err(JoinError::Io(error.into())),
            }
        }
    }

    fn say(&self, socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), JoinError> {
        loop {
            match send(socket, bytes, fds) {
                Ok(Sent::Done) => return Ok(()),
                Ok(Sent::Full | Sent::Starved) => {
                    self.check_time()?;
                    std::thread::sleep(KNOCK_AGAIN);
                }
                // It may have said why: hear() reads it.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(error) => return Err(JoinError::Io(error.into())),
            }
        }
    }

    fn hear(&self, socket: &OwnedFd) -> Result<(Reply, Vec<OwnedFd>), JoinError> {
        loop {
            let (bytes, fds) = match receive(socket) {
                Received::Datagram { bytes, fds } => (bytes, fds),
                Received::TooLong => return Err(JoinError::Malformed),
                Received::Closed => return Err(JoinError::HungUp),
                Received::Nothing => {
                    self.check_time()?;
                    let mut fds = [PollFd::new(socket, PollFlags::IN)];
                    poll_until(&mut fds, Some(self.deadline)).map_err(|error| JoinError::Io(error.into()))?;
                    continue;
                }
            };
            return match decode(&bytes) {
                Ok(Reply::Refused(refusal)) => Err(refusal.into()),
                Ok(reply) => Ok((reply, fds)),
                Err(DecodeError::Malformed) => Err(JoinError::Malformed),
                Err(DecodeError::Version { theirs }) => {
                    Err(Refusal::Version { ours: theirs, theirs: WIRE_VERSION }.into())
                }
            };
        }
    }

    fn check_time(&self) -> Result<(), JoinError> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(JoinError::Timeout { waited: self.begun.elapsed() })
    }
}

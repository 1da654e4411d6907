//! Looking at a job from outside: who is in it, and what its members show.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use vm::spawn::peer_credentials;

use super::member::{JoinError, greet_round};
use super::socket::{Received, Sent, connect_to, receive, send};
use super::wire::{DATAGRAM_BYTES_MAX, DecodeError, How, Reply, Request, WIRE_VERSION, decode, encode};
use crate::base::code::{Code, into_io_error, of_system};
use crate::base::debug_is_display::debug_is_display;
use crate::base::fd_limit::{TooFew, make_room};
use crate::job::plumbing::env::{JobEnv, RANKS_MAX};
use crate::job::plumbing::poll::poll_until;

/// How often a launcher is tried that has too many at its listener, and how long between: a tenth of a second
/// in all.
const KNOCKS_MAX: u32 = 100;
const KNOCK_AGAIN: Duration = Duration::from_millis(1);

/// The descriptors that looking takes besides one of each rank: reading directories, what arrives, a
/// terminal.
const DESCRIPTORS_BESIDES: u64 = 16;

/// The process that listens for the job of `env`, if that is one of this user's: zero where it is out of
/// sight.
pub(crate) fn find_launcher(env: &JobEnv) -> Option<u32> {
    // A launcher at whose listener too many knock at once is there all the same.
    let socket = (0..KNOCKS_MAX).find_map(|_| match connect_to(&env.name) {
        Err(Errno::AGAIN) => {
            std::thread::sleep(KNOCK_AGAIN);
            None
        }
        other => Some(other.ok()),
    })??;
    let listener = peer_credentials(socket.as_fd()).ok()?;
    (listener.uid == rustix::process::geteuid().as_raw()).then_some(listener.pid)
}

/// A connection to a job's broker that can look and nothing else.
#[derive(Debug)]
pub(crate) struct Watcher {
    socket: OwnedFd,
    launcher_pid: u32,
    places: Vec<Place>,
}

/// The state of a rank.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Its process, once it has joined.
    pub(crate) pid: Option<u32>,
    /// Its control segment, for reading only; what is behind the descriptor is whatever the rank handed over.
    pub(crate) page: Option<OwnedFd>,
    /// How it went, once it has gone.
    pub(crate) over: Option<How>,
}

debug_is_display!(LookError);

/// Why a job cannot be looked at any more, though it may go on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// The launcher, or whoever has its end of the connection, sent what is no message.
    #[error("the launcher sent {bytes} bytes that make no sense")]
    Malformed {
        /// The datagram's length.
        bytes: usize,
    },
    /// The launcher sent a datagram longer than any message.
    #[error("the launcher sent more than the {bytes_max} bytes that a message has at most")]
    TooLong {
        /// The longest message's length.
        bytes_max: usize,
    },
    /// The launcher speaks another version of the joining protocol than when it let us watch.
    #[error("the launcher speaks version {theirs} of the joining protocol now, this process version {ours}")]
    Version {
        /// The launcher's version.
        theirs: u16,
        /// This process's version.
        ours: u16,
    },
    /// The launcher sent a message that is not for watchers.
    #[error("the launcher sent a watcher what is none of its business: {message}")]
    Misplaced {
        /// The message, for a person to read.
        message: String,
    },
    /// The launcher told of a rank that the job does not have.
    #[error("the launcher told of rank {rank} in a job of {size}")]
    NoSuchRank {
        /// The rank that it named.
        rank: u32,
        /// The job's size.
        size: u32,
    },
    /// The operating system refused to send to the launcher.
    #[error("the launcher cannot be asked: {0}")]
    Send(#[source] std::io::Error),
    /// The operating system refused to wait for the launcher.
    #[error("the launcher cannot be waited for: {0}")]
    Poll(#[source] std::io::Error),
}

impl LookError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            LookError::Send(error) | LookError::Poll(error) => of_system(error),
            _ => Code::Protocol,
        }
    }
}

into_io_error!(LookError);

/// The broker's latest messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Nothing that answers a look.
    Nothing,
    /// A look has been answered.
    Answer,
    /// The broker is gone.
    End,
}

impl Watcher {
    /// Shows the secret of `env`'s job to its broker. Makes room for a file descriptor of each rank.
    pub(crate) fn attach(env: &JobEnv, deadline: Instant) -> Result<Watcher, JoinError> {
        let watch = Request::Watch { secret: env.secret.clone() };
        let (socket, reply, _) = greet_round(env, &watch, &[], deadline)?;
        let launcher_pid = peer_credentials(socket.as_fd()).map_err(JoinError::Io)?.pid;
        match reply {
            Reply::Watching { size } if (1..=RANKS_MAX).contains(&size) => {
                make_room(DESCRIPTORS_BESIDES + u64::from(size)).map_err(|TooFew { needed, allowed }| {
                    JoinError::Descriptors { ranks: size, needed, allowed }
                })?;
                let places = (0..size).map(|_| Place::default()).collect();
                Ok(Watcher { socket, launcher_pid, places })
            }
            _ => Err(JoinError::Malformed),
        }
    }

    pub(crate) fn launcher_pid(&self) -> u32 {
        self.launcher_pid
    }

    /// The state of each rank.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Has the members show their counters, and learns what has become of them. Returns once they have been
    /// told, or at the deadline: whether the job goes on.
    pub(crate) fn look(&mut self, deadline: Instant) -> Result<bool, LookError> {
        match send(&self.socket, &encode(&Request::Look), &[]) {
            // A message that does not get through now has company enough.
            Ok(Sent::Done | Sent::Full | Sent::Starved) => {}
            // There may be last words.
            Err(Errno::PIPE | Errno::CONNRESET) => return self.hear().map(|_| false),
            Err(error) => return Err(LookError::Send(error.into())),
        }
        loop {
            match self.hear()? {
                Heard::End => return Ok(false),
                Heard::Nothing if Instant::now() < deadline => {}
                Heard::Nothing | Heard::Answer => return Ok(true),
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            poll_until(&mut fds, Some(deadline)).map_err(|error| LookError::Poll(error.into()))?;
        }
    }

    /// Reads all there is now.
    fn hear(&mut self) -> Result<Heard, LookError> {
        let mut heard = Heard::Nothing;
        loop {
            let (bytes, fds) = match receive(&self.socket) {
                Received::Datagram { bytes, fds } => (bytes, fds),
                Received::Nothing => return Ok(heard),
                Received::Closed => return Ok(Heard::End),
                Received::TooLong => return Err(LookError::TooLong { bytes_max: DATAGRAM_BYTES_MAX }),
            };
            match decode(&bytes) {
                Ok(Reply::Look) => heard = Heard::Answer,
                Ok(Reply::Peer { rank, pid }) => {
                    let place = self.place(rank)?;
                    place.pid = Some(pid);
                    place.page = fds.into_iter().next();
                    if place.page.is_none() {
                        tracing::warn!(rank, pid, "nothing to read came of this rank: it will seem silent");
                    }
                }
                Ok(Reply::Lost { rank, how }) => self.place(rank)?.over = Some(how),
                Ok(other) => return Err(LookError::Misplaced { message: format!("{other:?}") }),
                Err(DecodeError::Malformed) => return Err(LookError::Malformed { bytes: bytes.len() }),
                Err(DecodeError::Version { theirs }) => {
                    return Err(LookError::Version { theirs, ours: WIRE_VERSION });
                }
            }
        }
    }

    fn place(&mut self, rank: u32) -> Result<&mut Place, LookError> {
        let size = self.places.len() as u32;
        self.places.get_mut(rank as usize).ok_or(LookError::NoSuchRank { rank, size })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use vm::Segment;

    use super::*;
    use crate::job::launched::{Broker, Membership, Notice, Refusal};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn soon() -> Instant {
        Instant::now() + PATIENCE
    }

    /// A member with this control segment, and what it is told.
    fn join(env: &JobEnv, control: impl AsFd) -> (Membership, Receiver<Notice>) {
        let (tell, told) = channel();
        let on_notice = Box::new(move |notice| {
            let _ = tell.send(notice);
        });
        let heap = std::fs::File::open("/dev/null").expect("every system has it");
        let member = Membership::join(env, [control.as_fd(), heap.as_fd(), heap.as_fd()], soon(), on_notice);
        (member.expect("let in"), told)
    }

    fn refusal(watcher: Result<Watcher, JoinError>) -> Refusal {
        match watcher.expect_err("not to be let in") {
            JoinError::Refused(refusal) => refusal,
            other => panic!("refused for another reason: {other}"),
        }
    }

    #[test]
    fn a_watcher_learns_who_is_there_and_cannot_write() {
        let broker = Broker::start(3).expect("a broker");
        let control = Segment::create("control", 4096).expect("a page");
        let (zero, told) = join(&broker.env(0), control.fd());
        let null = std::fs::File::open("/dev/null").expect("every system has it");
        let (_one, _) = join(&broker.env(1), &null);
        let mut watcher = Watcher::attach(&broker.env(2), soon()).expect("let in");
        assert!(watcher.look(soon()).expect("the broker is there"));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Notice::Look));
        let [zeros, ones, twos] = watcher.places() else { panic!("three ranks") };
        let page = zeros.page.as_ref().expect("a segment to read");
        assert_eq!(rustix::io::pread(page, &mut [1; 8], 0), Ok(8));
        assert_eq!(rustix::io::pwrite(page, &[1; 8], 0), Err(rustix::io::Errno::BADF));
        assert!(zeros.pid == Some(std::process::id()) && zeros.over.is_none());
        assert!(ones.pid.is_some() && ones.page.is_none(), "no segment is opened that is none");
        assert!(twos.pid.is_none() && twos.page.is_none());
        drop(zero);
        watcher.look(soon()).expect("the broker is there");
        assert_eq!(watcher.places()[0].over, Some(How::Left));
        drop(broker);
        assert!(!watcher.look(soon()).expect("over, which is no error"));
        assert!(!watcher.look(soon()).expect("and stays so"));
    }

    /// What a watcher of a job of two makes of this datagram.
    fn hears(datagram: &[u8]) -> Result<bool, LookError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (broker, socket) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket pair");
        send(&broker, datagram, &[]).expect("sent");
        let places = vec![Place::default(), Place::default()];
        Watcher { socket, launcher_pid: 0, places }.look(Instant::now() + Duration::from_millis(10))
    }

    #[test]
    fn what_no_broker_says_is_an_error_with_its_values() {
        assert!(matches!(hears(&encode(&Reply::Look)), Ok(true)));
        assert!(matches!(hears(b"no message"), Err(LookError::Malformed { bytes: 10 })));
        assert!(matches!(hears(&[0; 257]), Err(LookError::TooLong { bytes_max: 256 })));
        let mut newer = encode(&Reply::Look);
        newer[4..6].copy_from_slice(&9_u16.to_le_bytes());
        assert!(matches!(hears(&newer), Err(LookError::Version { theirs: 9, ours: WIRE_VERSION })));
        for reply in [Reply::Peer { rank: 2, pid: 1 }, Reply::Lost { rank: 2, how: How::Left }] {
            assert!(matches!(hears(&encode(&reply)), Err(LookError::NoSuchRank { rank: 2, size: 2 })));
        }
        let error = hears(&encode(&Reply::Watching { size: 7 })).expect_err("said once only");
        assert!(error.to_string().contains("Watching { size: 7 }"), "{error}");
    }

    #[test]
    fn members_are_not_told_of_every_look() {
        let broker = Broker::start(1).expect("a broker");
        let control = Segment::create("control", 4096).expect("a page");
        let (_zero, told) = join(&broker.env(0), control.fd());
        let watcher = Watcher::attach(&broker.env(0), soon()).expect("let in");
        for _ in 0..200 {
            let look = encode(&Request::Look);
            while send(&watcher.socket, &look, &[]).expect("the broker is there") != Sent::Done {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::thread::sleep(Duration::from_millis(200));
        let times = told.try_iter().count();
        assert!((1..100).contains(&times), "told {times} times");
    }

    #[test]
    fn without_the_secret_nobody_watches_and_only_a_few_do_with_it() {
        let (broker, other) = (Broker::start(1).expect("a broker"), Broker::start(1).expect("a broker"));
        let stranger = JobEnv { secret: other.env(0).secret, ..broker.env(0) };
        assert_eq!(refusal(Watcher::attach(&stranger, soon())), Refusal::Secret);
        let mut watching: Vec<Watcher> =
            (0..8).map(|_| Watcher::attach(&broker.env(0), soon()).expect("let in")).collect();
        assert_eq!(refusal(Watcher::attach(&broker.env(0), soon())), Refusal::Watched { watchers: 8 });
        watching.pop();
        let one_more = || Watcher::attach(&broker.env(0), soon()).is_ok();
        assert!((0..100).any(|_| one_more() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }));
    }

    #[test]
    fn a_watcher_that_wants_anything_else_is_shown_out() {
        let broker = Broker::start(1).expect("a broker");
        let control = Segment::create("control", 4096).expect("a page");
        let (_zero, told) = join(&broker.env(0), control.fd());
        for request in [Request::Serve { peer: 0 }, Request::Leave, Request::Connect { peer: 0 }] {
            let mut watcher = Watcher::attach(&broker.env(0), soon()).expect("let in");
            send(&watcher.socket, &encode(&request), &[]).expect("sent");
            let ended = (0..100).any(|_| !watcher.look(soon()).expect("shown out, and nothing odd said"));
            assert!(ended, "{request:?}");
        }
        assert!(told.try_iter().all(|notice| notice == Notice::Look));
        Watcher::attach(&broker.env(0), soon()).expect("the job goes on");
    }
}

//! A place where nodes leave their addresses under names, and others find them: one process that all know,
//! over TCP.
//!
//! It is a [server](crate::job::plumbing::tcp_server) for whoever has the secret, and hears one question by
//! each connection. An address stays until another is left under its name, or it is withdrawn; what has
//! become of its node, who finds it finds out.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use vm::forks::Alone;

use super::address::{Address, AddressError, check_address, is_of_same_node};
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::environment::variable;
use crate::job::plumbing::addresses::{listen_everywhere, listen_for};
use crate::job::plumbing::channel::HANDSHAKE_WITHIN;
use crate::job::plumbing::secret::Secret;
use crate::job::plumbing::staggered::Failed;
use crate::job::plumbing::tcp_server::{
    self, AGAIN, Answer, Ask, Server, TakeInError, Unreached, Visitor, answer, reach_server,
};

/// The setting that names the place, and the one that holds the secret.
pub(in crate::job) const PLACE: &str = "STANDPIPE_RENDEZVOUS";
const SECRET: &str = "STANDPIPE_SECRET";

/// Bytes that a name may have.
const NAME_MAX: usize = 255;

/// Addresses that are kept.
const KEPT_MAX: usize = 16 << 10;

/// Connections at a time, each of which has a thread.
const VISITORS_MAX: usize = 512;

/// Of these, those that wait for an address: who would leave one is to find room. Others are told at once
/// that it is not there.
const WAITING_MAX: usize = 384;
const _: () = assert!(WAITING_MAX < VISITORS_MAX);

/// How long one question may wait for an address. A caller that waits longer asks again.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How long to leave a place alone where too many wait already.
const LATER: Duration = Duration::from_millis(500);

debug_is_display!(RendezvousError);

/// Why an address was not left or found.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A setting is not what it should be.
    #[error("{name} is not {expected}, but {given}")]
    Setting {
        /// The environment variable.
        name: &'static str,
        /// A description of right values.
        expected: &'static str,
        /// Its value; of a secret, how long it is.
        given: String,
    },
    /// A setting that must be there is not.
    #[error("{name} is not set: it takes {expected}")]
    Unset {
        /// The environment variable.
        name: &'static str,
        /// A description of right values.
        expected: &'static str,
    },
    /// The name is empty or longer than 255 bytes.
    #[error("a name has 1 to {NAME_MAX} bytes, not {len}")]
    Name {
        /// Its bytes.
        len: usize,
    },
    /// The text that was found, or was to be left, is no node's address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The place keeps as many addresses as it may.
    #[error("{KEPT_MAX} addresses are kept already, and none was withdrawn (`Rendezvous::withdraw`)")]
    Full,
    /// Nobody left an address under the name in time.
    #[error("nobody left an address under {name:?} within {} ms", waited.as_millis())]
    Timeout {
        /// The name.
        name: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The place was not reached, or whoever is there does not have the secret.
    #[error("the rendezvous at {at}: {}", in_words(source))]
    Io {
        /// Where it is.
        at: String,
        /// The error.
        source: io::Error,
    },
    /// A [`Registry`] cannot listen there.
    #[error("cannot listen at {at}: {}", in_words(source))]
    Listen {
        /// The address and port.
        at: String,
        /// The system's error.
        source: io::Error,
    },
}

impl RendezvousError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            RendezvousError::Setting { .. } | RendezvousError::Unset { .. } => Code::Setting,
            RendezvousError::Name { .. } => Code::Name,
            RendezvousError::Address(error) => error.code(),
            RendezvousError::Full => Code::NoRoom,
            RendezvousError::Timeout { .. } => Code::Timeout,
            RendezvousError::Io { .. } => Code::Unreachable,
            RendezvousError::Listen { .. } => Code::NotListening,
        }
    }
}

into_io_error!(RendezvousError);

/// The error, and what it mostly means.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!("nobody listens there ({error}): is `standpipe rendezvous` running, and at that port?")
        }
        // Without a number it is this library's own, which says more.
        ErrorKind::AddrInUse if error.raw_os_error().is_some() => {
            format!("another program listens there ({error}): choose another port")
        }
        ErrorKind::AddrNotAvailable if error.raw_os_error().is_some() => {
            format!("this host has no such address ({error})")
        }
        ErrorKind::TimedOut => "it did not answer in time".into(),
        _ => error.to_string(),
    }
}

/// The way to a rendezvous: where nodes leave their addresses under names, and others find them. Any thread
/// may use it.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    at: String,
    secret: Secret,
}

impl Rendezvous {
    /// The one that `STANDPIPE_RENDEZVOUS` names, as `HOST:PORT`, by the secret in `STANDPIPE_SECRET`; `None`
    /// where it names none. Nothing is connected to.
    ///
    /// # Errors
    /// [`RendezvousError::Setting`], [`RendezvousError::Unset`].
    pub fn from_env() -> Result<Option<Rendezvous>, RendezvousError> {
        match variable(PLACE) {
            Some(at) if !at.trim().is_empty() => Rendezvous::new(at.trim(), &secret_from_env()?).map(Some),
            _ => Ok(None),
        }
    }

    /// The one at `HOST:PORT`, by a secret of 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`RendezvousError::Setting`], [`RendezvousError::Unset`].
    pub fn new(at: &str, secret: &str) -> Result<Rendezvous, RendezvousError> {
        let has_port = at.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err(RendezvousError::Setting {
                name: PLACE,
                expected: "HOST:PORT",
                given: format!("{at:?}"),
            });
        }
        Ok(Rendezvous { at: at.to_owned(), secret: parse_secret(secret)? })
    }

    /// Leaves a node's address under a name, for whoever has the secret, instead of what was there. Waits for
    /// the rendezvous to be there.
    ///
    /// # Errors
    /// [`RendezvousError`].
    pub fn leave(&self, name: &str, address: &Address, within: Duration) -> Result<(), RendezvousError> {
        check_name(name)?;
        let ask = Ask::Leave { name: name.to_owned(), address: address.as_bytes().to_vec() };
        match self.ask(&ask, soon(within), within)? {
            Some(Answer::Left) => Ok(()),
            Some(Answer::Full) => Err(RendezvousError::Full),
            Some(other) => Err(self.failed(misplaced(&other))),
            None => Err(self.failed(ErrorKind::TimedOut.into())),
        }
    }

    /// Takes back what was left under a name, if it is still an address of this node's: for one that ends.
    /// Nothing takes it back by itself.
    ///
    /// # Errors
    /// [`RendezvousError`].
    pub fn withdraw(&self, name: &str, address: &Address, within: Duration) -> Result<(), RendezvousError> {
        check_name(name)?;
        let ask = Ask::Withdraw { name: name.to_owned(), address: address.as_bytes().to_vec() };
        match self.ask(&ask, soon(within), within)? {
            Some(Answer::Withdrawn) => Ok(()),
            Some(other) => Err(self.failed(misplaced(&other))),
            None => Err(self.failed(ErrorKind::TimedOut.into())),
        }
    }

    /// The address that was left last under a name, as [`Node::connect_to`](crate::Node::connect_to) takes
    /// it; waits for the rendezvous, and for somebody to leave one.
    ///
    /// # Errors
    /// [`RendezvousError`], after `within` at the latest.
    pub fn find(&self, name: &str, within: Duration) -> Result<Address, RendezvousError> {
        check_name(name)?;
        let (begun, deadline) = (Instant::now(), soon(within));
        loop {
            let asked = Instant::now();
            let left = deadline.saturating_duration_since(asked).min(WAIT_MAX);
            let within_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            let ask = Ask::Find { name: name.to_owned(), within_ms };
            // The answer that there is none comes after the time for which it was asked: at the end nobody
            // waits for it.
            match self.ask(&ask, deadline, left + HANDSHAKE_WITHIN)? {
                Some(Answer::Found(address)) => return Ok(Address::from_bytes(address)?),
                Some(Answer::Nobody) if Instant::now() < deadline => {
                    // Before its time: too many wait.
                    if asked.elapsed() < left {
                        std::thread::sleep(LATER.min(deadline.saturating_duration_since(Instant::now())));
                    }
                }
                None if Instant::now() < deadline => return Err(self.failed(ErrorKind::TimedOut.into())),
                Some(Answer::Nobody) | None => {
                    return Err(RendezvousError::Timeout { name: name.to_owned(), waited: begun.elapsed() });
                }
                Some(other) => return Err(self.failed(misplaced(&other))),
            }
        }
    }

    /// Asks, by `deadline`, and waits no longer than `within` for the answer to what was heard. `None`: it
    /// did not come in time.
    fn ask(&self, ask: &Ask, deadline: Instant, within: Duration) -> Result<Option<Answer>, RendezvousError> {
        let asked = || {
            let stream = self.reach(deadline)?;
            // Where many come at once, it may be long before it is this one's turn.
            let mut channel = tcp_server::begin(stream, &self.secret, deadline).map_err(|error| {
                let stranger = "whoever is there does not have this secret, or is of another version";
                if error.kind() == ErrorKind::UnexpectedEof { io::Error::other(stranger) } else { error }
            })?;
            match tcp_server::ask(&mut channel, ask, deadline, || deadline.min(soon(within))) {
                Ok(answer) => Ok(Some(answer)),
                Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
                Err(error) => Err(error),
            }
        };
        asked().map_err(|source| self.failed(source))
    }

    fn reach(&self, deadline: Instant) -> io::Result<Alone<TcpStream>> {
        reach_server(&self.at, deadline).map_err(|unreached| match unreached {
            Unreached::Unresolved(error) => error,
            Unreached::Unanswered(_, failed) => Failed::into_error(failed),
        })
    }

    fn failed(&self, source: io::Error) -> RendezvousError {
        RendezvousError::Io { at: self.at.clone(), source }
    }
}

/// The error of an answer that is none to what was asked.
fn misplaced(answer: &Answer) -> io::Error {
    match answer {
        Answer::Elsewhere => io::Error::other("a job's processes meet there, and no addresses are kept"),
        _ => ErrorKind::InvalidData.into(),
    }
}

/// Listens at a name or address, and a port.
fn listen_by_name(at: &str) -> io::Result<TcpListener> {
    let found: Vec<SocketAddr> = at.to_socket_addrs()?.collect();
    let (name, _) = at.rsplit_once(':').unwrap_or((at, ""));
    listen_for(name, &found)
}

fn check_name(name: &str) -> Result<(), RendezvousError> {
    let len = name.len();
    if (1..=NAME_MAX).contains(&len) { Ok(()) } else { Err(RendezvousError::Name { len }) }
}

fn parse_secret(text: &str) -> Result<Secret, RendezvousError> {
    let (name, expected) = (SECRET, "64 hexadecimal digits (`openssl rand -hex 32` makes some)");
    match text.trim() {
        "" => Err(RendezvousError::Unset { name, expected }),
        text => {
            // Which letters they are is a secret.
            let given = || format!("{} letters", text.chars().count());
            Secret::from_hex(text).ok_or_else(|| RendezvousError::Setting { name, expected, given: given() })
        }
    }
}

/// The secret's digits as the environment has them; none where it has none, which is no secret.
pub(crate) fn secret_from_env() -> Result<String, RendezvousError> {
    let text = variable(SECRET).unwrap_or_default();
    parse_secret(&text).map(|_| text)
}

/// An event at a [`Registry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "what")]
#[non_exhaustive]
pub enum Visit {
    /// An address was left.
    Left {
        /// Under which name.
        name: String,
        /// By whom.
        from: SocketAddr,
    },
    /// One was found.
    Found {
        /// Under which name.
        name: String,
        /// By whom.
        from: SocketAddr,
    },
    /// One was withdrawn.
    Withdrawn {
        /// Under which name.
        name: String,
        /// By whom.
        from: SocketAddr,
    },
    /// Somebody without the secret, or who makes no sense, was sent away.
    Stranger {
        /// Who.
        from: SocketAddr,
        /// The fault.
        why: String,
    },
}

/// The rendezvous itself: what `standpipe rendezvous` runs.
#[derive(Debug)]
pub struct Registry {
    server: Server,
    state: Arc<RegistryState>,
}

/// The addresses that are kept, and how many wait for others.
#[derive(Debug, Default)]
struct Kept {
    addresses: BTreeMap<String, Vec<u8>>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct RegistryState {
    kept: Mutex<Kept>,
    left: Condvar,
}

impl Registry {
    /// Listens at an address and port, such as `10.0.0.1:7300`, for those who have the secret in
    /// `STANDPIPE_SECRET`. `[::]:7300` stands for all addresses of the host, of both families, and
    /// `0.0.0.0:7300` for those of IPv4. A name does, too, that leads to the host's loopback, as its own name
    /// does on many hosts; `localhost` stays loopback.
    ///
    /// # Errors
    /// [`RendezvousError::Unset`] without a secret, [`RendezvousError::Setting`] where it is none, and
    /// [`RendezvousError::Listen`] where nobody can listen.
    pub fn open(at: &str) -> Result<Registry, RendezvousError> {
        Registry::open_by(at, &secret_from_env()?)
    }

    /// The same by a secret of 64 hexadecimal digits.
    ///
    /// # Errors
    /// As [`Registry::open`].
    pub fn open_by(at: &str, secret: &str) -> Result<Registry, RendezvousError> {
        let failed = |source| RendezvousError::Listen { at: at.to_owned(), source };
        let secret = parse_secret(secret)?;
        let listener = match at.parse() {
            Ok(SocketAddr::V6(all)) if all.ip().is_unspecified() => listen_everywhere(all.port()),
            _ => listen_by_name(at),
        };
        let server = listener.and_then(|listener| Server::new(listener, secret, VISITORS_MAX));
        Ok(Registry { server: server.map_err(failed)?, state: Arc::default() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.server.address()
    }

    /// Serves whoever comes, and tells what happens, by any thread. Returns only where the listening socket
    /// fails for good.
    pub fn serve(&self, tell: impl Fn(&Visit) + Send + Sync + 'static) -> io::Error {
        let tell = Arc::new(tell);
        loop {
            let (state, tell) = (Arc::clone(&self.state), Arc::clone(&tell));
            let receive = move |visitor: Visitor| {
                let Visitor { from, asks, slot } = visitor;
                let visit = asks.and_then(|(ask, mut channel)| {
                    let (said, visit) = state.hear(ask, from)?;
                    answer(&mut channel, &said)?;
                    Ok(visit)
                });
                // Others may come, however long the telling takes.
                drop(slot);
                let stranger = |error: io::Error| Some(Visit::Stranger { from, why: error.to_string() });
                if let Some(visit) = visit.unwrap_or_else(stranger) {
                    tell(&visit);
                }
            };
            match self.server.take_in(None, receive) {
                Ok(()) => {}
                Err(TakeInError::Listener(error)) => return error,
                Err(TakeInError::NoThread(_)) => std::thread::sleep(AGAIN),
            }
        }
    }
}

/// In so much time; in a year, where that is longer.
fn soon(time: Duration) -> Instant {
    const AGE: Duration = Duration::from_secs(365 * 86_400);
    Instant::now() + time.min(AGE)
}

impl RegistryState {
    /// Answers one question, and tells which event that was.
    fn hear(&self, asked: Ask, from: SocketAddr) -> io::Result<(Answer, Option<Visit>)> {
        Ok(match asked {
            Ask::Leave { name, address } => {
                let is_good = check_name(&name).is_ok() && check_address(&address).is_ok();
                if !is_good {
                    return Err(io::Error::new(ErrorKind::InvalidData, "no name or no address"));
                }
                match self.leave(&name, address) {
                    true => (Answer::Left, Some(Visit::Left { name, from })),
                    false => (Answer::Full, None),
                }
            }
            Ask::Find { name, within_ms } => {
                let within = Duration::from_millis(within_ms.into()).min(WAIT_MAX);
                match self.find(&name, soon(within)) {
                    Some(address) => (Answer::Found(address), Some(Visit::Found { name, from })),
                    None => (Answer::Nobody, None),
                }
            }
            Ask::Withdraw { name, address } => {
                let visit = self.withdraw(&name, &address).then_some(Visit::Withdrawn { name, from });
                (Answer::Withdrawn, visit)
            }
            Ask::Join(card) => {
                let why = format!("rank {} of a job, which does not meet here", card.rank);
                (Answer::Elsewhere, Some(Visit::Stranger { from, why }))
            }
        })
    }

    fn leave(&self, name: &str, address: Vec<u8>) -> bool {
        let addresses = &mut self.kept().addresses;
        if addresses.len() >= KEPT_MAX && !addresses.contains_key(name) {
            return false;
        }
        addresses.insert(name.to_owned(), address);
        self.left.notify_all();
        true
    }

    fn withdraw(&self, name: &str, address: &[u8]) -> bool {
        let addresses = &mut self.kept().addresses;
        let is_there = addresses.get(name).is_some_and(|there| is_of_same_node(there, address));
        is_there && addresses.remove(name).is_some()
    }

    fn find(&self, name: &str, deadline: Instant) -> Option<Vec<u8>> {
        let mut kept = self.kept();
        loop {
            if let Some(address) = kept.addresses.get(name) {
                return Some(address.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || kept.waiting >= WAITING_MAX {
                return None;
            }
            kept.waiting += 1;
            kept = self.left.wait_timeout(kept, left).unwrap_or_else(PoisonError::into_inner).0;
            assert!(kept.waiting > 0, "who waits is counted");
            kept.waiting -= 1;
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

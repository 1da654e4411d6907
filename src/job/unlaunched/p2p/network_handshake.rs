//! Meeting over the network: the conversation of the two, which is encrypted by the secret of the called
//! one's address.
//!
//! ```text
//!   caller                                                  called
//!    | connects to one of the ways that the address names
//!    |--- handshake, by the secret ---------------------------------->| each shows that it knows the secret
//!    | unless the called has called meanwhile
//!    |--- Hello: which node, a proof of it, its place here, its card ->| gives a number; from now on messages may come
//!    |<-- Met: the caller's place there, the called's card ------------|
//!    | says the first word over the network, upon which the called may speak, too
//!   ... the connection stays open: its end is the peer's loss
//! ```
//! A *card* is what far peers must know, as in a job on several hosts: where the endpoint is, the handlers'
//! names, the share of the directory.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use vm::forks::Alone;

use super::dial::CallError;
use super::peer_ids::{PeerConnection, Who, Wire};
use super::state::{Arrival, Introduction, ListenerState, PeerRoute};
use crate::job::launched::member::{JoinError, Notice};
use crate::job::launched::wire::{Decline, How};
use crate::job::plumbing::addresses::canonical;
use crate::job::plumbing::channel::{Channel, HANDSHAKE_WITHIN, reach};
use crate::job::plumbing::env::{JobName, NAME_BYTES};
use crate::job::plumbing::host_id::{HostId, why_alone};
use crate::job::plumbing::identity_proof::{Proof, SALT_BYTES, secret_of_two};
use crate::job::plumbing::secret::{Secret, random_bytes};
use crate::job::plumbing::staggered::first;
use crate::job::unlaunched::address::Told;

/// The purpose of the connection, and the version of what is said by it: [`Hello`], [`Answer`], and the
/// fields of the cards in them. Raise the number with every change of those. Two whose numbers differ fail at
/// the handshake, as if one had another secret. The meaning of the messages after it is no part of it: the
/// cards tell the version of those.
pub(super) const PROLOGUE: &[u8] = b"standpipe door 4";

/// No node has more to say: most of it are its handlers' names.
pub(super) const WORDS_MAX: usize = 128 << 10;

/// How long whoever is reached by one way may take to show its secret: it may first have to turn away
/// unauthenticated connections that say nothing.
const KNOCK_WITHIN: Duration = Duration::from_secs(3 * HANDSHAKE_WITHIN.as_secs());

/// Signs of life that a connection asks for in the time for which a peer may be silent.
const PROBES: u32 = 3;

/// The longest silence that the system is told of: it takes no more than 32,767 s between two of them.
const SILENCE_MAX: Duration = Duration::from_secs(32_767 * (PROBES as u64 + 1));

/// The shortest time between two of them.
const PROBE_AFTER_MIN: Duration = Duration::from_secs(1);

/// A caller's words.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) node: [u8; NAME_BYTES],
    pub(super) proof: Proof,
    /// The called one's entry at the caller.
    pub(super) place: u32,
    pub(super) places: u32,
    pub(super) salt: [u8; SALT_BYTES],
    pub(super) card: Vec<u8>,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Met { place: u32, places: u32, salt: [u8; SALT_BYTES], card: Vec<u8> },
    Declined(Decline),
}

/// Reads what somebody says at the listener who has the secret, and forgets it: for the fuzzer. Whether it
/// was anything.
#[doc(hidden)]
pub fn check_handshake_words(bytes: &[u8]) -> bool {
    read::<Hello>(bytes).is_ok() | read::<Answer>(bytes).is_ok()
}

pub(super) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((words, [])) => Ok(words),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "words that no node says")),
    }
}

pub(super) fn written<T: Serialize>(words: &T) -> Vec<u8> {
    postcard::to_stdvec(words).expect("plain values can be written")
}

impl ListenerState {
    /// Calls on a node over the network, in that turn, unless that has called this one before it is reached:
    /// whoever gets through first counts, as the other may never do.
    pub(super) fn try_call_far(
        &self,
        told: &Told,
        who: &Who,
        turn: u64,
        deadline: Instant,
    ) -> Result<u32, CallError> {
        let begun = Instant::now();
        if !self.config.listens {
            return Err(CallError::NotListening);
        }
        let card = (self.config.introduce)().map_err(|error| {
            // Else it might have been reached without a network.
            CallError::Network(why_alone().map_or(error.clone(), |why| format!("{error}; {why}")))
        })?;
        let channel = dial_any(told, begun, deadline, || self.has_called(who, deadline))?;
        let salt = salt().map_err(|error| CallError::Join(JoinError::Io(error)))?;
        let places = self.config.places;
        let number = {
            let mut peer_ids = self.peer_ids();
            if !peer_ids.call(who, turn) {
                return Err(CallError::Declined(Decline::Crossed));
            }
            peer_ids.take_number().ok_or(CallError::Full { places })?
        };
        let conversed = self.converse(told, who, (number, card, salt), channel, begun, deadline);
        conversed.map_err(|(error, is_used)| {
            if !is_used {
                // The process that was told the number has a secret with it that nobody has again.
                self.peer_ids().give_back(number);
            }
            error
        })
    }

    /// Says and hears what the two say. The error says besides whether the number was used here.
    fn converse(
        &self,
        told: &Told,
        who: &Who,
        (number, card, salt): (u32, Vec<u8>, [u8; SALT_BYTES]),
        mut channel: Channel,
        begun: Instant,
        deadline: Instant,
    ) -> Result<u32, (CallError, bool)> {
        let places = self.config.places;
        let proof = Proof::of(&self.secret, &self.node, &who.node);
        let hello = Hello { node: self.node.bytes(), proof, place: number, places, salt, card };
        let broken = |error: io::Error| match error.kind() {
            ErrorKind::TimedOut => (CallError::timeout(begun), false),
            ErrorKind::InvalidData => (CallError::Join(JoinError::Malformed), false),
            _ => (CallError::Join(JoinError::HungUp), false),
        };
        channel.say(&written(&hello), deadline).map_err(broken)?;
        let heard = channel.hear(WORDS_MAX, deadline).map_err(broken)?;
        match read(&heard).map_err(broken)? {
            Answer::Met { place, places, salt: theirs, card } => {
                let secret = secret_of_two(&told.secret, (&self.node, &salt), (&who.node, &theirs));
                let met = met_at(&channel);
                let way = PeerRoute::Far(Introduction { card, secret, called: true, met });
                let stream = self.watched(channel.into_stream());
                let stream = stream.map_err(|error| (CallError::Join(JoinError::Io(error)), false))?;
                let line = PeerConnection { who: who.clone(), wire: Wire::Far(stream) };
                let entered = self.enter(line, Arrival { number, place, places, way }, None);
                entered.map_err(|error| {
                    let is_used = !matches!(error, CallError::Unfit(_));
                    (error, is_used)
                })
            }
            Answer::Declined(decline) => Err((CallError::Declined(decline), false)),
        }
    }

    /// A connection by which nothing more is said, and whose end is noticed.
    fn watched(&self, stream: Alone<TcpStream>) -> io::Result<Alone<TcpStream>> {
        stream.set_nonblocking(true)?;
        if let Some(silence) = self.config.silence {
            let silence = silence.min(SILENCE_MAX);
            let apart = (silence / (PROBES + 1)).max(PROBE_AFTER_MIN);
            sockopt::set_socket_keepalive(&stream, true)?;
            sockopt::set_tcp_keepidle(&stream, apart)?;
            sockopt::set_tcp_keepintvl(&stream, apart)?;
            sockopt::set_tcp_keepcnt(&stream, PROBES)?;
            let whole =
                u32::try_from(silence.max(PROBE_AFTER_MIN).as_millis()).expect("a day and a half at most");
            sockopt::set_tcp_user_timeout(&stream, whole)?;
        }
        Ok(stream)
    }
}

/// The address of the other's host by which the two have just met: what data take, too.
fn met_at(channel: &Channel) -> Option<SocketAddr> {
    channel.stream().peer_addr().ok().map(canonical)
}

fn salt() -> io::Result<[u8; SALT_BYTES]> {
    Ok(random_bytes()?)
}

/// Connects to whichever of the node's ways leads to it, unless that has called meanwhile.
fn dial_any(
    told: &Told,
    begun: Instant,
    deadline: Instant,
    has_called: impl Fn() -> bool,
) -> Result<Channel, CallError> {
    let own = HostId::own();
    // A process that cannot tell whether loopback is the same to both tries that, too: another that listens
    // there does not know the secret.
    let here = told.host.shares_sockets(&own) || !own.is_known() || !told.host.is_known();
    let ways: Vec<SocketAddr> =
        told.ways.iter().filter(|way| here || !way.ip().is_loopback()).copied().collect();
    if ways.is_empty() {
        return Err(CallError::no_way());
    }
    let secret = told.secret.clone();
    let attempt = move |way: &SocketAddr, until| dial_at(way, &secret, until);
    // A call that has come may be declined meanwhile; then this one is made again.
    let is_crossed = Cell::new(false);
    let stop = || {
        is_crossed.set(is_crossed.get() || has_called());
        is_crossed.get()
    };
    first(&ways, deadline, attempt, stop).map_err(|failed| match () {
        () if is_crossed.get() => CallError::Declined(Decline::Crossed),
        // Its host is there, and nobody listens.
        () if failed.0.iter().all(|(_, error)| is_refused(error)) => CallError::Join(JoinError::NoBroker),
        () if Instant::now() >= deadline => {
            CallError::Timeout { waited: begun.elapsed(), tried: failed.to_string() }
        }
        () => CallError::Unreachable(failed.to_string()),
    })
}

/// A stranger listens there, or a node that was too busy to answer in time.
const HUNG_UP: &str =
    "whoever listens there hung up: it does not know the address's secret, or had no time to answer";

/// Connects to a node by one way, where it is to show by `until` that it has its address's secret.
fn dial_at(way: &SocketAddr, secret: &Secret, until: Instant) -> io::Result<Channel> {
    let within = until.min(Instant::now() + KNOCK_WITHIN);
    let met = reach(way, within).and_then(|stream| {
        stream.set_nodelay(true)?;
        Channel::begin(stream, secret, PROLOGUE, within)
    });
    met.map_err(|error| match error {
        // One that ends while it is called hangs up, as one does that was shown another secret; but then
        // nobody listens any more.
        error if has_hung_up(&error) => match reach(way, within) {
            Err(error) if is_refused(&error) => error,
            _ => io::Error::other(HUNG_UP),
        },
        error => error,
    })
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

fn has_hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Hears a peer that has come over the network, and makes it a peer, or says why not.
pub(super) fn welcome(shared: &ListenerState, stream: Alone<TcpStream>) -> io::Result<()> {
    let deadline = Instant::now() + HANDSHAKE_WITHIN;
    stream.set_nodelay(true)?;
    let mut channel = Channel::accept(stream, &shared.secret, PROLOGUE, deadline)?;
    let hello: Hello = read(&channel.hear(WORDS_MAX, deadline)?)?;
    let who = Who { node: JobName::of(&hello.node), proof: hello.proof };
    let number = match shared.expect(&who) {
        Ok(number) => number,
        Err(decline) => return channel.say(&written(&Answer::Declined(decline)), deadline),
    };
    let admitted = admit(shared, &who, number, hello, met_at(&channel));
    let deadline = Instant::now() + HANDSHAKE_WITHIN;
    let done = match admitted {
        Ok(answer) => {
            let said = channel.say(&written(&answer), deadline);
            let kept = said.and_then(|()| shared.watched(channel.into_stream())).map(|stream| {
                let line = PeerConnection { who: who.clone(), wire: Wire::Far(stream) };
                // Where it is refused, the connection has ended, and all have been told.
                let _ = shared.keep(number, line, None);
            });
            kept.inspect_err(|_| (shared.config.tell)(Notice::Lost { rank: number, how: How::Vanished }))
        }
        Err(decline) => {
            shared.peer_ids().give_back(number);
            channel.say(&written(&Answer::Declined(decline)), deadline)
        }
    };
    shared.settle(&who);
    done
}

/// Makes an unauthenticated connection a peer, which from now on may send messages.
fn admit(
    shared: &ListenerState,
    who: &Who,
    number: u32,
    hello: Hello,
    met: Option<SocketAddr>,
) -> Result<Answer, Decline> {
    // Whole: what is wrong may name what to set at both.
    let unfit = |what: String| Decline::Unfit { what };
    let card = (shared.config.introduce)().map_err(unfit)?;
    let salt = salt().map_err(|error| unfit(error.to_string()))?;
    let secret = secret_of_two(&shared.secret, (&who.node, &hello.salt), (&shared.node, &salt));
    let way = PeerRoute::Far(Introduction { card: hello.card, secret, called: false, met });
    let arrival = Arrival { number, place: hello.place, places: hello.places, way };
    (shared.config.admit)(arrival).map_err(unfit)?;
    Ok(Answer::Met { place: number, places: shared.config.places, salt, card })
}

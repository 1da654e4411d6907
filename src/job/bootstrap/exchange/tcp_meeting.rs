//! A meeting at rank 0, for processes that know nothing but where it is: each connects to it over TCP.
//!
//! Whoever comes must have the job's secret, and nobody else reads or changes what is said: each connection
//! is a [`Channel`]. Rank 0 hears what everybody has to say, and says all of it to all.
//!
//! Several jobs may be behind one port by mistake, with one secret: rank 0 answers each visitor's card, and
//! refuses those of another job that can be told by their rank, their size or their launcher's
//! [marks](Marks).
//!
//! It listens on the port after `MASTER_PORT`, which is PyTorch's own, or on `STANDPIPE_PORT`.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SendError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::blocking_call::once;
use super::common::{Exchange, ExchangeError, Lookup, place, variable};
use super::marks::Marks;
use crate::job::bootstrap::addresses::{canonical, listen_everywhere, listen_for, remark_of_loopback};
use crate::job::bootstrap::channel::{Channel, HANDSHAKE_WITHIN, reach};
use crate::job::bootstrap::poll::poll_until;
use crate::job::bootstrap::secret::Secret;
use crate::job::bootstrap::staggered::first;

/// What the launcher leaves in the environment.
pub(super) const OFFERED: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
const PORT: &str = "STANDPIPE_PORT";
const SECRET: &str = "STANDPIPE_SECRET";

/// Both sides must mean the same by what follows.
const PROLOGUE: &[u8] = b"standpipe rendezvous 2";

/// No process has more to say.
const WORDS_MAX: usize = 16 << 20;

/// No card and no answer to one is longer.
const CARD_MAX: usize = 4 << 10;

/// What a visitor says first.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Card {
    rank: u32,
    /// Of its job.
    size: u32,
    marks: Marks,
}

/// What rank 0 answers to a card.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// It has its place, and all wait for the others.
    Seated,
    RankTaken,
    /// All have come.
    Late,
    OtherSize {
        size: u32,
    },
    OtherJob {
        marks: Marks,
    },
}

/// The error of a process of several that these variables do not tell where to meet. As a job of one it would
/// compute alone, and nobody would notice.
pub(super) fn incomplete(lookup: Lookup<'_>) -> Option<ExchangeError> {
    let [rank, size, meeting @ ..] = OFFERED;
    let missing = meeting.into_iter().find(|name| lookup(name).is_none())?;
    lookup(rank)?;
    let size = lookup(size)?.trim().parse().ok().filter(|size| *size > 1)?;
    Some(ExchangeError::Incomplete { size, missing })
}

/// Connections that are turned away or looked at, at a time, besides those of the job.
const STRANGERS_MAX: u32 = 64;

/// Between two attempts to reach rank 0, which may not be there yet.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Attempts to meet rank 0 that may end by a closed connection before this process takes it for a stranger.
const CUTS_MAX: u32 = 2;

/// This process's part in the meeting.
pub(crate) struct TcpMeeting {
    rank: u32,
    size: u32,
    /// At rank 0: all others, by rank; elsewhere: rank 0.
    others: Vec<Channel>,
}

/// A meeting, as the environment describes it.
pub(super) struct Meeting {
    host: String,
    port: u16,
    secret: Secret,
    card: Card,
}

impl Meeting {
    pub(super) fn from_env(lookup: Lookup<'_>) -> Result<Meeting, ExchangeError> {
        let (rank, size) = place(lookup, "RANK", "WORLD_SIZE")?;
        if lookup(SECRET).is_none() {
            return Err(ExchangeError::NoSecret);
        }
        let secret = variable(lookup, SECRET, "64 hexadecimal digits", Secret::from_hex)?;
        let host = variable(lookup, "MASTER_ADDR", "a host's name or address", |text| Some(text.to_owned()))?;
        let port = match lookup(PORT) {
            Some(_) => variable(lookup, PORT, "a port from 1 to 65535", read_port)?,
            None => {
                let usual = |text: &str| read_port(text)?.checked_add(1);
                variable(lookup, "MASTER_PORT", "a port from 1 to 65534", usual)?
            }
        };
        Ok(Meeting { host, port, secret, card: Card { rank, size, marks: Marks::from_env(lookup) } })
    }
}

impl std::fmt::Display for Meeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Meeting { host, port, card: Card { rank, size, .. }, .. } = self;
        write!(f, "RANK and WORLD_SIZE: rank {rank} of {size}, which meet at {host}, port {port}")
    }
}

impl TcpMeeting {
    /// Meets the others.
    pub(super) fn meet(meeting: Meeting, deadline: Instant) -> Result<TcpMeeting, ExchangeError> {
        let Meeting { host, port, secret, card } = meeting;
        let Card { rank, size, .. } = card;
        let others = match rank {
            _ if size == 1 => Vec::new(),
            0 => {
                let listener = listen(&host, port, deadline)?;
                gather(&listener, &card, &secret, deadline)?
            }
            _ => vec![connect(&host, port, &card, &secret, deadline)?],
        };
        Ok(TcpMeeting { rank, size, others })
    }

    fn gather_words(&mut self, own: &[u8], deadline: Instant) -> io::Result<Vec<Vec<u8>>> {
        let mut all = vec![own.to_vec()];
        for other in &mut self.others {
            all.push(other.hear(WORDS_MAX, deadline)?);
        }
        for other in &mut self.others {
            all.iter().try_for_each(|words| other.say(words, deadline))?;
        }
        Ok(all)
    }

    fn send_words(&mut self, own: &[u8], deadline: Instant) -> io::Result<Vec<Vec<u8>>> {
        let Some(zero) = self.others.first_mut() else { return Ok(vec![own.to_vec()]) };
        zero.say(own, deadline)?;
        (0..self.size).map(|_| zero.hear(WORDS_MAX, deadline)).collect()
    }
}

impl Exchange for TcpMeeting {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn met_at(&self, rank: u32) -> Option<SocketAddr> {
        // Rank 0 has met all others, and they have met rank 0.
        let at = if self.rank == 0 { rank.checked_sub(1)? } else { rank };
        let at = self.others.get(at as usize)?.stream().local_addr();
        at.ok().map(canonical)
    }

    fn all_gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let done =
            if self.rank == 0 { self.gather_words(own, deadline) } else { self.send_words(own, deadline) };
        done.map_err(|source| match source.kind() {
            ErrorKind::TimedOut => {
                ExchangeError::Timeout { waited_for: "what another rank has to say".to_owned() }
            }
            _ => failed("the meeting at rank 0", source),
        })
    }
}

fn read_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// Listens where the others look, and nowhere else; at every address where that is none of this host's own,
/// or where a name may lead others elsewhere.
fn listen(host: &str, port: u16, deadline: Instant) -> Result<TcpListener, ExchangeError> {
    let with = format!("listening at {host}, port {port} ({PORT} sets another)");
    let found = resolve(host, port, deadline).map_err(|source| failed(&with, source))?;
    match listen_for(host, &found) {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => listen_everywhere(port),
        bound => bound,
    }
    .map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => ExchangeError::PortTaken { at: format!("{host}, port {port}") },
        _ => failed(&with, source),
    })
}

/// Waits for all others to come, by rank.
fn gather(
    listener: &TcpListener,
    own: &Card,
    secret: &Secret,
    deadline: Instant,
) -> Result<Vec<Channel>, ExchangeError> {
    listener.set_nonblocking(true).map_err(|source| failed("the listening socket", source))?;
    let mut places: Vec<Option<Channel>> = (1..own.size).map(|_| None).collect();
    let (visitors, welcomed) = channel();
    let mut looked_at = 0;
    while places.iter().any(Option::is_none) {
        seat(&welcomed, &mut looked_at, &mut places);
        let until = deadline.min(Instant::now() + RETRY_AFTER);
        let room = looked_at < own.size + STRANGERS_MAX;
        let knock = if room { PollFlags::IN } else { PollFlags::empty() };
        let ready = poll_until(&mut [PollFd::new(listener, knock)], Some(until));
        let knocked = match ready {
            Ok(0) => None,
            Ok(_) => Some(listener.accept()),
            Err(error) => Some(Err(error.into())),
        };
        match knocked {
            None => {}
            Some(Ok((stream, from))) => {
                let (visitors, own, secret) = (visitors.clone(), own.clone(), secret.clone());
                looked_at += 1;
                // A visitor that says nothing keeps nobody else waiting.
                let hear = move || {
                    let visitor = welcome(stream, &own, &secret);
                    // Nobody listens any more once all have come.
                    if let Err(SendError((_, Ok((_, mut late))))) = visitors.send((from, visitor)) {
                        let _ = answer(&mut late, &Answer::Late);
                    }
                };
                let thread = std::thread::Builder::new().name("standpipe-guest".into()).spawn(hear);
                thread.map_err(|source| failed("a thread to hear a guest at the meeting", source))?;
            }
            // For want of descriptors, say, which does not pass by asking again at once.
            Some(Err(_)) => std::thread::sleep(RETRY_AFTER),
        }
        if Instant::now() >= deadline {
            let missing: Vec<usize> = places
                .iter()
                .enumerate()
                .filter(|(_, place)| place.is_none())
                .map(|(at, _)| at + 1)
                .collect();
            return Err(ExchangeError::Timeout { waited_for: ranks(&missing) });
        }
    }
    Ok(places.into_iter().flatten().collect())
}

/// Ranks in words, not too many.
fn ranks(missing: &[usize]) -> String {
    let named: Vec<String> = missing.iter().take(8).map(usize::to_string).collect();
    let more = if missing.len() > 8 { format!(" and {} more", missing.len() - 8) } else { String::new() };
    format!("rank {}{more}", named.join(", "))
}

type Visitor = (SocketAddr, io::Result<(u32, Channel)>);

/// Gives places to those who have shown the secret, and tells them so, or why they have none.
fn seat(welcomed: &Receiver<Visitor>, looked_at: &mut u32, places: &mut [Option<Channel>]) {
    while let Ok((from, visitor)) = welcomed.try_recv() {
        *looked_at -= 1;
        let (rank, mut channel) = match visitor {
            Ok(visitor) => visitor,
            Err(error) => {
                tracing::warn!(%from, %error, "a stranger at the job's meeting was sent away");
                continue;
            }
        };
        let place = (rank as usize).checked_sub(1).and_then(|at| places.get_mut(at));
        match place.filter(|place| place.is_none()) {
            Some(place) => match answer(&mut channel, &Answer::Seated) {
                Ok(()) => *place = Some(channel),
                Err(error) => {
                    tracing::warn!(%from, rank, %error, "a process has gone from the job's meeting")
                }
            },
            None => {
                tracing::warn!(
                    %from, rank,
                    "sent away from the job's meeting, as this rank has come before: is another job behind the same port?"
                );
                let _ = answer(&mut channel, &Answer::RankTaken);
            }
        }
    }
}

/// Answers a card: words that a fresh connection has room for.
fn answer(visitor: &mut Channel, answer: &Answer) -> io::Result<()> {
    visitor.say(&written(answer), Instant::now() + HANDSHAKE_WITHIN)
}

/// Lets a visitor in who has the secret, and hears which rank it is.
fn welcome(stream: TcpStream, own: &Card, secret: &Secret) -> io::Result<(u32, Channel)> {
    let deadline = Instant::now() + HANDSHAKE_WITHIN;
    let mut channel = Channel::accept(stream, secret, PROLOGUE, deadline)?;
    let card: Card = read(&channel.hear(CARD_MAX, deadline)?)?;
    let (refusal, why) = match card.marks.differ(&own.marks) {
        Some((name, theirs, ours)) => {
            let why = format!("it is of another job: its {name} is {theirs:?}, this one's is {ours:?}");
            (Answer::OtherJob { marks: own.marks.clone() }, why)
        }
        None if card.size != own.size => {
            let why = format!("it is of a job of another size: of {}, this one of {}", card.size, own.size);
            (Answer::OtherSize { size: own.size }, why)
        }
        None => return Ok((card.rank, channel)),
    };
    answer(&mut channel, &refusal)?;
    Err(io::Error::new(ErrorKind::InvalidData, why))
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    let read = postcard::from_bytes(bytes);
    read.map_err(|_| io::Error::new(ErrorKind::InvalidData, "words that make no sense at a meeting"))
}

fn written<T: Serialize>(words: &T) -> Vec<u8> {
    postcard::to_stdvec(words).expect("plain values can be written")
}

/// Goes to rank 0, which may come later.
fn connect(
    host: &str,
    port: u16,
    card: &Card,
    secret: &Secret,
    deadline: Instant,
) -> Result<Channel, ExchangeError> {
    let with = format!("rank 0 at {host}, port {port}");
    let mut cut = 0;
    let met = loop {
        let waited_for = match cut {
            0 => with.clone(),
            _ => format!("{with} (whoever was there before closed the connection)"),
        };
        let stream = reach_zero(host, port, &waited_for, deadline)?;
        match Channel::begin(stream, secret, PROLOGUE, deadline) {
            // Whoever held the port may just have ended. Nobody has been told of this rank yet.
            Err(error) if is_cut(&error) && cut < CUTS_MAX && Instant::now() + RETRY_AFTER < deadline => {
                cut += 1;
                std::thread::sleep(RETRY_AFTER);
            }
            met => break met,
        }
    };
    let met = met.and_then(|mut channel| {
        channel.say(&written(card), deadline)?;
        Ok((read(&channel.hear(CARD_MAX, deadline)?)?, channel))
    });
    match met {
        Ok((answer, channel)) => admitted(answer, card, with).map(|()| channel),
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(ExchangeError::Timeout { waited_for: with }),
        Err(error) => Err(ExchangeError::Stranger { with, why: error.to_string() }),
    }
}

/// Whether rank 0's answer to this card lets its visitor in.
fn admitted(answer: Answer, card: &Card, with: String) -> Result<(), ExchangeError> {
    Err(match answer {
        Answer::Seated => return Ok(()),
        Answer::RankTaken => ExchangeError::RankTaken { with, rank: card.rank },
        Answer::Late => ExchangeError::Late { with },
        Answer::OtherSize { size } => ExchangeError::OtherSize { with, ours: card.size, theirs: size },
        Answer::OtherJob { marks } => match card.marks.differ(&marks) {
            Some((variable, ours, theirs)) => {
                let [variable, ours, theirs] = [variable, ours, theirs].map(str::to_owned);
                ExchangeError::OtherJob { with, variable, ours, theirs }
            }
            None => ExchangeError::Stranger { with, why: "it says that it is of another job".to_owned() },
        },
    })
}

/// Whether the other end has closed a connection: rank 0 does that to those that have not the secret.
fn is_cut(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Whether no port was left to connect from: an error of this library's own, without a number of the
/// system's.
fn is_of_ports(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable && error.raw_os_error().is_none()
}

/// Whether a connection's own port is the one that it goes to, as can be where nobody listens.
fn meets_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(own), Ok(peer)) if own == peer)
}

/// A connection to whoever listens at rank 0's port, once somebody does.
fn reach_zero(host: &str, port: u16, with: &str, deadline: Instant) -> Result<TcpStream, ExchangeError> {
    let mut remark = String::new();
    loop {
        let reached = resolve(host, port, deadline).and_then(|found| {
            remark = remark_of_loopback(&found);
            let attempt = |address: &SocketAddr, until| match reach(address, until)? {
                stream if meets_itself(&stream) => Err(ErrorKind::ConnectionRefused.into()),
                stream => Ok(stream),
            };
            first(&found, deadline, attempt, || false).map_err(|failed| {
                // What this host itself has not is told; rank 0 may only be late.
                let own = failed.0.into_iter().find(|(_, error)| is_of_ports(error));
                own.map_or(ErrorKind::ConnectionRefused.into(), |(_, error)| error)
            })
        });
        match reached {
            Ok(stream) => return Ok(stream),
            Err(_) if Instant::now() + RETRY_AFTER < deadline => std::thread::sleep(RETRY_AFTER),
            Err(source) if source.kind() == ErrorKind::ConnectionRefused => {
                return Err(ExchangeError::Timeout { waited_for: format!("{with}{remark}") });
            }
            Err(source) => return Err(failed(&format!("{with}{remark}"), source)),
        }
    }
}

/// The addresses of a host, as the system's resolver finds them in time.
fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let host = host.to_owned();
    let found = once(move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter), deadline);
    found.unwrap_or_else(|unanswered| Err(unanswered.into()))
}

fn failed(with: &str, source: io::Error) -> ExchangeError {
    ExchangeError::Io { with: with.to_owned(), source }
}

#[cfg(test)]
#[path = "tcp_meeting_tests.rs"]
mod tests;

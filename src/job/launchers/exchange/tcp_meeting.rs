//! A meeting at rank 0, for processes that know nothing but where it is: each connects to it over TCP.
//!
//! Rank 0 is a [server](crate::job::plumbing::tcp_server) for whoever has the job's secret. It hears what
//! everybody has to say, and says all of it to all.
//!
//! Several jobs may be behind one port by mistake, with one secret. Rank 0 answers each visitor's card, and
//! refuses those of another job that can be told by their rank, their size or their launcher's
//! [marks](Marks).
//!
//! It listens on the port after `MASTER_PORT`, which is PyTorch's own, or on `STANDPIPE_PORT`.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SendError, channel};
use std::time::Instant;

use vm::forks::Alone;

use super::common::{Exchange, ExchangeError, Lookup, place, variable};
use crate::job::plumbing::addresses::{canonical, listen_everywhere, listen_for, remark_of_loopback};
use crate::job::plumbing::channel::Channel;
use crate::job::plumbing::marks::Marks;
use crate::job::plumbing::secret::Secret;
use crate::job::plumbing::tcp_server::{
    self, AGAIN, Answer, Ask, Card, Server, TakeInError, Unreached, Visitor, answer, reach_server, resolve,
};

/// The variables that the launcher leaves in the environment.
pub(super) const OFFERED: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
const PORT: &str = "STANDPIPE_PORT";
const SECRET: &str = "STANDPIPE_SECRET";

/// No process has more to say.
const WORDS_MAX: usize = 16 << 20;

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
const STRANGERS_MAX: usize = 64;

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
                let room = size as usize + STRANGERS_MAX;
                let server = Server::new(listen(&host, port, deadline)?, secret, room)
                    .map_err(|source| failed("the listening socket", source))?;
                gather(&server, &card, deadline)?
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
    let found = resolve(&(host.to_owned(), port), deadline).map_err(|source| failed(&with, source))?;
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
fn gather(server: &Server, own: &Card, deadline: Instant) -> Result<Vec<Channel>, ExchangeError> {
    let mut places: Vec<Option<Channel>> = (1..own.size).map(|_| None).collect();
    let (visitors, welcomed) = channel();
    while places.iter().any(Option::is_none) {
        seat(&welcomed, &mut places);
        let (visitors, own) = (visitors.clone(), own.clone());
        let receive = move |Visitor { from, asks, slot }: Visitor| {
            let welcomed = asks.and_then(|(ask, channel)| welcome(ask, channel, &own));
            // Nobody listens any more once all have come.
            if let Err(SendError((_, Ok((_, mut late))))) = visitors.send((from, welcomed)) {
                let _ = answer(&mut late, &Answer::Late);
            }
            drop(slot);
        };
        let taken_in = server.take_in(Some(deadline.min(Instant::now() + AGAIN)), receive);
        taken_in.map_err(|error| match error {
            TakeInError::NoThread(source) => failed("a thread to hear a guest at the meeting", source),
            TakeInError::Listener(source) => failed("the listening socket", source),
        })?;
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

/// A visitor's address, and its rank and connection; or the reason to send it away.
type Welcomed = (SocketAddr, io::Result<(u32, Channel)>);

/// Gives places to those who have shown the secret, and tells them so, or why they have none.
fn seat(welcomed: &Receiver<Welcomed>, places: &mut [Option<Channel>]) {
    while let Ok((from, visitor)) = welcomed.try_recv() {
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

/// Which rank a visitor is, if it is of this job.
fn welcome(ask: Ask, mut channel: Channel, own: &Card) -> io::Result<(u32, Channel)> {
    let Ask::Join(card) = ask else {
        answer(&mut channel, &Answer::Elsewhere)?;
        return Err(io::Error::new(ErrorKind::InvalidData, "it asks for what a rendezvous keeps"));
    };
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
        match tcp_server::begin(stream, secret, deadline) {
            // The process that held the port may just have ended. Nobody has been told of this rank yet.
            Err(error) if is_cut(&error) && cut < CUTS_MAX && Instant::now() + AGAIN < deadline => {
                cut += 1;
                std::thread::sleep(AGAIN);
            }
            met => break met,
        }
    };
    let met = met.and_then(|mut channel| {
        let join = Ask::Join(card.clone());
        Ok((tcp_server::ask(&mut channel, &join, deadline, || deadline)?, channel))
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
        Answer::Elsewhere => {
            let why = "it is a `standpipe rendezvous`, where no job meets".to_owned();
            ExchangeError::Stranger { with, why }
        }
        Answer::Left | Answer::Full | Answer::Found(_) | Answer::Nobody | Answer::Withdrawn => {
            ExchangeError::Stranger { with, why: "its answer makes no sense".to_owned() }
        }
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

/// A connection to whoever listens at rank 0's port, once somebody does.
fn reach_zero(
    host: &str,
    port: u16,
    with: &str,
    deadline: Instant,
) -> Result<Alone<TcpStream>, ExchangeError> {
    reach_server(&(host.to_owned(), port), deadline).map_err(|unreached| match unreached {
        Unreached::Unresolved(source) => failed(with, source),
        Unreached::Unanswered(found, why) => {
            let with = format!("{with}{}", remark_of_loopback(&found));
            // This host lacks a port, which is an error; rank 0 may only be late.
            match why.0.into_iter().find(|(_, error)| is_of_ports(error)) {
                Some((_, source)) => failed(&with, source),
                None => ExchangeError::Timeout { waited_for: with },
            }
        }
    })
}

fn failed(with: &str, source: io::Error) -> ExchangeError {
    ExchangeError::Io { with: with.to_owned(), source }
}

#[cfg(test)]
#[path = "tcp_meeting_tests.rs"]
mod tests;

//! A meeting at rank 0, for processes that know nothing but where it is: each connects to it over TCP.
//!
//! Whoever comes must have the job's secret, and nobody else reads or changes what is said: connections speak the
//! [Noise protocol](https://noiseprotocol.org/noise.html), `NNpsk0` with the secret as the key shared before. Rank 0 hears
//! what everybody has to say, and says all of it to all.
//!
//! It listens on the port after `MASTER_PORT`, which is PyTorch's own, or on `STANDPIPE_PORT`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use snow::{HandshakeState, TransportState};

use super::aside::{Late, once};
use super::terms::{Exchange, ExchangeError, Lookup, place, variable};
use crate::bootstrap::poll::poll_until;
use crate::bootstrap::secret::Secret;

/// What the launcher leaves in the environment.
pub(super) const OFFERED: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
const PORT: &str = "STANDPIPE_PORT";
const SECRET: &str = "STANDPIPE_SECRET";

const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Both sides must mean the same by what follows.
const PROLOGUE: &[u8] = b"standpipe rendezvous 1";

/// The longest message of the Noise protocol, and what of it is text.
const FRAME_MAX: usize = 65_535;
const TEXT_MAX: usize = FRAME_MAX - 16;

/// No process has more to say.
const WORDS_MAX: usize = 16 << 20;

/// Who has not shown the secret by then is no process of the job.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// Connections that are shown the door or looked at, at a time, besides those of the job.
const STRANGERS_MAX: u32 = 64;

/// Between two attempts to reach rank 0, which may not be there yet.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// This process's part in the meeting.
pub(crate) struct Rendezvous {
    rank: u32,
    size: u32,
    /// At rank 0: all others, by rank; elsewhere: rank 0.
    others: Vec<Channel>,
}

impl Rendezvous {
    /// Meets the others.
    pub(super) fn meet(lookup: Lookup<'_>, deadline: Instant) -> Result<Rendezvous, ExchangeError> {
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
        let others = match rank {
            _ if size == 1 => Vec::new(),
            0 => {
                let listener = listen(&host, port, deadline)?;
                gather(&listener, size, &secret, deadline)?
            }
            _ => vec![connect(&host, port, (rank, size), &secret, deadline)?],
        };
        Ok(Rendezvous { rank, size, others })
    }

    fn gather_words(&mut self, own: &[u8], deadline: Instant) -> io::Result<Vec<Vec<u8>>> {
        let mut all = vec![own.to_vec()];
        for other in &mut self.others {
            all.push(other.hear(deadline)?);
        }
        for other in &mut self.others {
            all.iter().try_for_each(|words| other.say(words, deadline))?;
        }
        Ok(all)
    }

    fn send_words(&mut self, own: &[u8], deadline: Instant) -> io::Result<Vec<Vec<u8>>> {
        let Some(zero) = self.others.first_mut() else { return Ok(vec![own.to_vec()]) };
        zero.say(own, deadline)?;
        (0..self.size).map(|_| zero.hear(deadline)).collect()
    }
}

impl Exchange for Rendezvous {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
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

/// Listens where the others look, and nowhere else; at every address where that is none of this host's own.
fn listen(host: &str, port: u16, deadline: Instant) -> Result<TcpListener, ExchangeError> {
    let with = format!("listening at {host}, port {port} ({PORT} sets another)");
    let found = resolve(host, port, deadline).map_err(|source| failed(&with, source))?;
    let mut bound = Err(io::Error::new(ErrorKind::NotFound, "the name has no address"));
    for address in found {
        bound = TcpListener::bind(address);
        if bound.is_ok() {
            break;
        }
    }
    match bound {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => TcpListener::bind(("::", port)),
        bound => bound,
    }
    .map_err(|source| failed(&with, source))
}

/// Waits for all others to come, by rank.
fn gather(
    listener: &TcpListener,
    size: u32,
    secret: &Secret,
    deadline: Instant,
) -> Result<Vec<Channel>, ExchangeError> {
    listener.set_nonblocking(true).map_err(|source| failed("the listening socket", source))?;
    let mut places: Vec<Option<Channel>> = (1..size).map(|_| None).collect();
    let (guests, welcomed) = channel();
    let mut looked_at = 0;
    while places.iter().any(Option::is_none) {
        seat(&welcomed, &mut looked_at, &mut places)?;
        let until = deadline.min(Instant::now() + RETRY_AFTER);
        let room = looked_at < size + STRANGERS_MAX;
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
                let (guests, secret) = (guests.clone(), secret.clone());
                looked_at += 1;
                // A guest that says nothing keeps nobody else waiting.
                std::thread::spawn(move || {
                    // Nobody listens any more once all have come.
                    let _ = guests.send((from, welcome(stream, size, &secret)));
                });
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

type Guest = (SocketAddr, io::Result<(u32, Channel)>);

/// Gives places to those who have shown the secret.
fn seat(
    welcomed: &Receiver<Guest>,
    looked_at: &mut u32,
    places: &mut [Option<Channel>],
) -> Result<(), ExchangeError> {
    while let Ok((from, guest)) = welcomed.try_recv() {
        *looked_at -= 1;
        let (rank, channel) = match guest {
            Ok(guest) => guest,
            Err(error) => {
                tracing::warn!(%from, %error, "a stranger at the job's meeting was sent away");
                continue;
            }
        };
        let place = (rank as usize).checked_sub(1).and_then(|at| places.get_mut(at));
        match place {
            Some(place @ None) => *place = Some(channel),
            _ => {
                let why = format!("it says that it is rank {rank}, who has come before or cannot be");
                return Err(ExchangeError::Stranger { with: from.to_string(), why });
            }
        }
    }
    Ok(())
}

/// Lets a guest in who has the secret, and hears which rank it is.
fn welcome(stream: TcpStream, size: u32, secret: &Secret) -> io::Result<(u32, Channel)> {
    let deadline = Instant::now() + HANDSHAKE_WITHIN;
    let mut channel = Channel::accept(stream, secret, deadline)?;
    let card = channel.hear(deadline)?;
    match card.as_chunks::<4>() {
        ([rank, their_size], []) if u32::from_be_bytes(*their_size) == size => {
            Ok((u32::from_be_bytes(*rank), channel))
        }
        _ => Err(io::Error::new(ErrorKind::InvalidData, "it is of a job of another size")),
    }
}

/// Goes to rank 0, which may come later.
fn connect(
    host: &str,
    port: u16,
    (rank, size): (u32, u32),
    secret: &Secret,
    deadline: Instant,
) -> Result<Channel, ExchangeError> {
    let with = format!("rank 0 at {host}, port {port}");
    let stream = loop {
        let reached = resolve(host, port, deadline).and_then(|found| {
            found
                .into_iter()
                .find_map(|address| reach(&address, deadline).ok())
                .ok_or(ErrorKind::ConnectionRefused.into())
        });
        match reached {
            Ok(stream) => break stream,
            Err(_) if Instant::now() + RETRY_AFTER < deadline => std::thread::sleep(RETRY_AFTER),
            Err(source) if source.kind() == ErrorKind::ConnectionRefused => {
                return Err(ExchangeError::Timeout { waited_for: with });
            }
            Err(source) => return Err(failed(&with, source)),
        }
    };
    let met = Channel::begin(stream, secret, deadline).and_then(|mut channel| {
        channel.say(&[rank.to_be_bytes(), size.to_be_bytes()].concat(), deadline)?;
        Ok(channel)
    });
    met.map_err(|error| match error.kind() {
        ErrorKind::TimedOut => ExchangeError::Timeout { waited_for: with },
        _ => ExchangeError::Stranger { with, why: error.to_string() },
    })
}

/// The addresses of a host, as the system's resolver finds them in time.
fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let host = host.to_owned();
    let found = once(move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter), deadline);
    found.unwrap_or_else(|Late| Err(ErrorKind::TimedOut.into()))
}

fn reach(address: &SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    TcpStream::connect_timeout(address, left.min(HANDSHAKE_WITHIN))
}

/// A connection that only the two ends can read and write.
struct Channel {
    stream: TcpStream,
    noise: TransportState,
}

impl Channel {
    /// The end that has connected.
    fn begin(mut stream: TcpStream, secret: &Secret, deadline: Instant) -> io::Result<Channel> {
        let mut noise = handshake(secret, true)?;
        shake(&mut stream, &mut noise, true, deadline)?;
        shake(&mut stream, &mut noise, false, deadline)?;
        Ok(Channel { stream, noise: noise.into_transport_mode().map_err(garbled)? })
    }

    /// The end that was connected to.
    fn accept(mut stream: TcpStream, secret: &Secret, deadline: Instant) -> io::Result<Channel> {
        stream.set_nonblocking(false)?;
        let mut noise = handshake(secret, false)?;
        shake(&mut stream, &mut noise, false, deadline)?;
        shake(&mut stream, &mut noise, true, deadline)?;
        Ok(Channel { stream, noise: noise.into_transport_mode().map_err(garbled)? })
    }

    fn say(&mut self, words: &[u8], deadline: Instant) -> io::Result<()> {
        let len = u32::try_from(words.len()).ok().filter(|len| *len as usize <= WORDS_MAX);
        let len = len.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "too much to say"))?;
        let mut text = len.to_be_bytes().to_vec();
        text.extend_from_slice(words);
        let mut sealed = vec![0; FRAME_MAX];
        for part in text.chunks(TEXT_MAX) {
            let len = self.noise.write_message(part, &mut sealed).map_err(garbled)?;
            write_frame(&mut self.stream, &sealed[..len], deadline)?;
        }
        Ok(())
    }

    fn hear(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut wanted = size_of::<u32>();
        while text.len() < wanted {
            let sealed = read_frame(&mut self.stream, deadline)?;
            let mut part = vec![0; sealed.len()];
            let len = self.noise.read_message(&sealed, &mut part).map_err(garbled)?;
            text.extend_from_slice(&part[..len]);
            if let Some((head, _)) = text.split_first_chunk::<4>() {
                wanted = size_of::<u32>() + u32::from_be_bytes(*head) as usize;
            }
            if len == 0 || text.len() > wanted || wanted > WORDS_MAX + size_of::<u32>() {
                return Err(io::Error::new(ErrorKind::InvalidData, "words of a wrong length"));
            }
        }
        Ok(text.split_off(size_of::<u32>()))
    }
}

fn handshake(secret: &Secret, initiates: bool) -> io::Result<HandshakeState> {
    let params = NOISE.parse().expect("a pattern that the library knows");
    let builder = snow::Builder::new(params).prologue(PROLOGUE).and_then(|it| it.psk(0, secret.bytes()));
    let builder = builder.map_err(garbled)?;
    if initiates { builder.build_initiator() } else { builder.build_responder() }.map_err(garbled)
}

/// One message of the handshake, there or back.
fn shake(
    stream: &mut TcpStream,
    noise: &mut HandshakeState,
    speaks: bool,
    deadline: Instant,
) -> io::Result<()> {
    let mut buffer = [0; 256];
    if speaks {
        let len = noise.write_message(&[], &mut buffer).map_err(garbled)?;
        return write_frame(stream, &buffer[..len], deadline);
    }
    let message = read_frame(stream, deadline)?;
    if message.len() > buffer.len() {
        return Err(io::Error::new(ErrorKind::InvalidData, "no handshake is so long"));
    }
    noise.read_message(&message, &mut buffer).map(|_| ()).map_err(garbled)
}

fn write_frame(stream: &mut TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let len = u16::try_from(bytes.len()).expect("no frame is longer");
    let frame = [&len.to_be_bytes(), bytes].concat();
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(&frame).map_err(late)
}

fn read_frame(stream: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut len = [0; 2];
    read_exactly(stream, &mut len, deadline)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
    read_exactly(stream, &mut bytes, deadline)?;
    Ok(bytes)
}

/// As `read_exact`, by a moment, however slowly the bytes come.
fn read_exactly(stream: &mut TcpStream, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !into.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => into = &mut into[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(late(error)),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The system has another name for a socket's time being over.
fn late(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

fn garbled(error: snow::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

fn failed(with: &str, source: io::Error) -> ExchangeError {
    ExchangeError::Io { with: with.to_owned(), source }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;

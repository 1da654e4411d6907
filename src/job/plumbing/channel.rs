//! Connections over TCP that only those can use who share a secret, and nobody else reads or changes.
//!
//! They speak the [Noise protocol](https://noiseprotocol.org/noise.html), `NNpsk0` with the secret as the key
//! shared before, and a prologue that says what the connection is for.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use snow::{HandshakeState, TransportState};
use vm::forks::Alone;

use super::addresses::{no_port_left, source_towards, start_connecting};
use super::poll::poll_until;
use super::secret::Secret;

const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// The longest message of the Noise protocol, and what of it is text.
const FRAME_MAX: usize = 65_535;
const TEXT_MAX: usize = FRAME_MAX - 16;

/// A process that has not shown the secret by then does not have it.
pub(in crate::job) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// Between two attempts to connect where no local port is left.
const PORT_AGAIN: Duration = Duration::from_millis(50);

/// Connects to an address in time. Where all local ports are taken, one may become free.
pub(in crate::job) fn reach(address: &SocketAddr, deadline: Instant) -> io::Result<Alone<TcpStream>> {
    let until = deadline.min(Instant::now() + HANDSHAKE_WITHIN);
    loop {
        match connect_by(address, until) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                // Else it is an address that this host has not.
                if source_towards(address.ip()).is_none() {
                    return Err(error);
                }
                if Instant::now() + PORT_AGAIN >= until {
                    return Err(no_port_left(ErrorKind::AddrNotAvailable));
                }
                std::thread::sleep(PORT_AGAIN);
            }
            done => return done,
        }
    }
}

/// Connects by a socket that no child shares that is forked meanwhile.
fn connect_by(address: &SocketAddr, until: Instant) -> io::Result<Alone<TcpStream>> {
    let (socket, answer) = start_connecting(address)?;
    match answer {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let until = until.max(Instant::now() + Duration::from_millis(1));
            if poll_until(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)], Some(until))? == 0
            {
                return Err(io::Error::new(ErrorKind::TimedOut, "connection timed out"));
            }
            sockopt::socket_error(socket.as_fd())??;
        }
        Err(error) => return Err(error.into()),
    }
    let stream = socket.map(TcpStream::from);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A connection that only the two ends can read and write. Children that are forked meanwhile do not share
/// it: its end is to tell of its process's.
pub(in crate::job) struct Channel {
    stream: Alone<TcpStream>,
    noise: TransportState,
}

impl Channel {
    /// The end that has connected.
    pub(in crate::job) fn begin(
        mut stream: Alone<TcpStream>,
        secret: &Secret,
        prologue: &[u8],
        deadline: Instant,
    ) -> io::Result<Channel> {
        let mut noise = handshake(secret, prologue, true)?;
        shake(&mut stream, &mut noise, true, deadline)?;
        shake(&mut stream, &mut noise, false, deadline)?;
        Ok(Channel { stream, noise: noise.into_transport_mode().map_err(garbled)? })
    }

    /// The end that was connected to.
    pub(in crate::job) fn accept(
        mut stream: Alone<TcpStream>,
        secret: &Secret,
        prologue: &[u8],
        deadline: Instant,
    ) -> io::Result<Channel> {
        stream.set_nonblocking(false)?;
        let mut noise = handshake(secret, prologue, false)?;
        shake(&mut stream, &mut noise, false, deadline)?;
        shake(&mut stream, &mut noise, true, deadline)?;
        Ok(Channel { stream, noise: noise.into_transport_mode().map_err(garbled)? })
    }

    /// Says something, which the other end must have room for.
    pub(in crate::job) fn say(&mut self, words: &[u8], deadline: Instant) -> io::Result<()> {
        let len = u32::try_from(words.len())
            .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "too much to say"))?;
        let mut text = len.to_be_bytes().to_vec();
        text.extend_from_slice(words);
        let mut sealed = vec![0; FRAME_MAX];
        for part in text.chunks(TEXT_MAX) {
            let len = self.noise.write_message(part, &mut sealed).map_err(garbled)?;
            write_frame(&mut self.stream, &sealed[..len], deadline)?;
        }
        Ok(())
    }

    /// The next message of the other end, which has no more than `most` bytes.
    pub(in crate::job) fn hear(&mut self, most: usize, deadline: Instant) -> io::Result<Vec<u8>> {
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
            if len == 0 || text.len() > wanted || wanted > most.saturating_add(size_of::<u32>()) {
                return Err(io::Error::new(ErrorKind::InvalidData, "words of a wrong length"));
            }
        }
        Ok(text.split_off(size_of::<u32>()))
    }

    /// The connection itself: whom it is with, and by which addresses.
    pub(in crate::job) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The bare connection, when all has been said.
    pub(in crate::job) fn into_stream(self) -> Alone<TcpStream> {
        self.stream
    }
}

fn handshake(secret: &Secret, prologue: &[u8], initiates: bool) -> io::Result<HandshakeState> {
    let params = NOISE.parse().expect("a pattern that the library knows");
    let builder = snow::Builder::new(params).prologue(prologue).and_then(|it| it.psk(0, secret.bytes()));
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
    write_all(stream, &frame, deadline)
}

/// As its own `write_all`, by a moment, however slowly the bytes are taken.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(late(error)),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::{sleep, spawn};

    use super::*;

    /// From its beginning: a program may fork as soon as it has heard of the other end.
    #[test]
    fn children_do_not_share_it() {
        let soon = || Instant::now() + Duration::from_secs(20);
        let secret = Secret::random().expect("random");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let theirs = secret.clone();
        let begins = spawn(move || {
            Channel::begin(Alone::new(stream), &theirs, b"test", soon()).expect("the secret is right")
        });
        let stream = Alone::new(listener.accept().expect("it has come").0);
        let channel = Channel::accept(stream, &secret, b"test", soon()).expect("the secret is right");
        // SAFETY: the child does nothing but wait for its end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: it takes no argument, and waits for a signal.
                unsafe { libc::pause() };
            }
        }
        drop(channel);
        let heard = begins.join().map(|mut theirs| theirs.hear(10, soon()));
        // SAFETY: the child was made above, and is waited for nowhere else.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let heard = heard.expect("no panic").expect_err("it has ended");
        assert_eq!(heard.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn who_takes_a_byte_at_a_time_holds_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut writer = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (mut reader, _) = listener.accept().expect("it has come");
        let limit = Duration::from_millis(500);
        let slow = spawn(move || {
            // Enough at a time for the kernel to take in more, again and again.
            let mut some = vec![0; 256 << 10];
            while reader.read(&mut some).is_ok_and(|len| len > 0) {
                sleep(limit / 5);
            }
        });
        let begun = Instant::now();
        let error = write_all(&mut writer, &vec![0; 64 << 20], begun + limit).expect_err("too slow");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() < 4 * limit, "{:?}", begun.elapsed());
        drop(writer);
        slow.join().expect("no panic");
    }
}

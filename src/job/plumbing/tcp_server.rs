//! The server over TCP of those who share a secret, and the way to it. At rank 0 of a job it takes in the
//! other ranks, at a [registry](crate::job::unlaunched::registry) it keeps addresses.
//!
//! Nobody without the secret reads or changes what is said: connections are [`Channel`]s. Each begins with
//! one [question](Ask). Each visitor has a thread, so that one that says nothing keeps nobody else waiting;
//! there are so many at a time, and no more.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vm::forks::Alone;

use super::blocking_call::once;
use super::channel::{Channel, HANDSHAKE_WITHIN, reach};
use super::marks::Marks;
use super::poll::poll_until;
use super::secret::Secret;
use super::staggered::{Failed, first};

/// Both ends must mean the same by what follows: [`Ask`], [`Answer`], and all that these have in them. Raise
/// the number with every change of those. Two whose numbers differ fail at the handshake, as if one had
/// another secret.
const PROLOGUE: &[u8] = b"standpipe meeting 3";

/// No question, and no answer to one, has more bytes.
pub(in crate::job) const WORDS_MAX: usize = 8 << 10;

/// Between two attempts to reach a server, or to take somebody in when there is no room.
pub(in crate::job) const AGAIN: Duration = Duration::from_millis(50);

/// A visitor's question.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::job) enum Ask {
    /// Of a registry: to keep an address under a name.
    Leave { name: String, address: Vec<u8> },
    /// Of a registry: the address under a name.
    Find { name: String, within_ms: u32 },
    /// Of a registry: to keep that address no more.
    Withdraw { name: String, address: Vec<u8> },
    /// Of rank 0: a place in its job.
    Join(Card),
}

/// Which process of which job a visitor is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::job) struct Card {
    pub(in crate::job) rank: u32,
    /// Of its job.
    pub(in crate::job) size: u32,
    pub(in crate::job) marks: Marks,
}

/// The answer to a visitor.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::job) enum Answer {
    Left,
    /// There is no room for another address.
    Full,
    Found(Vec<u8>),
    /// Not in time.
    Nobody,
    Withdrawn,
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
    /// That is asked of the other kind of server.
    Elsewhere,
}

/// Reads what somebody says at a rendezvous or at a job's meeting, and forgets it: for the fuzzer. Whether it
/// was anything.
#[doc(hidden)]
pub fn check_rendezvous_words(bytes: &[u8]) -> bool {
    read::<Ask>(bytes).is_ok() | read::<Answer>(bytes).is_ok()
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((words, [])) => Ok(words),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "words that make no sense here")),
    }
}

pub(in crate::job) fn written<T: Serialize>(words: &T) -> Vec<u8> {
    postcard::to_stdvec(words).expect("plain values can be written")
}

/// A server that listens.
#[derive(Debug)]
pub(in crate::job) struct Server {
    listener: TcpListener,
    secret: Secret,
    visitors_max: usize,
    visitors: Arc<AtomicUsize>,
}

/// Why nobody was taken in.
#[derive(Debug)]
pub(in crate::job) enum TakeInError {
    /// There is no thread for the visitor, whose connection has ended.
    NoThread(io::Error),
    /// The listening socket has failed for good.
    Listener(io::Error),
}

/// One who has come.
pub(in crate::job) struct Visitor {
    pub(in crate::job) from: SocketAddr,
    /// Its question, and the connection to answer by; or the reason to send it away.
    pub(in crate::job) asks: io::Result<(Ask, Channel)>,
    /// As long as this lives, it counts as one who is there.
    pub(in crate::job) slot: VisitorSlot,
}

impl Server {
    pub(in crate::job) fn new(
        listener: TcpListener,
        secret: Secret,
        visitors_max: usize,
    ) -> io::Result<Server> {
        // A visitor may be gone before it is taken in.
        listener.set_nonblocking(true)?;
        Ok(Server { listener, secret, visitors_max, visitors: Arc::default() })
    }

    /// Where it listens.
    pub(in crate::job) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes in one visitor, if one comes until `until` (`None`: for as long as that takes), and may return
    /// without one. `receive` is called on a thread of the visitor's own.
    ///
    /// # Errors
    /// [`TakeInError`].
    pub(in crate::job) fn take_in(
        &self,
        until: Option<Instant>,
        receive: impl FnOnce(Visitor) + Send + 'static,
    ) -> Result<(), TakeInError> {
        let again = Instant::now() + AGAIN;
        let pause = || sleep_until(until.map_or(again, |until| until.min(again)));
        if self.visitors.load(Ordering::SeqCst) >= self.visitors_max {
            pause();
            return Ok(());
        }
        let knocked = match poll_until(&mut [PollFd::new(&self.listener, PollFlags::IN)], until) {
            Ok(0) => return Ok(()),
            Ok(_) => self.listener.accept(),
            Err(error) => Err(error.into()),
        };
        match knocked {
            Ok((stream, from)) => self.hear(Alone::new(stream), from, receive).map_err(TakeInError::NoThread),
            Err(error) if error.kind() == ErrorKind::InvalidInput => Err(TakeInError::Listener(error)),
            Err(_) => {
                // For want of memory or descriptors, say, which does not pass by asking again at once.
                pause();
                Ok(())
            }
        }
    }

    fn hear(
        &self,
        stream: Alone<TcpStream>,
        from: SocketAddr,
        receive: impl FnOnce(Visitor) + Send + 'static,
    ) -> io::Result<()> {
        let (slot, secret) = (VisitorSlot::new(&self.visitors), self.secret.clone());
        let work = move || {
            let asks = Channel::accept(stream, &secret, PROLOGUE, soon()).and_then(|mut channel| {
                let ask = read(&channel.hear(WORDS_MAX, soon())?)?;
                Ok((ask, channel))
            });
            receive(Visitor { from, asks, slot });
        };
        vm::threads::spawn("standpipe-guest", work).map(drop)
    }
}

fn soon() -> Instant {
    Instant::now() + HANDSHAKE_WITHIN
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// A visitor that is there, counted while this lives.
pub(in crate::job) struct VisitorSlot(Arc<AtomicUsize>);

impl VisitorSlot {
    fn new(visitors: &Arc<AtomicUsize>) -> VisitorSlot {
        visitors.fetch_add(1, Ordering::SeqCst);
        VisitorSlot(Arc::clone(visitors))
    }
}

impl Drop for VisitorSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Tells a visitor: words that a fresh connection has room for.
pub(in crate::job) fn answer(visitor: &mut Channel, answer: &Answer) -> io::Result<()> {
    visitor.say(&written(answer), soon())
}

/// Why no server was reached.
pub(in crate::job) enum Unreached {
    /// Its name leads nowhere.
    Unresolved(io::Error),
    /// Nobody answered at the addresses that the name leads to.
    Unanswered(Vec<SocketAddr>, Failed),
}

/// Connects to whoever listens at a host and port, again and again if nobody does so far.
pub(in crate::job) fn reach_server<At>(at: &At, deadline: Instant) -> Result<Alone<TcpStream>, Unreached>
where
    At: ToSocketAddrs + Clone + Send + 'static,
{
    loop {
        let unreached = match resolve(at, deadline) {
            Err(error) => Unreached::Unresolved(error),
            Ok(found) => match first(&found, deadline, knock, || false) {
                Ok(stream) => return Ok(stream),
                Err(failed) => Unreached::Unanswered(found, failed),
            },
        };
        if Instant::now() + AGAIN >= deadline {
            return Err(unreached);
        }
        std::thread::sleep(AGAIN);
    }
}

/// The addresses of a host, as the system's resolver finds them in time.
pub(in crate::job) fn resolve<At>(at: &At, deadline: Instant) -> io::Result<Vec<SocketAddr>>
where
    At: ToSocketAddrs + Clone + Send + 'static,
{
    let at = at.clone();
    let found = once(move || at.to_socket_addrs().map(Vec::from_iter), deadline);
    found.unwrap_or_else(|unanswered| Err(unanswered.into()))
}

fn knock(address: &SocketAddr, until: Instant) -> io::Result<Alone<TcpStream>> {
    match reach(address, until)? {
        stream if meets_itself(&stream) => Err(ErrorKind::ConnectionRefused.into()),
        stream => Ok(stream),
    }
}

/// Whether a connection's own port is the one that it goes to, as can be where nobody listens.
fn meets_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(own), Ok(peer)) if own == peer)
}

/// Shows the secret to a server that was reached.
pub(in crate::job) fn begin(
    stream: Alone<TcpStream>,
    secret: &Secret,
    deadline: Instant,
) -> io::Result<Channel> {
    Channel::begin(stream, secret, PROLOGUE, deadline)
}

/// Asks a server, which is to have taken the question by `deadline`, and waits for the answer until `until`.
pub(in crate::job) fn ask(
    server: &mut Channel,
    question: &Ask,
    deadline: Instant,
    until: impl FnOnce() -> Instant,
) -> io::Result<Answer> {
    server.say(&written(question), deadline)?;
    read(&server.hear(WORDS_MAX, until())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_meets_itself_is_none() {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let free = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let here = free.local_addr().expect("it is bound");
        drop(free);
        let itself = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&itself, &here).expect("it was free just now");
        connect(&itself, &here).expect("TCP lets it");
        assert!(meets_itself(&itself.into()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let at = listener.local_addr().expect("it is bound");
        assert!(!meets_itself(&TcpStream::connect(at).expect("it listens")));
    }

    #[test]
    fn no_more_visitors_are_taken_in_than_there_is_room_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let server = Server::new(listener, Secret::random().expect("random"), 1).expect("it listens");
        let at = server.address().expect("it is bound");
        let [first, second] = [0; 2].map(|_| TcpStream::connect(at).expect("it listens"));
        let (come, came) = std::sync::mpsc::channel();
        let take_in = || {
            let come = come.clone();
            let receive = move |visitor: Visitor| come.send(visitor).expect("the test waits");
            server.take_in(Some(Instant::now() + AGAIN), receive).expect("a thread");
        };
        take_in();
        take_in();
        assert_eq!(server.visitors.load(Ordering::SeqCst), 1, "the second must wait");
        drop(first);
        let sent_away = came.recv().expect("it has gone");
        assert!(sent_away.asks.is_err());
        take_in();
        assert_eq!(server.visitors.load(Ordering::SeqCst), 1, "as long as the first one's place is kept");
        drop(sent_away);
        take_in();
        drop(second);
        assert!(came.recv().expect("it has gone").asks.is_err());
    }
}

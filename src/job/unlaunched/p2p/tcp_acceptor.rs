//! Takes in those who come over the network: few at a time, and not for long.

use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use vm::forks::Alone;

use super::network_handshake::welcome;
use super::state::{ListenError, ListenerState};
use crate::job::plumbing::addresses::listen_everywhere;

/// Unauthenticated that have not become peers, at a time. Each has a thread for as long, so that one that
/// says nothing keeps nobody else waiting.
pub(super) const UNAUTHENTICATED_MAX: usize = 64;

/// How long to leave the listener alone when the process has no file descriptors or threads left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Where a node that nobody launched listens for those who come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// At a socket of this host's, for processes of the same user that share it, and at a TCP port that is
    /// free, at all of the host's addresses.
    #[default]
    Auto,
    /// Nowhere: no socket ever listens. The node has no address, and reaches others of this host only, by
    /// calling them.
    Nowhere,
    /// At a socket of this host's, and over TCP at this address and port only; port 0 stands for one that is
    /// free. The socket that libfabric opens for far peers listens at that address, too, at a port of its
    /// own.
    At(SocketAddr),
}

impl Listen {
    /// The meaning of these words of the setting `STANDPIPE_LISTEN`: `auto`, `none`, or an address and port
    /// such as `10.0.0.1:7000` or `[::1]:0`.
    pub fn parse(text: &str) -> Option<Listen> {
        match text {
            "auto" => Some(Listen::Auto),
            "none" => Some(Listen::Nowhere),
            _ => text.parse().ok().map(Listen::At),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Auto => f.write_str("auto"),
            Listen::Nowhere => f.write_str("none"),
            Listen::At(at) => at.fmt(f),
        }
    }
}

/// The listening socket, if the system has given one.
pub(super) struct TcpAcceptor {
    /// A child that lives on keeps the port from nobody.
    listener: Option<Alone<TcpListener>>,
    /// Unauthenticated that are there.
    inside: Arc<AtomicUsize>,
    pause_until: Option<Instant>,
}

impl TcpAcceptor {
    /// Listens where it is to. The error: it cannot do so at the one address that it was given.
    pub(super) fn open(listen: Listen) -> Result<TcpAcceptor, ListenError> {
        let failed = |error: &std::io::Error| tracing::warn!(%error, "no peers can come over the network");
        let listener = match listen {
            Listen::Nowhere => None,
            Listen::At(at) => {
                let listener = TcpListener::bind(at).and_then(unblocked);
                Some(listener.map_err(|source| ListenError::Listen { at, source })?)
            }
            Listen::Auto => listen_everywhere(0).and_then(unblocked).inspect_err(failed).ok(),
        };
        let listener = listener.map(Alone::new);
        Ok(TcpAcceptor { listener, inside: Arc::default(), pause_until: None })
    }

    /// Where it listens, if it does.
    pub(super) fn bound(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// The listening socket, unless there is no room for another unauthenticated connection.
    pub(super) fn listener(&self) -> Option<&TcpListener> {
        let open = self.inside.load(Ordering::SeqCst) < UNAUTHENTICATED_MAX && self.pause_until.is_none();
        self.listener.as_deref().filter(|_| open)
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn expire_at(&self) -> Option<Instant> {
        self.pause_until
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.pause_until = self.pause_until.filter(|until| *until > now);
    }

    /// Takes in the next who knocks.
    pub(super) fn accept(&mut self, shared: &Arc<ListenerState>) {
        let Some(listener) = &self.listener else { return };
        match listener.accept() {
            Ok((stream, from)) => self.receive(shared, Alone::new(stream), from),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => self.pause(&error),
            },
        }
    }

    fn receive(&mut self, shared: &Arc<ListenerState>, stream: Alone<TcpStream>, from: SocketAddr) {
        let inside = HandshakeSlot::new(&self.inside, Arc::clone(shared));
        let work = move || {
            if let Err(error) = welcome(&inside.shared, stream) {
                tracing::debug!(%from, %error, "who knocked was sent away");
            }
        };
        if let Err(error) = vm::threads::spawn("standpipe-guest", work) {
            self.pause(&error);
        }
    }

    fn pause(&mut self, error: &std::io::Error) {
        tracing::warn!(%error, "cannot take anybody in now");
        self.pause_until = Some(Instant::now() + EXHAUSTED_PAUSE);
    }
}

/// A listener whose thread also has others to wait for.
fn unblocked(listener: TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// An unauthenticated connection that is there, counted while this lives.
struct HandshakeSlot {
    count: Arc<AtomicUsize>,
    shared: Arc<ListenerState>,
}

impl HandshakeSlot {
    fn new(count: &Arc<AtomicUsize>, shared: Arc<ListenerState>) -> HandshakeSlot {
        count.fetch_add(1, Ordering::SeqCst);
        HandshakeSlot { count: Arc::clone(count), shared }
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        if self.count.fetch_sub(1, Ordering::SeqCst) == UNAUTHENTICATED_MAX {
            // There is room again.
            self.shared.waker.wake();
        }
    }
}

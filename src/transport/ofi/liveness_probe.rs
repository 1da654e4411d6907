//! Whether anybody listens where a peer did: what tells a process that has ended from a network that is away.
//!
//! A provider that finds no connection says the same in both cases. But the system of a process that has
//! ended refuses whoever connects to its port, as long as no other has that, and a network that is away
//! refuses nobody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use vm::forks::Alone;

use crate::job::plumbing::addresses::start_connecting;

/// How long it takes from one try to the next, at least: twice as long each time that somebody listens, up to
/// the other.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long a try goes on.
const TRY: Duration = Duration::from_secs(1);

/// Tries to connect to a peer, one after the other.
pub(super) struct LivenessProbe {
    at: Option<SocketAddr>,
    under_way: Option<Alone<OwnedFd>>,
    begun: Instant,
    pause: Duration,
    refused: bool,
}

impl LivenessProbe {
    /// Nothing is tried yet. `None`: it is not known where the peer listens, and nothing ever will be.
    pub(super) fn at(at: Option<SocketAddr>, now: Instant) -> LivenessProbe {
        LivenessProbe { at, under_way: None, begun: now, pause: PAUSE, refused: false }
    }

    /// Goes on trying. Returns whether the last try that has ended was refused: nobody listens there.
    pub(super) fn is_refused(&mut self, now: Instant) -> bool {
        let Some(at) = self.at else { return false };
        if let Some(socket) = &self.under_way {
            if let Some(answer) = answer(socket) {
                self.note(answer);
            } else if now.duration_since(self.begun) > TRY {
                self.note(Err(Errno::TIMEDOUT));
            }
        } else if now.duration_since(self.begun) >= self.pause {
            self.begun = now;
            match start_connecting(&at) {
                Ok((socket, Err(Errno::INPROGRESS))) => self.under_way = Some(socket),
                Ok((_, answer)) => self.note(answer),
                Err(errno) => tracing::debug!(%errno, "no socket to find out by whether a peer is there"),
            }
        }
        self.refused
    }

    fn note(&mut self, answer: Result<(), Errno>) {
        self.under_way = None;
        self.refused = answer == Err(Errno::CONNREFUSED);
        // Each that is let in waits at the peer until it looks.
        self.pause = if answer.is_ok() { (2 * self.pause).min(PAUSE_MAX) } else { PAUSE };
    }
}

/// How a try has ended, if it has.
fn answer(socket: &Alone<OwnedFd>) -> Option<Result<(), Errno>> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)], Some(&at_once)) {
        Ok(0) | Err(Errno::INTR) => None,
        Ok(_) => Some(sockopt::socket_error(socket.as_fd()).unwrap_or_else(Err)),
        Err(errno) => Some(Err(errno)),
    }
}

/// Where a peer's port listens by TCP, which says that its address is this, and was `met` at that one.
/// `None`: that is not known, or this provider does not listen by TCP.
pub(super) fn listens_at(provider: &str, told: &[u8], met: Option<SocketAddr>) -> Option<SocketAddr> {
    if !provider.split(';').any(|layer| ["tcp", "net", "sockets"].contains(&layer)) {
        return None;
    }
    let family = u16::from_ne_bytes(*told.first_chunk()?);
    let port = u16::from_be_bytes(*told.get(2..)?.first_chunk()?);
    let ip: IpAddr = match AddressFamily::from_raw(family) {
        AddressFamily::INET => Ipv4Addr::from(*told.get(4..)?.first_chunk::<4>()?).into(),
        AddressFamily::INET6 => Ipv6Addr::from(*told.get(8..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    match met {
        Some(mut met) if ip.is_unspecified() || met.ip() == ip => {
            met.set_port(port);
            Some(met)
        }
        _ if ip.is_unspecified() => None,
        _ => Some(SocketAddr::new(ip, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Tries until it says that.
    fn comes_to_say(probe: &mut LivenessProbe, refused: bool) {
        let begun = Instant::now();
        while probe.is_refused(Instant::now()) != refused {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not find out");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn only_where_nobody_listens_it_is_refused() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let at = listener.local_addr().expect("it is bound");
            let mut probe = LivenessProbe::at(Some(at), Instant::now());
            let begun = Instant::now();
            while probe.pause <= PAUSE {
                assert!(!probe.is_refused(Instant::now()));
                assert!(begun.elapsed() < Duration::from_secs(60), "it was not let in");
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(listener);
            probe.pause = PAUSE;
            comes_to_say(&mut probe, true);
            let _listener = TcpListener::bind(at).expect("it was free a moment ago");
            comes_to_say(&mut probe, false);
        }
        let mut nowhere = LivenessProbe::at(None, Instant::now());
        assert!(!nowhere.is_refused(Instant::now() + TRY));
    }

    #[test]
    fn addresses_are_read_as_providers_write_them() {
        let v4 = [&(libc::AF_INET as u16).to_ne_bytes()[..], &[0x1f, 0x90, 10, 0, 0, 7], &[0; 8]].concat();
        let any = [&v4[..4], &[0; 12]].concat();
        let met: SocketAddr = "10.0.0.9:5".parse().expect("an address");
        assert_eq!(listens_at("net", &v4, None), "10.0.0.7:8080".parse().ok());
        assert_eq!(listens_at("tcp;ofi_rxm", &v4, Some(met)), "10.0.0.7:8080".parse().ok());
        assert_eq!(listens_at("tcp", &any, Some(met)), "10.0.0.9:8080".parse().ok());
        assert_eq!(listens_at("tcp", &any, None), None);
        assert_eq!(listens_at("verbs;ofi_rxm", &v4, None), None);
        assert_eq!(listens_at("tcp", &v4[..6], None), None);
    }
}

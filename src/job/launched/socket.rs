//! Datagrams with file descriptors over a connected Unix socket, without ever blocking.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg,
    sendmsg, socket_with,
};

use super::wire::DATAGRAM_BYTES_MAX;
use crate::job::plumbing::env::JobName;

/// A process hands over three: its control segment, its heap, and its ledger.
pub(crate) const HANDLES: usize = 3;

/// The kernel cuts this to its own limit (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// The result of one attempt to receive.
pub(crate) enum Received {
    /// A datagram, and the file descriptors that came with it: at most [`HANDLES`], none if there were more.
    Datagram { bytes: Vec<u8>, fds: Vec<OwnedFd> },
    /// A datagram longer than any message.
    TooLong,
    /// Nothing now.
    Nothing,
    /// The other end is gone, and everything it said has been read.
    Closed,
}

/// The result of one attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The other end will find it, even if this end is closed now.
    Done,
    /// The socket is full: wait until it can be written.
    Full,
    /// The kernel is short of memory or of file descriptors in flight: waiting on the socket would not help.
    Starved,
}

/// Listens under `name`, which no other process can have.
pub(crate) fn listen_at(name: &JobName) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(&name.socket_name())?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to whoever listens under `name`. `Errno::AGAIN` means that too many others are connecting just
/// now.
pub(crate) fn connect_to(name: &JobName) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(&name.socket_name())?)?;
    Ok(socket)
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Sends one datagram with its file descriptors, or nothing.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "nobody sends more than HANDLES file descriptors");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        return match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(Sent::Done),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(Sent::Full),
            Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => Ok(Sent::Starved),
            Err(error) => Err(error),
        };
    }
}

/// Receives one datagram. An error that is for good counts as closed.
pub(crate) fn receive(socket: &OwnedFd) -> Received {
    let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(got) => break got,
            // Reported once when the other end closed without reading all we said; what it said is still
            // there.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => return Received::Nothing,
            Err(_) => return Received::Closed,
        }
    };
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Received::TooLong;
    }
    if got.bytes == 0 {
        return Received::Closed;
    }
    bytes.truncate(got.bytes);
    let mut fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if got.flags.contains(ReturnFlags::CTRUNC) || fds.len() > HANDLES {
        fds.clear();
    }
    Received::Datagram { bytes, fds }
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket pair")
    }

    #[test]
    fn descriptors_arrive_closed_on_exec() {
        let (a, b) = pair();
        send(&a, b"x", &[a.as_fd(), b.as_fd()]).expect("sent");
        let Received::Datagram { bytes, fds } = receive(&b) else { panic!("a datagram was sent") };
        assert_eq!((&bytes[..], fds.len()), (&b"x"[..], 2));
        for fd in fds {
            let flags = rustix::io::fcntl_getfd(&fd).expect("an open descriptor");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn a_datagram_too_long_is_refused_and_the_next_is_read() {
        let (a, b) = pair();
        send(&a, &[7; DATAGRAM_BYTES_MAX + 1], &[]).expect("sent");
        send(&a, b"y", &[]).expect("sent");
        assert!(matches!(receive(&b), Received::TooLong));
        assert!(matches!(receive(&b), Received::Datagram { .. }));
        assert!(matches!(receive(&b), Received::Nothing));
    }

    #[test]
    fn last_words_survive_a_close_with_unread_mail() {
        let (a, b) = pair();
        send(&b, b"never read", &[]).expect("sent");
        send(&a, b"last", &[]).expect("sent");
        drop(a);
        assert!(matches!(receive(&b), Received::Datagram { bytes, .. } if bytes == b"last"));
        assert!(matches!(receive(&b), Received::Closed));
    }

    #[test]
    fn a_full_socket_says_so() {
        let (a, _b) = pair();
        let sent = (0..1_000_000).map(|_| send(&a, &[0; 64], &[])).find(|sent| *sent != Ok(Sent::Done));
        assert_eq!(sent, Some(Ok(Sent::Full)));
    }
}

//! One member's connection, and the mail that waits for it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::job::launched::socket::{Sent, send};
use crate::job::launched::wire::{Reply, encode};

/// File descriptors for one message: a member's control segment, heap and ledger, at most.
pub(in crate::job) type Handles = Arc<[OwnedFd]>;

/// How long to leave a connection alone when the kernel has no memory for what we want to send.
pub(in crate::job) const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// The sending half of a connection. Never blocks: what the socket does not take waits in a queue.
#[derive(Debug)]
pub(in crate::job) struct Connection {
    pub(in crate::job) socket: OwnedFd,
    queue: VecDeque<QueuedReply>,
    queue_max: usize,
    pause_until: Option<Instant>,
}

#[derive(Debug)]
struct QueuedReply {
    bytes: Vec<u8>,
    handles: Option<Handles>,
}

/// The connection is of no more use: the other end is gone, or asks for more than it reads.
#[derive(Debug)]
pub(in crate::job) struct Broken;

impl Connection {
    pub(in crate::job) fn new(socket: OwnedFd, queue_max: usize) -> Self {
        Self { socket, queue: VecDeque::new(), queue_max, pause_until: None }
    }

    pub(in crate::job) fn post(&mut self, reply: &Reply, handles: Option<Handles>) -> Result<(), Broken> {
        if self.queue.len() >= self.queue_max {
            return Err(Broken);
        }
        self.queue.push_back(QueuedReply { bytes: encode(reply), handles });
        self.flush(Instant::now())
    }

    /// As [`post`](Self::post), for what may be forgotten: nothing happens where anything waits, or would
    /// have to.
    pub(in crate::job) fn offer(&mut self, reply: &Reply) {
        if self.queue.is_empty() {
            // Where the other end is gone, its socket tells.
            let _ = send(&self.socket, &encode(reply), &[]);
        }
    }

    /// Whether all that was posted has been sent.
    pub(in crate::job) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what the socket takes now.
    pub(in crate::job) fn flush(&mut self, now: Instant) -> Result<(), Broken> {
        self.pause_until = None;
        while let Some(letter) = self.queue.front() {
            let fds: Vec<BorrowedFd<'_>> =
                letter.handles.iter().flat_map(|handles| handles.iter().map(AsFd::as_fd)).collect();
            match send(&self.socket, &letter.bytes, &fds).map_err(|_| Broken)? {
                Sent::Done => drop(self.queue.pop_front()),
                Sent::Full => break,
                Sent::Starved => {
                    self.pause_until = Some(now + STARVED_PAUSE);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether to flush as soon as the socket can be written.
    pub(in crate::job) fn wants_room(&self) -> bool {
        !self.queue.is_empty() && self.pause_until.is_none()
    }

    /// When to flush in any case.
    pub(in crate::job) fn flush_at(&self) -> Option<Instant> {
        self.pause_until
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::job::launched::socket::{Received, receive};

    const NOTICE: Reply = Reply::Peer { rank: 0, pid: 1 };

    fn line(queue_max: usize) -> (Connection, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket pair");
        (Connection::new(ours, queue_max), theirs)
    }

    #[test]
    fn a_reader_that_sleeps_costs_a_bounded_queue_and_then_the_line() {
        let (mut line, _theirs) = line(10);
        let posted = (0..1_000_000).take_while(|_| line.post(&NOTICE, None).is_ok()).count();
        assert!(posted < 1_000_000);
        assert_eq!(line.queue.len(), 10);
    }

    #[test]
    fn a_reader_that_sleeps_does_not_gather_offers() {
        let (mut line, _theirs) = line(10);
        (0..10_000).for_each(|_| line.offer(&Reply::Look));
        assert!(line.is_empty());
        line.post(&NOTICE, None).expect("queued");
        assert!(!line.is_empty(), "the socket is full");
    }

    #[test]
    fn what_waited_is_sent_in_order_when_there_is_room() {
        let (mut line, theirs) = line(usize::MAX);
        let mut sent = 0;
        while !line.wants_room() {
            line.post(&Reply::Peer { rank: sent, pid: 1 }, None).expect("the queue has no bound");
            sent += 1;
        }
        let mut read = 0;
        while read < sent {
            match receive(&theirs) {
                Received::Datagram { bytes, .. } => {
                    assert_eq!(bytes, encode(&Reply::Peer { rank: read, pid: 1 }));
                    read += 1;
                }
                Received::Nothing => line.flush(Instant::now()).expect("the reader is there"),
                _ => panic!("the line broke"),
            }
        }
        assert!(!line.wants_room());
    }

    #[test]
    fn a_reader_that_is_gone_breaks_the_line() {
        let (mut line, theirs) = line(10);
        drop(theirs);
        assert!(line.post(&NOTICE, None).is_err());
    }
}

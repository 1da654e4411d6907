//! The calls that wait for peers' segments, and the knowledge of the job. No socket here: a request that must
//! go out is put into the outbox.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::notice::Notice;
use crate::job::launched::socket::HANDLES;
use crate::job::launched::wire::{How, Request};

/// A peer's process and segments, as it handed them over when it joined.
#[derive(Debug)]
pub struct PeerHandles {
    /// The peer's process, as the kernel named it to the broker.
    pub pid: u32,
    /// The peer's control segment.
    pub control: OwnedFd,
    /// The peer's heap.
    pub heap: OwnedFd,
    /// The peer's ledger: its grants, and its uses of others' grants.
    pub ledger: OwnedFd,
}

/// The descriptors that come with a peer.
pub(super) type Descriptors = [OwnedFd; HANDLES];

/// Why a peer's segments cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerHandlesError {
    /// There is no such rank in the job.
    #[error("rank {peer} does not exist in a job of {size}")]
    NoSuchRank {
        /// The rank asked for.
        peer: u32,
        /// The job's size.
        size: u32,
    },
    /// The peer is gone; it may never have joined.
    #[error("rank {peer} {how}")]
    Lost {
        /// The rank asked for.
        peer: u32,
        /// How it went.
        how: How,
    },
    /// The peer had not joined by the deadline. It may be asked for again.
    #[error("rank {peer} did not join within {} ms", waited.as_millis())]
    Timeout {
        /// The rank asked for.
        peer: u32,
        /// How long this call waited.
        waited: Duration,
    },
    /// The launcher is gone, and with it the way to new peers.
    #[error("the job's launcher is gone")]
    BrokerGone,
    /// This process has no file descriptors left for the peer's segments.
    #[error("no file descriptors for the segments of rank {peer}: {source}")]
    NoDescriptors {
        /// The rank asked for.
        peer: u32,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The answer to one call of `connect`.
pub(super) type Answer = Result<PeerHandles, PeerHandlesError>;

/// The next step of a call of `connect`.
pub(super) enum Asked {
    /// It has its answer.
    Answered(PeerHandlesError),
    /// It waits on `answer`; `ticket` is for giving up.
    Waits { answer: Receiver<Answer>, ticket: u64 },
}

/// All that the callers of `connect` and the watching thread share.
#[derive(Debug, Default)]
pub(super) struct PendingConnects {
    /// One entry for each request the broker has not answered, whether or not somebody still waits for it.
    asks: BTreeMap<u32, Vec<(u64, SyncSender<Answer>)>>,
    lost: BTreeMap<u32, How>,
    gone: bool,
    next_ticket: u64,
    pub(super) outbox: VecDeque<Request>,
    pub(super) leaving: bool,
}

impl PendingConnects {
    pub(super) fn ask(&mut self, peer: u32) -> Asked {
        if let Some(how) = self.lost.get(&peer) {
            return Asked::Answered(PeerHandlesError::Lost { peer, how: *how });
        }
        if self.gone {
            return Asked::Answered(PeerHandlesError::BrokerGone);
        }
        let (sender, answer) = sync_channel(1);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let waiters = self.asks.entry(peer).or_insert_with(|| {
            self.outbox.push_back(Request::Connect { peer });
            Vec::new()
        });
        waiters.push((ticket, sender));
        Asked::Waits { answer, ticket }
    }

    pub(super) fn give_up(&mut self, peer: u32, ticket: u64) {
        if let Some(waiters) = self.asks.get_mut(&peer) {
            waiters.retain(|(other, _)| *other != ticket);
        }
    }

    /// The broker answered: everybody who waits gets descriptors of their own.
    pub(super) fn found(&mut self, peer: u32, pid: u32, handles: Option<Descriptors>) {
        let waiters = self.asks.remove(&peer).unwrap_or_default();
        for (_, waiter) in waiters {
            let answer = match &handles {
                Some(descriptors) => clone_handles(pid, descriptors),
                None => Err(rustix::io::Errno::MFILE.into()),
            };
            let answer = answer.map_err(|source| PeerHandlesError::NoDescriptors { peer, source });
            // The caller may have given up just now.
            let _ = waiter.try_send(answer);
        }
    }

    pub(super) fn lose(&mut self, rank: u32, how: How) -> Notice {
        self.lost.insert(rank, how);
        for (_, waiter) in self.asks.remove(&rank).unwrap_or_default() {
            let _ = waiter.try_send(Err(PeerHandlesError::Lost { peer: rank, how }));
        }
        Notice::Lost { rank, how }
    }

    pub(super) fn close(&mut self) {
        self.gone = true;
        self.outbox.clear();
        for (_, waiter) in std::mem::take(&mut self.asks).into_values().flatten() {
            let _ = waiter.try_send(Err(PeerHandlesError::BrokerGone));
        }
    }
}

fn clone_handles(pid: u32, [control, heap, ledger]: &Descriptors) -> io::Result<PeerHandles> {
    let (control, heap, ledger) = (control.try_clone()?, heap.try_clone()?, ledger.try_clone()?);
    Ok(PeerHandles { pid, control, heap, ledger })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(asked: Asked) -> (Receiver<Answer>, u64) {
        match asked {
            Asked::Waits { answer, ticket } => (answer, ticket),
            Asked::Answered(error) => panic!("answered at once: {error}"),
        }
    }

    fn handles() -> Option<Descriptors> {
        Some([(); HANDLES].map(|()| std::fs::File::open("/dev/null").expect("every system has it").into()))
    }

    #[test]
    fn two_who_want_one_peer_ask_once_and_are_both_answered() {
        let mut pending_connects = PendingConnects::default();
        let (first, _) = wait(pending_connects.ask(3));
        let (second, _) = wait(pending_connects.ask(3));
        assert_eq!(pending_connects.outbox.len(), 1);
        pending_connects.found(3, 77, handles());
        assert_eq!(first.recv().expect("answered").expect("found").pid, 77);
        assert_eq!(second.recv().expect("answered").expect("found").pid, 77);
    }

    #[test]
    fn giving_up_leaves_the_request_open_but_nobody_waiting() {
        let mut pending_connects = PendingConnects::default();
        for _ in 0..10 {
            let (_answer, ticket) = wait(pending_connects.ask(3));
            pending_connects.give_up(3, ticket);
        }
        assert_eq!((pending_connects.outbox.len(), pending_connects.asks[&3].len()), (1, 0));
        pending_connects.found(3, 77, handles());
        assert!(pending_connects.asks.is_empty());
    }

    #[test]
    fn a_loss_answers_who_waits_and_who_asks_later() {
        let mut pending_connects = PendingConnects::default();
        let (answer, _) = wait(pending_connects.ask(3));
        pending_connects.lose(3, How::Killed(9));
        let error = answer.recv().expect("answered").expect_err("lost");
        assert!(matches!(error, PeerHandlesError::Lost { peer: 3, how: How::Killed(9) }));
        assert!(matches!(pending_connects.ask(3), Asked::Answered(PeerHandlesError::Lost { peer: 3, .. })));
    }

    #[test]
    fn without_descriptors_the_caller_is_told() {
        let mut pending_connects = PendingConnects::default();
        let (answer, _) = wait(pending_connects.ask(3));
        pending_connects.found(3, 77, None);
        let error = answer.recv().expect("answered").expect_err("no descriptors");
        assert!(matches!(error, PeerHandlesError::NoDescriptors { peer: 3, .. }));
    }
}

//! The nodes that are peers, those that are about to be, and the numbers that have been given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, shutdown};
use vm::forks::Alone;

use crate::job::launched::socket::send;
use crate::job::launched::wire::{Request, encode};
use crate::job::plumbing::env::JobName;
use crate::job::plumbing::identity_proof::Proof;
use crate::job::plumbing::poll::poll_until;

/// A node, as far as it has shown who it is: whoever uses another's name has not its proof, and is somebody
/// else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) node: JobName,
    pub(super) proof: Proof,
}

/// A node of this host that was called, and has been given a number.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) number: u32,
    pub(super) socket: OwnedFd,
}

/// Nodes that have not answered, at most, whose answers are waited for when nobody calls them: each has a
/// file descriptor.
const UNANSWERED_MAX: usize = 64;

/// A peer's connection.
#[derive(Debug)]
pub(super) struct PeerConnection {
    pub(super) who: Who,
    pub(super) wire: Wire,
}

/// The connection that a line goes by.
#[derive(Debug)]
pub(super) enum Wire {
    /// A socket of this host's. The process's descriptor tells of its end even where a child of its own holds
    /// the connection open.
    Near { socket: OwnedFd, process: OwnedFd },
    /// The network. Nothing is said by it once the two have met. Its end tells of the process's, and so
    /// children do not share it.
    Far(Alone<TcpStream>),
}

impl PeerConnection {
    /// Ready when there is something to hear, or it has ended.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        match &self.wire {
            Wire::Near { socket, .. } => socket.as_fd(),
            Wire::Far(stream) => stream.as_fd(),
        }
    }

    /// Ready when the peer's process has ended, if this is its host.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        match &self.wire {
            Wire::Near { process, .. } => Some(process.as_fd()),
            Wire::Far(_) => None,
        }
    }

    /// Whether the peer's process is known to have ended, though nobody has been told.
    pub(super) fn has_ended(&self) -> bool {
        self.process().is_some_and(|process| {
            let mut process = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
            matches!(poll_until(&mut process, Some(Instant::now())), Ok(1))
        })
    }

    /// Says something that the other need not hear where it has no room, as it reads what it is told.
    pub(super) fn say(&self, request: &Request) {
        if let Wire::Near { socket, .. } = &self.wire {
            // Where the other end is gone, its socket tells.
            let _ = send(socket, &encode(request), &[]);
        }
    }

    /// Tells the peer that this process leaves.
    pub(super) fn take_leave(&self) {
        match &self.wire {
            Wire::Near { .. } => self.say(&Request::Leave),
            Wire::Far(_) => self.hang_up(),
        }
    }

    /// Ends the connection for the other, too, whoever has inherited it here.
    pub(super) fn hang_up(&self) {
        // Where it has ended already there is nothing to do.
        let _ = shutdown(self.socket(), Shutdown::Both);
    }
}

/// How another node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A thread of this process is about to call it over the network, in that turn, and may never get
    /// through: the node may call meanwhile.
    Dialling(u64),
    /// A thread of this process calls it, in that turn.
    Called(u64),
    /// It has called, and is being let in.
    Entering,
    Peer(u32),
}

/// The listener's state.
#[derive(Debug)]
pub(super) struct PeerIds {
    nodes: BTreeMap<Who, Standing>,
    lines: BTreeMap<u32, Arc<PeerConnection>>,
    /// Nodes that were called and have not answered yet, and that nobody waits for just now.
    unanswered: BTreeMap<Who, Arc<Asked>>,
    /// Peers that are to be asked to serve this process once they are peers.
    to_serve: BTreeSet<u32>,
    /// All numbers from here on are free, and these.
    next: u32,
    free: BTreeSet<u32>,
    places: u32,
    /// How many turns threads have had.
    turns: u64,
    closed: bool,
}

impl PeerIds {
    pub(super) fn new(first: u32, places: u32) -> PeerIds {
        PeerIds {
            nodes: BTreeMap::new(),
            lines: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            to_serve: BTreeSet::new(),
            next: first,
            free: BTreeSet::new(),
            places,
            turns: 0,
            closed: false,
        }
    }

    pub(super) fn standing(&self, who: &Who) -> Option<Standing> {
        self.nodes.get(who).copied()
    }

    pub(super) fn set(&mut self, who: &Who, standing: Standing) {
        self.nodes.insert(who.clone(), standing);
    }

    /// Forgets a node whose standing has come to nothing, unless it is another by now.
    pub(super) fn clear(&mut self, who: &Who, standing: Standing) {
        if self.standing(who) == Some(standing) {
            self.nodes.remove(who);
        }
    }

    /// A number for what a thread does now to make a node a peer.
    pub(super) fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// A process that has knocked in that turn is about to call. `false`: the node has called meanwhile, or
    /// another thread is at it.
    pub(super) fn call(&mut self, who: &Who, turn: u64) -> bool {
        let is_free = self.standing(who).is_none_or(|standing| standing == Standing::Dialling(turn));
        if is_free {
            self.set(who, Standing::Called(turn));
        }
        is_free
    }

    /// A number that none has had; `None` when all have been given.
    pub(super) fn take_number(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop_first() {
            return Some(number);
        }
        let number = Some(self.next).filter(|next| *next < self.places)?;
        self.next += 1;
        Some(number)
    }

    /// Takes back a number that nobody was told, or who was told has declined.
    pub(super) fn give_back(&mut self, number: u32) {
        self.free.insert(number);
    }

    /// Keeps what a node was asked, which has not answered in time: it may do so later. Its number is lost
    /// where too many are kept already.
    pub(super) fn keep_asked(&mut self, who: &Who, asked: Arc<Asked>) {
        if !self.closed && self.unanswered.len() < UNANSWERED_MAX {
            self.unanswered.insert(who.clone(), asked);
        }
    }

    /// The question that a node was asked and has not answered yet: for the caller that waits for it from now
    /// on.
    pub(super) fn take_asked(&mut self, who: &Who) -> Option<Arc<Asked>> {
        self.unanswered.remove(who)
    }

    pub(super) fn is_asked(&self, who: &Who) -> bool {
        self.unanswered.contains_key(who)
    }

    pub(super) fn unanswered(&self) -> Vec<(Who, Arc<Asked>)> {
        self.unanswered.iter().map(|(who, asked)| (who.clone(), Arc::clone(asked))).collect()
    }

    /// Enters a peer.
    pub(super) fn enter(&mut self, number: u32, line: PeerConnection) {
        self.set(&line.who, Standing::Peer(number));
        if self.to_serve.remove(&number) {
            line.say(&Request::Serve { peer: 0 });
        }
        self.lines.insert(number, Arc::new(line));
    }

    /// Lets a peer know that it is to serve this process, once it is one.
    pub(super) fn request_progress(&mut self, number: u32) {
        match self.lines.get(&number) {
            Some(line) => line.say(&Request::Serve { peer: 0 }),
            None => _ = self.to_serve.insert(number),
        }
    }

    /// Strikes a peer that is gone. Returns whether it was there.
    pub(super) fn strike(&mut self, number: u32) -> bool {
        let Some(line) = self.lines.remove(&number) else { return false };
        self.clear(&line.who, Standing::Peer(number));
        line.hang_up();
        true
    }

    pub(super) fn line(&self, number: u32) -> Option<Arc<PeerConnection>> {
        self.lines.get(&number).cloned()
    }

    pub(super) fn lines(&self) -> Vec<(u32, Arc<PeerConnection>)> {
        self.lines.iter().map(|(number, line)| (*number, Arc::clone(line))).collect()
    }

    /// From now on nobody comes in. Returns all peers.
    pub(super) fn close(&mut self) -> Vec<Arc<PeerConnection>> {
        self.closed = true;
        self.unanswered.clear();
        self.lines.values().cloned().collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::plumbing::secret::Secret;

    #[test]
    fn a_number_is_given_once_unless_nobody_has_used_it() {
        let mut peer_ids = PeerIds::new(1, 4);
        assert_eq!((peer_ids.take_number(), peer_ids.take_number()), (Some(1), Some(2)));
        peer_ids.give_back(2);
        assert_eq!((peer_ids.take_number(), peer_ids.take_number()), (Some(2), Some(3)));
        peer_ids.give_back(2);
        assert_eq!((peer_ids.take_number(), peer_ids.take_number()), (Some(2), None), "there is no 4");
    }

    #[test]
    fn what_has_become_something_else_is_not_cleared() {
        let (mut peer_ids, node) = (PeerIds::new(1, 4), JobName::of(&[7; 16]));
        let proof = Proof::of(&Secret::random().expect("bytes"), &node, &node);
        let who = Who { node, proof };
        peer_ids.set(&who, Standing::Called(1));
        peer_ids.set(&who, Standing::Entering);
        peer_ids.clear(&who, Standing::Called(1));
        assert_eq!(peer_ids.standing(&who), Some(Standing::Entering));
        assert!(!peer_ids.call(&who, 1), "it comes by itself");
        peer_ids.clear(&who, Standing::Entering);
        assert_eq!(peer_ids.standing(&who), None);
        peer_ids.set(&who, Standing::Dialling(2));
        assert!(!peer_ids.call(&who, 1), "another thread is at it");
        assert!(peer_ids.call(&who, 2) && !peer_ids.call(&who, 1));
        peer_ids.clear(&who, Standing::Called(1));
        assert_eq!(peer_ids.standing(&who), Some(Standing::Called(2)));
    }
}

//! Who is a peer, who is about to be, and which numbers have been given.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::bootstrap::env::JobName;
use crate::bootstrap::socket::send;
use crate::bootstrap::wire::{Request, encode};

/// A peer's connection and process.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) node: JobName,
    pub(super) socket: OwnedFd,
    /// Tells of the process's end even where a child of its own holds the connection open.
    pub(super) process: OwnedFd,
}

impl Line {
    /// Says something that the other need not hear where it has no room, as it reads what it is told.
    pub(super) fn say(&self, request: &Request) {
        // Where the other end is gone, its socket tells.
        let _ = send(&self.socket, &encode(request), &[]);
    }
}

/// How another node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A thread of this process calls it.
    Called,
    /// It has called, and is being let in.
    Entering,
    Peer(u32),
}

/// What the door keeps.
#[derive(Debug)]
pub(super) struct Book {
    nodes: BTreeMap<JobName, Standing>,
    lines: BTreeMap<u32, Arc<Line>>,
    next: u32,
    places: u32,
    closed: bool,
}

impl Book {
    pub(super) fn new(first: u32, places: u32) -> Book {
        Book { nodes: BTreeMap::new(), lines: BTreeMap::new(), next: first, places, closed: false }
    }

    pub(super) fn standing(&self, node: &JobName) -> Option<Standing> {
        self.nodes.get(node).copied()
    }

    pub(super) fn set(&mut self, node: &JobName, standing: Standing) {
        self.nodes.insert(node.clone(), standing);
    }

    /// Forgets a node whose standing has come to nothing, unless it is another by now.
    pub(super) fn clear(&mut self, node: &JobName, standing: Standing) {
        if self.standing(node) == Some(standing) {
            self.nodes.remove(node);
        }
    }

    /// A number that none has had; `None` when all have been given.
    pub(super) fn take_number(&mut self) -> Option<u32> {
        let number = Some(self.next).filter(|next| *next < self.places)?;
        self.next += 1;
        Some(number)
    }

    /// Takes back a number that nobody was told, or who was told has declined. It is lost where others have been given since.
    pub(super) fn give_back(&mut self, number: u32) {
        if self.next == number + 1 {
            self.next = number;
        }
    }

    /// Enters a peer.
    pub(super) fn enter(&mut self, number: u32, line: Line) {
        self.set(&line.node, Standing::Peer(number));
        self.lines.insert(number, Arc::new(line));
    }

    /// Strikes a peer that is gone. Returns whether it was there.
    pub(super) fn strike(&mut self, number: u32) -> bool {
        let Some(line) = self.lines.remove(&number) else { return false };
        self.clear(&line.node, Standing::Peer(number));
        true
    }

    pub(super) fn line(&self, number: u32) -> Option<Arc<Line>> {
        self.lines.get(&number).cloned()
    }

    pub(super) fn lines(&self) -> Vec<(u32, Arc<Line>)> {
        self.lines.iter().map(|(number, line)| (*number, Arc::clone(line))).collect()
    }

    /// From now on nobody comes in. Returns all peers.
    pub(super) fn close(&mut self) -> Vec<Arc<Line>> {
        self.closed = true;
        self.lines.values().cloned().collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_once_unless_nobody_has_used_it() {
        let mut book = Book::new(1, 4);
        assert_eq!((book.take_number(), book.take_number()), (Some(1), Some(2)));
        book.give_back(2);
        assert_eq!((book.take_number(), book.take_number()), (Some(2), Some(3)));
        book.give_back(2);
        assert_eq!(book.take_number(), None, "3 was given since, and there is no 4");
    }

    #[test]
    fn what_has_become_something_else_is_not_cleared() {
        let (mut book, node) = (Book::new(1, 4), JobName::of(&[7; 16]));
        book.set(&node, Standing::Called);
        book.set(&node, Standing::Entering);
        book.clear(&node, Standing::Called);
        assert_eq!(book.standing(&node), Some(Standing::Entering));
        book.clear(&node, Standing::Entering);
        assert_eq!(book.standing(&node), None);
    }
}

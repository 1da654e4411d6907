//! Which ended processes no member reaches by number any more.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use rustix::io::Errno;

use crate::base::lock::lock;
use crate::job::plumbing::poll::Waker;

/// Tells the launcher of ranks whose processes have ended, and that no member reaches by number any more:
/// those numbers may become others'.
///
/// A job's rounds tell each of its own members: a number is free once all have.
#[derive(Debug)]
pub(crate) struct Forgotten {
    rounds: Mutex<Rounds>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Rounds {
    /// How many there are.
    count: usize,
    /// By rank, how many of them have forgotten it.
    forgotten_by: BTreeMap<u32, usize>,
    /// Those of which the launcher has taken no note.
    untold: Vec<u32>,
}

impl Forgotten {
    pub(super) fn new() -> Result<Forgotten, Errno> {
        Ok(Forgotten { rounds: Mutex::default(), waker: Waker::new()? })
    }

    /// Another round begins.
    pub(super) fn add_round(&self) {
        lock(&self.rounds).count += 1;
    }

    /// One of the rounds has forgotten a rank, which it says once.
    pub(super) fn tell(&self, rank: u32) {
        let mut rounds = lock(&self.rounds);
        let forgotten_by = rounds.forgotten_by.entry(rank).or_default();
        *forgotten_by += 1;
        if *forgotten_by == rounds.count {
            rounds.untold.push(rank);
            self.waker.wake();
        }
    }

    /// Those of which nobody has taken note.
    pub(crate) fn take(&self) -> Vec<u32> {
        self.waker.clear();
        std::mem::take(&mut lock(&self.rounds).untold)
    }
}

impl AsFd for Forgotten {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

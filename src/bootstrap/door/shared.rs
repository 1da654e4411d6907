//! What a door opens to, and what callers and the door's thread share.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::book::Book;
use crate::bootstrap::env::JobName;
use crate::bootstrap::member::{Notice, PeerHandles};
use crate::bootstrap::poll::Waker;
use crate::bootstrap::secret::Secret;
use crate::bootstrap::wire::How;

/// A process that is to be a peer.
pub(crate) struct Arrival {
    /// Its number here.
    pub(crate) number: u32,
    pub(crate) handles: PeerHandles,
    /// This process's place there, and how many there are.
    pub(crate) place: u32,
    pub(crate) places: u32,
}

/// Makes an arrival a peer, or says what is wrong with it. Called by any thread.
pub(crate) type Admit = Box<dyn Fn(Arrival) -> Result<(), String> + Send + Sync>;

/// Is told what becomes of peers. Called by any thread.
pub(crate) type Tell = Box<dyn Fn(Notice) + Send + Sync>;

/// What a door opens to.
pub(crate) struct House {
    /// What peers are handed.
    pub(crate) control: OwnedFd,
    pub(crate) heap: OwnedFd,
    /// Peers have the numbers from `first` on, below `places`.
    pub(crate) first: u32,
    pub(crate) places: u32,
    pub(crate) admit: Admit,
    pub(crate) tell: Tell,
}

/// What callers and the door's thread share.
pub(super) struct Shared {
    pub(super) node: JobName,
    pub(super) secret: Secret,
    pub(super) house: House,
    pub(super) book: Mutex<Book>,
    /// Rung when a call has ended or a peer has come.
    pub(super) settled: Condvar,
    pub(super) waker: Waker,
}

impl Shared {
    /// No panic leaves the book half-written, so a poisoned lock is as good as another.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer is gone.
    pub(super) fn lose(&self, number: u32, how: How) {
        if self.book().strike(number) {
            (self.house.tell)(Notice::Lost { rank: number, how });
        }
    }
}

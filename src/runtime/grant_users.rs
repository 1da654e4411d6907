//! The peers that are at this process's grants, and the memory that waits for them to be done.

use std::any::Any;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use engine::Rank;

use crate::transport::peers::NearPeers;

/// How long a wait for users of a grant sleeps between two looks, at first and at last.
const SLEEP: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Knows who is at this process's grants, also once its node is gone.
#[derive(Clone)]
pub(crate) struct Users {
    near: NearPeers,
    places: u32,
}

impl Users {
    /// Of the node that has these near peers, and places for so many.
    pub(crate) fn new(near: NearPeers, places: u32) -> Users {
        Users { near, places }
    }

    /// A peer that is at a grant of this process's, since before that epoch.
    pub(crate) fn any(&self, before: u64) -> Option<Rank> {
        // After whatever bars new use: a ledger's line, or the mark of the node's end.
        fence(Ordering::SeqCst);
        (0..self.places).find(|rank| {
            let peer = self.near.get(*rank);
            peer.is_some_and(|peer| peer.uses_grants(before) && !peer.reach.is_gone())
        })
    }

    /// Waits until no peer is, for so long at most; between two looks it does something else. The error is a
    /// peer that is.
    pub(crate) fn wait(&self, before: u64, within: Duration, between: impl Fn()) -> Result<(), Rank> {
        let begun = Instant::now();
        let mut sleep = SLEEP;
        loop {
            let Some(peer) = self.any(before) else { return Ok(()) };
            let left = within.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(peer);
            }
            between();
            std::thread::sleep(sleep.min(left));
            sleep = (2 * sleep).min(SLEEP_MAX);
        }
    }
}

/// Memory that was granted and dropped while peers were at it.
#[derive(Default)]
pub(crate) struct RevokedMemory(Vec<(u64, Users, Box<dyn Any + Send>)>);

impl RevokedMemory {
    pub(crate) fn add(&mut self, epoch: u64, users: Users, memory: Box<dyn Any + Send>) {
        self.0.push((epoch, users, memory));
    }

    /// Takes out the memory that no peer is at any more, for the caller to drop while it holds no lock; and
    /// whether that is all.
    pub(crate) fn take_unused(&mut self) -> (Vec<Box<dyn Any + Send>>, bool) {
        let unused = |(epoch, users, _): &mut (u64, Users, _)| users.any(*epoch).is_none();
        let free = self.0.extract_if(.., unused).map(|(.., memory)| memory).collect();
        (free, self.0.is_empty())
    }
}

impl Drop for RevokedMemory {
    fn drop(&mut self) {
        // A peer that is at it still, as the node ends, may be so for ever: the memory is never used again.
        let used = self.0.drain(..).filter(|(epoch, users, _)| users.any(*epoch).is_some());
        used.for_each(std::mem::forget);
    }
}

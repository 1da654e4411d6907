//! The peers that are at this process's grants, and the memory that waits for them to be done.

use std::any::Any;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use engine::{GrantId, Rank};

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
        let near = (0..self.places).filter_map(|rank| self.near.get(rank));
        let mut using = near.filter(|peer| peer.oldest_use().is_some_and(|since| since < before));
        using.find(|peer| !peer.reach.is_gone()).map(|peer| peer.rank)
    }

    /// The oldest epoch since which a peer is at a grant of this process's: nobody is at what was revoked by
    /// then.
    fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        let near = (0..self.places).filter_map(|rank| self.near.get(rank));
        let using = near.filter_map(|peer| Some((peer.oldest_use()?, peer)));
        using.filter(|(_, peer)| !peer.reach.is_gone()).map(|(since, _)| since).min().unwrap_or(u64::MAX)
    }

    /// Waits until no peer is, nor is at it from `afar`, for so long at most; between two looks it does
    /// something else. Returns the peer that it waited for first, if it did. The error is a peer that is
    /// still there.
    pub(crate) fn wait(
        &self,
        before: u64,
        within: Duration,
        afar: impl Fn() -> Option<Rank>,
        between: impl Fn(),
    ) -> Result<Option<Rank>, Rank> {
        let begun = Instant::now();
        let (mut sleep, mut first) = (SLEEP, None);
        loop {
            let Some(peer) = self.any(before).or_else(&afar) else { return Ok(first) };
            first = first.or(Some(peer));
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

/// How often it is looked whether memory that was dropped is still used, at most.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Memory that was granted and dropped while peers were at it, and when to look next whether they still are.
#[derive(Default)]
pub(crate) struct RevokedMemory(Vec<Kept>, Option<Instant>);

/// Memory that a grant named until an epoch began.
pub(crate) struct Kept {
    pub(crate) grant: GrantId,
    pub(crate) epoch: u64,
    pub(crate) users: Users,
    pub(crate) memory: Box<dyn Any + Send>,
}

impl RevokedMemory {
    pub(crate) fn add(&mut self, kept: Kept) {
        self.0.push(kept);
    }

    /// Takes out the memory that no peer is at any more, for the caller to drop while it holds no lock; and
    /// whether that is all. `is_idle` says of which grants nobody is at it from afar.
    pub(crate) fn take_unused(
        &mut self,
        is_idle: impl Fn(GrantId) -> bool,
    ) -> (Vec<Box<dyn Any + Send>>, bool) {
        let now = Instant::now();
        let Some(Kept { users, .. }) = self.0.first().filter(|_| now >= self.1.unwrap_or(now)) else {
            return (Vec::new(), self.0.is_empty());
        };
        self.1 = Some(now + LOOK_EVERY);
        let oldest = users.oldest();
        let unused = |kept: &mut Kept| kept.epoch <= oldest && is_idle(kept.grant);
        let free = self.0.extract_if(.., unused).map(|kept| kept.memory).collect();
        (free, self.0.is_empty())
    }
}

impl Drop for RevokedMemory {
    fn drop(&mut self) {
        // A peer that is at it still, as the node ends, may be so for ever: the memory is never used again.
        // Nobody is at it from afar: the network has ended before.
        let used = self.0.drain(..).filter(|kept| kept.users.any(kept.epoch).is_some());
        used.for_each(std::mem::forget);
    }
}

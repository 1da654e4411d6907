//! The peers that are at this process's grants, and the memory that waits for them to be done.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::{GrantId, Rank};
use vm::announcements::before_looking_for_users;

use crate::base::lock::lock;
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

    /// Whether both are of one node's grants.
    fn are(&self, others: &Users) -> bool {
        self.near.is(&others.near)
    }

    /// A peer that is at a grant of this process's, since before that epoch.
    pub(crate) fn any(&self, before: u64) -> Option<Rank> {
        // After whatever bars new use: a ledger's line, or the mark of the node's end.
        before_looking_for_users();
        let near = (0..self.places).filter_map(|rank| self.near.get(rank));
        let mut using = near.filter(|peer| peer.oldest_use().is_some_and(|since| since < before));
        using.find(|peer| !peer.reach.is_gone()).map(|peer| peer.rank)
    }

    /// The oldest epoch since which a peer is at a grant of this process's: nobody is at what was revoked by
    /// then.
    fn oldest(&self) -> u64 {
        before_looking_for_users();
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
        if now < self.1.unwrap_or(now) {
            return (Vec::new(), self.0.is_empty());
        }
        self.1 = Some(now + LOOK_EVERY);
        // Most of it is one node's, whose users are looked at once.
        let mut looked: Option<(Users, u64)> = None;
        let is_unused = |kept: &mut Kept| {
            let oldest = match &looked {
                Some((of, oldest)) if kept.users.are(of) => *oldest,
                _ => looked.insert((kept.users.clone(), kept.users.oldest())).1,
            };
            kept.epoch <= oldest && is_idle(kept.grant)
        };
        let free = self.0.extract_if(.., is_unused).map(|kept| kept.memory).collect();
        (free, self.0.is_empty())
    }
}

impl Drop for RevokedMemory {
    fn drop(&mut self) {
        // Nobody is at it from afar: the network has ended before.
        self.0.drain(..).for_each(leave);
    }
}

/// The memory that peers were at as its node ended.
static LEFT: Mutex<RevokedMemory> = Mutex::new(RevokedMemory(Vec::new(), None));
/// The process, by forks, that has any; 0: none has.
static HAS_LEFT: AtomicU32 = AtomicU32::new(0);

/// Keeps memory whose node has ended until no peer is at it: see [`free_left`].
pub(crate) fn leave(kept: Kept) {
    if kept.users.any(kept.epoch).is_none() {
        return drop(kept);
    }
    lock(&LEFT).add(kept);
    HAS_LEFT.store(vm::forks::generation(), Ordering::Release);
}

/// Drops the memory that nodes have left, and no peer is at any more. For calls about grants, whatever their
/// node: there is no node to look after it.
#[inline]
pub(crate) fn free_left() {
    if HAS_LEFT.load(Ordering::Acquire) != 0 {
        free_all_left();
    }
}

#[cold]
fn free_all_left() {
    // In a child that was forked another thread may have held the lock.
    if HAS_LEFT.load(Ordering::Acquire) != vm::forks::known_generation() {
        return;
    }
    let free = {
        let mut left = lock(&LEFT);
        let (free, is_all) = left.take_unused(|_| true);
        if is_all {
            HAS_LEFT.store(0, Ordering::Release);
        }
        free
    };
    drop(free);
}

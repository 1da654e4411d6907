//! The peers that are at this process's grants, and the memory that waits for them to be done.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::Rank;
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

/// How often it is looked whether memory that was dropped is still used, at most.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Memory that was granted and dropped while peers were at it, and when to look next whether they still are.
#[derive(Default)]
pub(crate) struct RevokedMemory(Vec<Kept>, Option<Instant>);

/// Memory, who may be at it, and the epoch before which they began.
type Kept = (u64, Users, Box<dyn Any + Send>);

impl RevokedMemory {
    pub(crate) fn add(&mut self, epoch: u64, users: Users, memory: Box<dyn Any + Send>) {
        self.0.push((epoch, users, memory));
    }

    /// Takes out the memory that no peer is at any more, for the caller to drop while it holds no lock; and
    /// whether that is all.
    pub(crate) fn take_unused(&mut self) -> (Vec<Box<dyn Any + Send>>, bool) {
        let now = Instant::now();
        if now < self.1.unwrap_or(now) {
            return (Vec::new(), self.0.is_empty());
        }
        self.1 = Some(now + LOOK_EVERY);
        // Most of it is one node's, whose users are looked at once.
        let mut looked: Option<(Users, u64)> = None;
        let is_unused = |(epoch, users, _): &mut Kept| {
            let oldest = match &looked {
                Some((of, oldest)) if users.are(of) => *oldest,
                _ => looked.insert((users.clone(), users.oldest())).1,
            };
            *epoch <= oldest
        };
        let free = self.0.extract_if(.., is_unused).map(|(.., memory)| memory).collect();
        (free, self.0.is_empty())
    }
}

impl Drop for RevokedMemory {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(epoch, users, memory)| leave(epoch, users, memory));
    }
}

/// The memory that peers were at as its node ended.
static LEFT: Mutex<RevokedMemory> = Mutex::new(RevokedMemory(Vec::new(), None));
/// The process, by forks, that has any; 0: none has.
static HAS_LEFT: AtomicU32 = AtomicU32::new(0);

/// Keeps memory whose node has ended until no peer is at it: see [`free_left`].
pub(crate) fn leave(epoch: u64, users: Users, memory: Box<dyn Any + Send>) {
    if users.any(epoch).is_none() {
        return drop(memory);
    }
    lock(&LEFT).add(epoch, users, memory);
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
        let (free, is_all) = left.take_unused();
        if is_all {
            HAS_LEFT.store(0, Ordering::Release);
        }
        free
    };
    drop(free);
}

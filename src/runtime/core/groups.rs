//! The groups of a node's fields.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use engine::{Counters, OpId, Rank};
use vm::{Bell, Words};

use crate::counters::latency::{Recorder, Timed};
use crate::counters::thread_counters::ThreadCounters;
use crate::runtime::failures::FirstFailures;
use crate::runtime::grant_users::RevokedMemory;
use crate::runtime::progress_thread::ProgressThreadSlot;
use crate::runtime::wait_policy::Polling;
use crate::runtime::watchers::Watchers;
use crate::transport::list::NetworkPlan;
use crate::transport::net_wakeup::NetWakeup;

/// A bit of [`Notes::pending`]: peers are newly lost.
pub(super) const LOSSES: u8 = 1;

/// A bit of [`Notes::pending`]: somebody looks from outside, and the engine's counters are to be shown.
pub(super) const LOOK: u8 = 2;

/// Bits of [`Due::flags`]: somebody is to be told of operations' ends; such operations have ended;
/// there are buffers of operations that may have ended; operations whose time is taken.
pub(super) const WATCHERS: u8 = 1;
pub(super) const ENDED: u8 = 2;
pub(super) const DETACHED: u8 = 4;
pub(super) const FOLLOWED: u8 = 8;
/// And handlers that have gone, of which something may be kept.
pub(super) const HANDLERS: u8 = 16;
/// And memory of grants that was dropped while peers were at it.
pub(super) const REVOKED: u8 = 32;

/// Counts that the node keeps beside its engine.
pub(crate) struct Counted {
    pub(crate) thread_counters: ThreadCounters,
    pub(crate) latencies: Recorder,
    /// Whether anybody has ever looked at this node from outside.
    pub(crate) watched: AtomicBool,
    /// Accesses of this node's that peers' grants did not allow.
    pub(crate) barred: AtomicU64,
}

impl Counted {
    /// Adds what never enters the engine to `counters`.
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        self.thread_counters.add_to(counters);
        counters.barred += self.barred.load(Ordering::Relaxed);
    }
}

/// How threads wait, and by what they are woken.
pub(super) struct Waking {
    pub(super) bell: Bell<Words>,
    /// The things that threads sleep on besides the bell, from when on there is a network.
    pub(super) net_wakeup: OnceLock<Arc<NetWakeup>>,
    pub(super) sleepers: Arc<AtomicU32>,
    pub(super) polling: Polling,
    pub(super) epoch: Instant,
    /// Messages taken by all threads, about.
    pub(super) moved: AtomicU32,
}

/// News that the watching thread has for the next poll.
#[derive(Default)]
pub(super) struct Notes {
    /// Peers that are newly lost, for the engine to be told, from then on.
    pub(super) losses: Mutex<Vec<(Rank, Instant)>>,
    /// [`LOSSES`], [`LOOK`] or both. One word for all of it, so that the polls on which all depends look at
    /// one only.
    pub(super) pending: AtomicU8,
    /// Messages heard since there is anything.
    pub(super) polls: AtomicU32,
}

/// The work to do once something has moved.
#[derive(Default)]
pub(crate) struct Due {
    /// [`WATCHERS`], [`ENDED`], [`DETACHED`], [`FOLLOWED`], [`HANDLERS`], [`REVOKED`], in one word as
    /// [`Notes::pending`].
    pub(super) flags: AtomicU8,
    pub(super) revoked: Mutex<RevokedMemory>,
    /// The ones that are told when operations end.
    pub(super) watchers: Mutex<Watchers>,
    /// Operations under way whose time is taken: of which kind, and since when.
    pub(super) followed: Mutex<Vec<(OpId, Timed, Instant)>>,
    /// Of each client, the first failure of an operation that ended at once and whose event was dropped.
    pub(crate) failures: FirstFailures,
}

/// The node's own threads, and what they may do.
pub(crate) struct Threads {
    pub(crate) closing: AtomicBool,
    /// Held by the thread that is in a barrier: others of this process come to the next one.
    pub(crate) barrier: Mutex<()>,
    /// Whether the node may have a progress thread.
    pub(crate) may_attend: bool,
    /// Bytes of a copy within the host from which on a thread apart makes it.
    pub(crate) copied_apart_min: u64,
    pub(crate) progress: ProgressThreadSlot,
    /// Wakes tasks that await where the node may have no progress thread.
    pub(crate) waker: ProgressThreadSlot,
    /// Hears the doorbell for whoever sleeps on the network.
    pub(crate) listener: ProgressThreadSlot,
}

/// How the node opens to others.
pub(crate) struct Opening {
    /// Held while the network is opened for the first far peer.
    pub(crate) lock: Mutex<()>,
    /// The nodes that a listener opens to. `None` once it is open, and in a launched job.
    pub(crate) outside: Mutex<Option<Outside>>,
}

/// The parts that a node needs for peers of no job.
pub(crate) struct Outside {
    /// The memory that near ones are handed.
    pub(crate) segments: [OwnedFd; 3],
    /// How far ones are reached.
    pub(crate) plan: NetworkPlan,
}

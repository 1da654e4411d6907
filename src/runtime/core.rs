//! The state that the handles of one node share, and how its threads make progress and wait.
//!
//! Two locks are never taken the other way round. The *inbox* lock makes one thread at a time poll and run
//! handlers, so that a node's handlers run one after the other, and is only ever tried for. The *engine* lock
//! is held for single engine calls, never while a handler runs. Reaching mapped memory, and cross-memory
//! attach, need neither.

mod clients;
mod detached_buffers;
mod grants;
mod groups;
mod lender;
mod peer_loss;
mod request_timing;
mod tasks;
mod wait;

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use engine::node::{Polled, Refused};
use engine::{Inbox, Lane, Nanos, OpId, Rank};
use vm::{BiasedGuard, BiasedLock};

pub(crate) use self::groups::Outside;
use self::groups::{
    Counted, DETACHED, Due, ENDED, FOLLOWED, HANDLERS, LOOK, LOSSES, Notes, Opening, REVOKED, Threads,
    WATCHERS, Waking,
};
use self::lender::{Borrows, Lender};
use crate::base::error::Error;
use crate::base::handler_scope::{self, HandlerScope};
use crate::base::lock::lock;
use crate::counters::latency::Recorder;
use crate::counters::thread_counters::ThreadCounters;
use crate::runtime::background_steps::BackgroundSteps;
use crate::runtime::collective_scratch::ScratchPool;
use crate::runtime::handlers::{Handlers, Snapshot};
use crate::runtime::payloads::Payloads;
use crate::runtime::progress_thread::ProgressThreadSlot;
use crate::runtime::wait_policy::Polling;
use crate::transport::contract::NodeTransport as _;
use crate::transport::list::Network;
use crate::transport::mr_invalidation;
use crate::transport::net_wakeup::NetWakeup;
use crate::transport::peers::{NearPeers, Peers};
use crate::transport::router::Router;
use crate::transport::shm::heap_pages::{Block, HeapState};

/// The engine over all transports of a node.
pub(crate) type Engine = engine::Node<Router>;

/// Runs a registered handler on the message in the inbox, for its client. Whether it has replied.
pub(crate) type Handler = Arc<dyn Fn(&Arc<NodeCore>, &mut Inbox, Rank, Lane, u8) -> bool + Send + Sync>;

/// The engine, held.
pub(crate) type EngineGuard<'a> = BiasedGuard<'a, Engine>;

/// Polls of the engine at a time, by whoever waits and may poll.
const POLLS: u32 = 4;

/// Looks for a message between two polls, which do more.
const LOOKS: u32 = 8;

/// Messages that are heard before notices are, at most.
const POLLS_WITH_NOTICES_MAX: u32 = 1000;

/// How long the launcher's word that a far peer is gone is kept back: what that had still sent may take its
/// time.
const GRACE: Duration = Duration::from_millis(20);

/// How long a call waits for the network to take what others wait for, once it has what it waited for itself.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// A value that this rank has published in the directory.
pub(crate) struct Published {
    /// The entry that points to the value: at this offset of that rank's heap.
    pub(crate) keeper: Rank,
    pub(crate) entry: u64,
    /// Keeps the value's block in this rank's heap.
    pub(crate) _block: Block,
}

/// One process's node.
pub(crate) struct NodeCore {
    /// The table that every put and get of mapped memory looks up: a table of `peers`.
    pub(crate) near: NearPeers,
    pub(crate) peers: Arc<Peers>,
    pub(crate) heap: Arc<HeapState>,
    /// The memory of it that collectives use.
    pub(crate) scratch: Arc<ScratchPool>,
    pub(crate) handlers: Handlers<Handler>,
    pub(crate) counted: Counted,
    /// The names that this rank has published in the directory.
    pub(crate) published: Mutex<HashMap<String, Published>>,
    lender: Lender<Engine>,
    /// Where messages arrive. The thread that holds it polls, and runs the handlers.
    arrivals: BiasedLock<Arrivals>,
    waking: Waking,
    notes: Notes,
    pub(crate) due: Due,
    pub(crate) payloads: Arc<Payloads>,
    pub(crate) threads: Threads,
    pub(crate) opening: Opening,
    /// A word whose address and value peers know, to find out whether they reach this process's private
    /// memory.
    _nonce: Box<u64>,
}

/// Where messages arrive, and the handlers that take them.
#[derive(Default)]
struct Arrivals {
    inbox: Inbox,
    handlers: Snapshot<Handler>,
}

/// The parts of a new [`NodeCore`].
pub(crate) struct Parts {
    pub(crate) peers: Arc<Peers>,
    pub(crate) heap: Arc<HeapState>,
    pub(crate) handlers: Handlers<Handler>,
    pub(crate) engine: Engine,
    pub(crate) sleepers: Arc<AtomicU32>,
    pub(crate) spin: Duration,
    pub(crate) nonce: Box<u64>,
    pub(crate) outside: Option<Outside>,
    /// Whether the node may have a progress thread.
    pub(crate) may_attend: bool,
    /// Bytes of a copy within the host from which on a thread apart makes it.
    pub(crate) copied_apart_min: u64,
}

/// The result of one attempt at progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Something moved.
    Moved,
    /// There was nothing to do.
    Idle,
    /// Another thread is at it.
    Taken,
}

impl Borrows for Engine {
    fn give_back(&mut self) {
        self.transport().end();
    }
}

impl NodeCore {
    pub(crate) fn new(parts: Parts) -> NodeCore {
        let waking = Waking {
            bell: parts.peers.own().control.bell(),
            net_wakeup: OnceLock::new(),
            sleepers: parts.sleepers,
            polling: Polling::new(parts.spin, if parts.spin.is_zero() { 1 } else { POLLS }),
            epoch: Instant::now(),
            moved: AtomicU32::new(0),
        };
        let threads = Threads {
            barrier: Mutex::new(()),
            closing: AtomicBool::new(false),
            may_attend: parts.may_attend,
            copied_apart_min: parts.copied_apart_min,
            progress: ProgressThreadSlot::new(parts.may_attend),
            waker: ProgressThreadSlot::new(true),
            listener: ProgressThreadSlot::new(true),
        };
        NodeCore {
            near: parts.peers.near().clone(),
            peers: parts.peers,
            scratch: ScratchPool::new(Arc::clone(&parts.heap)),
            heap: parts.heap,
            handlers: parts.handlers,
            counted: Counted {
                thread_counters: ThreadCounters::new(),
                latencies: Recorder::new(),
                watched: AtomicBool::new(false),
                barred: AtomicU64::new(0),
            },
            published: Mutex::default(),
            lender: Lender::new(parts.engine),
            arrivals: BiasedLock::new(Arrivals::default()),
            waking,
            notes: Notes::default(),
            due: Due::default(),
            payloads: Arc::default(),
            threads,
            opening: Opening { lock: Mutex::default(), outside: Mutex::new(parts.outside) },
            _nonce: parts.nonce,
        }
    }

    /// Collectives that nobody waits for.
    pub(crate) fn background_steps(&self) -> &BackgroundSteps {
        &self.lender.background_steps
    }

    #[inline]
    pub(crate) fn engine(&self) -> EngineGuard<'_> {
        let mut engine = self.lender.engine.lock();
        mr_invalidation::apply_changes(&mut engine);
        engine
    }

    /// A point in time as the engine counts it.
    pub(crate) fn nanos(&self, at: Instant) -> Nanos {
        u64::try_from(at.saturating_duration_since(self.waking.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether there is a network.
    pub(crate) fn has_network(&self) -> bool {
        self.waking.net_wakeup.get().is_some()
    }

    /// From now on far peers are reached over this network, and threads sleep on it.
    pub(crate) fn set_network(&self, engine: &mut Engine, network: Network, net_wakeup: Arc<NetWakeup>) {
        let set = self.waking.net_wakeup.set(Arc::clone(&net_wakeup));
        assert!(set.is_ok(), "a node has one network");
        engine.transport().set_network(network, Arc::clone(&self.peers), net_wakeup);
    }

    /// Whether waits poll before they sleep.
    pub(crate) fn polls(&self) -> bool {
        !self.waking.polling.spin.is_zero()
    }

    /// Refuses a call that may wait while a handler runs on this thread, and to a child made by `fork`.
    #[inline]
    pub(crate) fn may_wait(&self, call: &'static str) -> Result<(), Error> {
        handler_scope::may_wait(call, self.peers.generation())
    }

    /// Refuses a call of a node that has closed, and to a child made by `fork`; to be asked before any lock.
    #[inline]
    pub(crate) fn may_call(&self, call: &'static str) -> Result<(), Error> {
        handler_scope::may_call(call, self.peers.generation())
    }

    /// Whether the node was closed while it had handles.
    #[inline]
    pub(crate) fn has_closed(&self) -> bool {
        self.peers.generation() == handler_scope::CLOSED
    }

    /// Polls at most `polls` times, until something moves; runs the handler if an Active Message came.
    #[inline(never)]
    pub(crate) fn progress(self: &Arc<Self>, polls: u32) -> Progress {
        let Some(mut arrivals) = self.arrivals.try_lock() else { return self.leave_to_another() };
        let Arrivals { inbox, handlers } = &mut *arrivals;
        let polled = self.poll_engine(inbox, polls);
        if let Polled::Deliver(delivery) = polled {
            let _scope = HandlerScope::enter();
            match handlers.get(delivery.handler) {
                Some(runnable) => self.handle(runnable, inbox, delivery),
                None => self.handle_new(handlers, inbox, delivery),
            }
        } else if let Polled::Refused(refused) = polled {
            self.on_refused(refused);
        } else if let Polled::Acknowledged(stamp) = polled {
            self.on_stamp(stamp);
        } else if let Polled::Local(op) = polled {
            let _scope = HandlerScope::enter();
            self.background_steps().run(op);
        } else if polled == Polled::Idle {
            drop(arrivals);
            if self.due.flags.load(Ordering::Relaxed) & REVOKED != 0 {
                self.free_revoked();
            }
            return Progress::Idle;
        }
        drop(arrivals);
        self.after_progress();
        Progress::Moved
    }

    /// Another thread polls, or runs a handler for as long as that takes: what gathers does not wait for it.
    #[cold]
    fn leave_to_another(&self) -> Progress {
        if self.waking.net_wakeup.get().is_some_and(|net_wakeup| net_wakeup.take_gathered()) {
            self.engine().transport().send_gathered();
        }
        Progress::Taken
    }

    #[inline(always)]
    fn poll_engine(&self, inbox: &mut Inbox, polls: u32) -> Polled {
        let mut engine = self.engine();
        let polled = match engine.poll(inbox) {
            Polled::Idle => self.poll_on(&mut engine, inbox, polls),
            moved => self.after_moved(&mut engine, moved),
        };
        if engine.has_ended() {
            self.due.flags.fetch_or(ENDED, Ordering::AcqRel);
            if polled == Polled::Idle {
                // They ended without a poll, as by a loss that was found otherwise: others are to be told.
                return Polled::Progressed;
            }
        }
        polled
    }

    /// Polls again, after a poll that found nothing, until `polls` have been made or something moves.
    #[inline(never)]
    fn poll_on(&self, engine: &mut Engine, inbox: &mut Inbox, polls: u32) -> Polled {
        for _ in 1..polls {
            // Messages that a peer sent before it was lost are heard before the loss is told.
            if self.notes.pending.load(Ordering::Acquire) != 0 || engine.transport().has_lost() {
                break;
            }
            engine.transport().spin_for_message(LOOKS);
            // Messages that come now may have been sent by a peer that knew of a change.
            mr_invalidation::apply_changes(engine);
            match engine.poll(inbox) {
                Polled::Idle => {}
                moved => return self.after_moved(engine, moved),
            }
        }
        if self.notes.pending.load(Ordering::Acquire) != 0 {
            return if self.apply_notices(engine) { Polled::Progressed } else { Polled::Idle };
        }
        if engine.transport().has_lost() {
            self.hear_network(engine);
            return Polled::Progressed;
        }
        if engine.transport().take_signalled() {
            return Polled::Progressed;
        }
        Polled::Idle
    }

    /// Something moved. Others may have so much to say that it never gets quiet, and there may be notices.
    #[inline(always)]
    fn after_moved(&self, engine: &mut Engine, moved: Polled) -> Polled {
        if self.notes.pending.load(Ordering::Relaxed) != 0
            && self.notes.polls.fetch_add(1, Ordering::Relaxed) >= POLLS_WITH_NOTICES_MAX
        {
            self.apply_notices(engine);
        }
        moved
    }

    /// Lets go on whoever waited for what has just moved.
    #[inline(always)]
    fn after_progress(&self) {
        if self.waking.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake_sleepers();
        }
        if let Some(net_wakeup) = self.waking.net_wakeup.get() {
            net_wakeup.moved();
        }
        if self.due.flags.load(Ordering::Acquire) != 0 {
            self.run_deferred();
        }
    }

    #[cold]
    fn run_deferred(&self) {
        let deferred = self.due.flags.load(Ordering::Acquire);
        if deferred & ENDED != 0 {
            self.tell_of_ended();
        }
        if deferred & DETACHED != 0 {
            self.free_detached_buffers();
        }
        if deferred & FOLLOWED != 0 {
            self.look_after_followed();
        }
        if deferred & HANDLERS != 0 {
            self.let_go_of_handlers();
        }
        if deferred & REVOKED != 0 {
            self.free_revoked();
        }
    }

    /// Lets go of handlers that have gone, if nobody polls just now: whoever does comes here after it.
    #[cold]
    fn let_go_of_handlers(&self) {
        self.due.flags.fetch_and(!HANDLERS, Ordering::AcqRel);
        if !self.rests() {
            self.due.flags.fetch_or(HANDLERS, Ordering::AcqRel);
        }
        self.handlers.drop_old();
    }

    /// Whether no handler runs at this moment. Then nothing is kept of those that are gone.
    pub(crate) fn rests(&self) -> bool {
        let Some(mut arrivals) = self.arrivals.try_lock() else { return false };
        let old = self.handlers.renew(&mut arrivals.handlers);
        drop(arrivals);
        drop(old);
        true
    }

    /// Drops the memory of grants that no peer is at any more, whose programs' code runs with no lock of ours
    /// held.
    #[cold]
    fn free_revoked(&self) {
        let free = {
            let engine = self.engine();
            let mut revoked = lock(&self.due.revoked);
            let (free, is_all) = revoked.take_unused(|grant| engine.is_grant_idle(grant));
            if is_all {
                self.due.flags.fetch_and(!REVOKED, Ordering::AcqRel);
            }
            free
        };
        drop(free);
    }

    /// Drops the buffers of operations that have ended, whose programs' code runs with no lock of ours held.
    fn free_detached_buffers(&self) {
        let ended = {
            let engine = self.engine();
            let mut detached_buffers = lock(&self.lender.detached_buffers);
            // An operation that nobody asks about leaves the table when it ends.
            let ended = detached_buffers.take_ended(|op| engine.is_locally_done(op));
            if detached_buffers.is_empty() {
                self.due.flags.fetch_and(!DETACHED, Ordering::AcqRel);
            }
            ended
        };
        drop(ended);
    }

    /// Keeps a buffer until the operation that uses it has ended.
    pub(crate) fn keep(&self, op: OpId, buffer: Box<dyn Any + Send>) {
        let mut detached_buffers = lock(&self.lender.detached_buffers);
        detached_buffers.add(op, buffer);
        self.due.flags.fetch_or(DETACHED, Ordering::AcqRel);
    }

    /// A peer has refused a message: the engine has told its sender's client.
    #[cold]
    fn on_refused(&self, refused: Refused) {
        if let Some(peer) = self.peers.known(refused.peer) {
            peer.handlers().forget(refused.handler);
        }
    }

    /// Whether this is the copy of a node that a forked child has: none of what it holds is the child's own
    /// to end.
    pub(crate) fn is_forked(&self) -> bool {
        self.peers.is_forked()
    }

    /// Wakes every thread that waits, so that it looks again at what it waits for.
    pub(crate) fn wake(&self) {
        self.wake_threads();
        self.wake_tasks();
        if self.threads.closing.load(Ordering::SeqCst) {
            self.end_queued();
        }
    }

    /// Operations have ended without any progress: by a deadline, or given up. Lets go on whoever waits for
    /// them.
    pub(crate) fn wake_for_ended(&self) {
        self.wake_threads();
        if self.due.flags.load(Ordering::Acquire) & WATCHERS != 0 {
            self.tell_of_ended();
        }
    }

    pub(crate) fn wake_threads(&self) {
        self.waking.bell.poke();
        if let Some(net_wakeup) = self.waking.net_wakeup.get() {
            net_wakeup.ring_all();
        }
    }

    /// Wakes whoever sleeps.
    fn wake_sleepers(&self) {
        self.waking.bell.poke();
        self.ring_wakeup();
    }

    /// Wakes who sleeps on the network, if there is one. The doorbell must have been rung before.
    #[inline]
    pub(crate) fn ring_wakeup(&self) {
        if let Some(net_wakeup) = self.waking.net_wakeup.get() {
            net_wakeup.ring();
        }
    }

    /// Where nobody makes progress but calls: waits until the network has taken what this node has to say, as
    /// others wait for it while this process may compute. At most for the time, and [`FLUSH_MAX`].
    pub(crate) fn flush_for_others(self: &Arc<Self>, timeout: Option<Duration>) {
        if self.threads.may_attend || self.waking.net_wakeup.get().is_none() {
            return;
        }
        if self.flushed().is_none() {
            let within = timeout.unwrap_or(FLUSH_MAX).min(FLUSH_MAX);
            self.wait_for_room(Some(within), || self.flushed());
        }
    }

    /// Whether the network has taken all that this node has to say.
    fn flushed(&self) -> Option<()> {
        let mut engine = self.engine();
        (!engine.has_work() && engine.transport().is_flushed()).then_some(())
    }

    /// Waits until the copies that threads of this node's make are made: no peer can keep them from that.
    pub(crate) fn finish_copies(self: &Arc<Self>) {
        let is_done = || (!self.engine().transport().shm().is_copying()).then_some(());
        if is_done().is_none() && self.may_wait("leaving").is_ok() {
            let _ = self.wait_for_room(None, is_done);
        }
    }

    /// Waits a while, at most, until the network has taken all that was sent, and then the word that this
    /// process leaves. Whether it has.
    pub(crate) fn take_leave(self: &Arc<Self>, within: Duration) -> bool {
        if self.waking.net_wakeup.get().is_none() || self.may_wait("leaving").is_err() {
            return true;
        }
        let until = Instant::now().checked_add(within);
        let left = || Some(until?.saturating_duration_since(Instant::now()));
        let flushed = || self.flushed();
        self.engine().retell_barrier();
        let all_sent = self.wait_for_room(left(), flushed);
        // Nobody else tells those of other hosts.
        let mut engine = self.engine();
        self.peers.all_elsewhere().into_iter().for_each(|rank| engine.transport().take_leave(rank));
        drop(engine);
        let is_told = all_sent.and_then(|()| self.wait_for_room(left(), flushed)).is_some();
        if !is_told {
            tracing::warn!("the network has not taken all that was sent");
        }
        is_told
    }

    /// Starts the thread that hears the doorbell, for a job with near and far peers.
    pub(crate) fn listen(self: &Arc<Self>) -> std::io::Result<()> {
        let Some(net_wakeup) = self.waking.net_wakeup.get().cloned() else { return Ok(()) };
        let core = Arc::clone(self);
        self.threads
            .listener
            .start("standpipe-bell", move || net_wakeup.forward(&core.waking.bell, &core.threads.closing))
    }

    /// Does what has come. Returns whether that is all, or so much that it may never be all; `false` while
    /// another thread is at it.
    pub(crate) fn drain_messages(self: &Arc<Self>) -> bool {
        for _ in 0..POLLS_WITH_NOTICES_MAX {
            match self.progress(1) {
                Progress::Idle => return true,
                Progress::Taken => return false,
                Progress::Moved => {}
            }
        }
        true
    }
}

//! What the handles of one node share, and how its threads make progress and wait.
//!
//! Two locks, never taken the other way round: that of the *inbox* makes one thread at a time poll and run handlers, so
//! that a node's handlers run one after the other, and is only ever tried for; that of the *engine* is held for single
//! engine calls, never while a handler runs. Reaching mapped memory, and cross-memory attach, need neither.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use engine::node::Polled;
use engine::{Delivery, Inbox, Nanos, OpId, Rank};
use vm::{Bell, BiasedGuard, BiasedLock, Words};

use crate::bootstrap::Notice;
use crate::error::Error;
use crate::handler_scope::{self, HandlerScope};
use crate::heap_state::{Block, HeapState};
use crate::progress::Attendant;
use crate::sync::lock;
use crate::tally::Tallies;
use crate::transport::shm::rings::Cold;
use crate::transport::shm::{Peers, ShmTransport};

/// The engine over shared memory.
pub(crate) type Engine = engine::Node<ShmTransport>;

/// No sleep is longer, whatever is waited for: what a hostile peer hides from the doorbell is found then.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// A sleep's length where nothing will ring: a full lane is drained by the peer in its own time.
const NAP: Duration = Duration::from_micros(100);

/// Polls of the engine at a time, by whoever waits.
const POLLS: u32 = 4;

/// Looks for a message between two polls, which do more.
const LOOKS: u32 = 8;

/// Messages that a wait takes before it looks at the clock, at most: a peer may have so much to say that there is always
/// something better to do.
const MOVES: u64 = 64;

/// A bit of [`Inner::news`]: peers are newly lost.
const LOSSES: u8 = 1;

/// A bit of [`Inner::news`]: somebody looks from outside, and the engine's counters are to be shown.
const LOOK: u8 = 2;

/// Messages that are heard before news are, at most.
const HEARD_MAX: u32 = 1000;

/// Runs the handler that a delivery names; the inbox holds its message.
pub(crate) type RunHandler = Box<dyn Fn(&Arc<Inner>, Delivery, &Inbox) + Send + Sync>;

/// A value that this rank has published in the directory.
pub(crate) struct Published {
    /// The entry that points to the value: at this offset of that rank's heap.
    pub(crate) keeper: Rank,
    pub(crate) entry: u64,
    /// Keeps the value's block in this rank's heap.
    pub(crate) _block: Block,
}

/// One process's node.
pub(crate) struct Inner {
    pub(crate) peers: Arc<Peers>,
    pub(crate) heap: Arc<HeapState>,
    run_handler: RunHandler,
    pub(crate) tallies: Tallies,
    /// What this rank has published in the directory, by name.
    pub(crate) published: Mutex<HashMap<String, Published>>,
    /// Held for nanoseconds, and taken for every message, nearly always by the same thread.
    engine: BiasedLock<Engine>,
    /// Where messages arrive. Whoever holds it polls, and runs the handlers.
    inbox: BiasedLock<Inbox>,
    bell: Bell<Words>,
    sleepers: Arc<AtomicU32>,
    spin: Duration,
    epoch: Instant,
    /// Peers that are newly lost, for whoever polls next to tell the engine.
    losses: Mutex<Vec<Rank>>,
    /// What the watching thread has for whoever polls next: [`LOSSES`], [`LOOK`] or both. One word for all of it, so that
    /// the polls on which all depends look at one only.
    news: AtomicU8,
    /// Messages heard since there are news.
    heard: AtomicU32,
    /// Whether anybody has ever looked at this node from outside.
    pub(crate) watched: AtomicBool,
    /// Tasks that wait for an event.
    wakers: Mutex<Vec<Waker>>,
    any_wakers: AtomicBool,
    /// Buffers of operations whose events were dropped, kept until the operations end.
    orphans: Mutex<Vec<(OpId, Box<dyn Any + Send>)>>,
    any_orphans: AtomicBool,
    /// The first failure of an operation that ended at once and whose event was dropped.
    failure: Mutex<Option<Error>>,
    any_failure: AtomicBool,
    pub(crate) closing: AtomicBool,
    pub(crate) attendant: Attendant,
    /// A word whose address and value peers know, to find out whether they reach this process's private memory.
    _nonce: Box<u64>,
}

/// The parts of a new [`Inner`].
pub(crate) struct Parts {
    pub(crate) peers: Arc<Peers>,
    pub(crate) heap: Arc<HeapState>,
    pub(crate) run_handler: RunHandler,
    pub(crate) engine: Engine,
    pub(crate) sleepers: Arc<AtomicU32>,
    pub(crate) spin: Duration,
    pub(crate) nonce: Box<u64>,
    /// Whether the node may have a progress thread.
    pub(crate) may_attend: bool,
}

/// What one attempt at progress came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Something moved.
    Moved,
    /// There was nothing to do.
    Idle,
    /// Another thread is at it.
    Taken,
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Inner {
        Inner {
            bell: parts.peers.own().control.bell(),
            peers: parts.peers,
            heap: parts.heap,
            run_handler: parts.run_handler,
            tallies: Tallies::new(),
            published: Mutex::default(),
            engine: BiasedLock::new(parts.engine),
            inbox: BiasedLock::new(Inbox::default()),
            sleepers: parts.sleepers,
            spin: parts.spin,
            epoch: Instant::now(),
            losses: Mutex::new(Vec::new()),
            news: AtomicU8::new(0),
            heard: AtomicU32::new(0),
            watched: AtomicBool::new(false),
            wakers: Mutex::new(Vec::new()),
            any_wakers: AtomicBool::new(false),
            orphans: Mutex::new(Vec::new()),
            any_orphans: AtomicBool::new(false),
            failure: Mutex::default(),
            any_failure: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            attendant: Attendant::new(parts.may_attend),
            _nonce: parts.nonce,
        }
    }

    #[inline]
    pub(crate) fn engine(&self) -> BiasedGuard<'_, Engine> {
        self.engine.lock()
    }

    /// A point in time as the engine counts it.
    pub(crate) fn nanos(&self, at: Instant) -> Nanos {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Refuses a call that may wait while a handler runs on this thread.
    #[inline]
    pub(crate) fn may_wait(&self, call: &'static str) -> Result<(), Error> {
        handler_scope::may_wait(call)
    }

    /// Polls at most `polls` times, until something moves; runs the handler if an Active Message came.
    #[inline(always)]
    pub(crate) fn progress(self: &Arc<Self>, polls: u32) -> Progress {
        let Some(mut inbox) = self.inbox.try_lock() else { return Progress::Taken };
        match self.poll_engine(&mut inbox, polls) {
            Polled::Idle => return Progress::Idle,
            Polled::Progressed => {}
            Polled::Deliver(delivery) => {
                let _scope = HandlerScope::enter();
                (self.run_handler)(self, delivery, &inbox);
            }
        }
        drop(inbox);
        self.after_progress();
        Progress::Moved
    }

    #[inline(always)]
    fn poll_engine(&self, inbox: &mut Inbox, polls: u32) -> Polled {
        let mut engine = self.engine();
        for left in (0..polls).rev() {
            match engine.poll(inbox) {
                // What a peer sent before it was lost is heard before the loss is told.
                Polled::Idle if self.news.load(Ordering::Acquire) != 0 => {
                    return if self.hear_news(&mut engine) { Polled::Progressed } else { Polled::Idle };
                }
                Polled::Idle if left == 0 => break,
                Polled::Idle => engine.transport().linger(LOOKS),
                moved => {
                    // Others may have so much to say that it never gets quiet.
                    if self.news.load(Ordering::Relaxed) != 0
                        && self.heard.fetch_add(1, Ordering::Relaxed) >= HEARD_MAX
                    {
                        self.hear_news(&mut engine);
                    }
                    return moved;
                }
            }
        }
        Polled::Idle
    }

    /// Does what the watching thread asked for. Whether that may have ended what somebody waits for.
    #[cold]
    fn hear_news(&self, engine: &mut Engine) -> bool {
        let news = self.news.swap(0, Ordering::AcqRel);
        self.heard.store(0, Ordering::Relaxed);
        if news & LOOK != 0 {
            self.show_engine(engine);
        }
        if news & LOSSES != 0 {
            for rank in lock(&self.losses).drain(..) {
                engine.lose(rank);
            }
        }
        news & LOSSES != 0
    }

    /// Lets go on whoever waited for what has just moved.
    #[inline(always)]
    fn after_progress(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.bell.poke();
        }
        if self.any_wakers.load(Ordering::Acquire) {
            self.wake_tasks();
        }
        if self.any_orphans.load(Ordering::Acquire) {
            self.bury_orphans();
        }
    }

    #[cold]
    fn wake_tasks(&self) {
        self.any_wakers.store(false, Ordering::Release);
        for waker in std::mem::take(&mut *lock(&self.wakers)) {
            waker.wake();
        }
    }

    #[cold]
    fn bury_orphans(&self) {
        let engine = self.engine();
        let mut orphans = lock(&self.orphans);
        // An operation that nobody asks about leaves the table when it ends.
        orphans.retain(|(op, _)| !engine.is_locally_done(*op));
        self.any_orphans.store(!orphans.is_empty(), Ordering::Release);
    }

    /// Keeps a buffer until the operation that uses it has ended.
    pub(crate) fn keep(&self, op: OpId, buffer: Box<dyn Any + Send>) {
        lock(&self.orphans).push((op, buffer));
        self.any_orphans.store(true, Ordering::Release);
    }

    /// Keeps a failure that nobody has looked at for the next `quiet`.
    pub(crate) fn note_failure(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
        self.any_failure.store(true, Ordering::Release);
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        if self.any_failure.load(Ordering::Acquire) && self.any_failure.swap(false, Ordering::AcqRel) {
            lock(&self.failure).take()
        } else {
            None
        }
    }

    /// Wakes the task at the next progress that moves anything.
    pub(crate) fn wake_later(&self, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        self.any_wakers.store(true, Ordering::Release);
    }

    /// Takes note of what the launcher says. Called by the thread that watches, which must not wait for the engine:
    /// whoever holds it may be waiting for that very thread.
    pub(crate) fn on_notice(self: &Arc<Self>, notice: &Notice) {
        let own = self.peers.own();
        let gone: Vec<Rank> = match notice {
            Notice::Lost { rank, how } => {
                tracing::info!(peer = rank, %how, "peer lost");
                vec![*rank]
            }
            Notice::Serve => {
                if let Err(error) = self.attend() {
                    tracing::warn!(%error, "no progress thread: some peers wait while this process computes");
                }
                return;
            }
            Notice::Look => {
                self.watched.store(true, Ordering::Relaxed);
                self.show_direct();
                self.news.fetch_or(LOOK, Ordering::AcqRel);
                return self.wake();
            }
            Notice::BrokerGone => (0..own.size).filter(|rank| *rank != own.rank).collect(),
        };
        let news: Vec<Rank> = gone.into_iter().filter(|rank| self.peers.lose(*rank)).collect();
        if !news.is_empty() {
            lock(&self.losses).extend(news);
            self.news.fetch_or(LOSSES, Ordering::AcqRel);
            self.wake();
        }
    }

    /// Wakes every thread that waits, so that it looks again at what it waits for.
    pub(crate) fn wake(&self) {
        self.bell.poke();
        self.wake_tasks();
    }

    /// Makes progress until `done` gives something or `timeout` has passed (then `None`).
    pub(crate) fn wait<R>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.wait_napping(timeout, SLEEP_MAX, done)
    }

    /// As [`Inner::wait`], for what nothing announces: no sleep is longer than a nap.
    pub(crate) fn wait_for_room<R>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.wait_napping(timeout, NAP, done)
    }

    /// Starts the progress thread, if the node may have one.
    pub(crate) fn attend(self: &Arc<Self>) -> std::io::Result<()> {
        let inner = Arc::clone(self);
        self.attendant.start(move || inner.wait_asleep(|| inner.closing.load(Ordering::SeqCst).then_some(())))
    }

    /// Makes progress without ever polling in vain, until `done`.
    fn wait_asleep(self: &Arc<Self>, mut done: impl FnMut() -> Option<()>) {
        while done().is_none() {
            let progress = self.progress(1);
            if progress != Progress::Moved {
                self.sleep(Instant::now(), SLEEP_MAX, progress == Progress::Taken, &mut done);
            }
        }
    }

    #[inline]
    fn wait_napping<R>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        sleep_max: Duration,
        mut done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        // Without a core to spare, polling in vain only keeps the awaited from running.
        let polls = if self.spin.is_zero() { 1 } else { POLLS };
        let mut patience: Option<Patience> = None;
        let mut moves = 0u64;
        loop {
            if let Some(result) = done() {
                return Some(result);
            }
            let progress = self.progress(polls);
            if progress == Progress::Moved {
                if let Some(patience) = &mut patience {
                    patience.polls_until = None;
                }
                moves += 1;
                if moves.is_multiple_of(MOVES) {
                    let now = Instant::now();
                    if patience.get_or_insert_with(|| Patience::new(now, timeout, self.spin)).is_over(now) {
                        return done();
                    }
                }
                continue;
            }
            // The clock is read only once there is nothing better to do.
            let now = Instant::now();
            let patience = patience.get_or_insert_with(|| Patience::new(now, timeout, self.spin));
            match patience.next(now) {
                Next::Poll => {}
                Next::GiveUp => return done(),
                Next::Sleep(left) => {
                    let taken = progress == Progress::Taken;
                    if let Some(result) = self.sleep(now, left.min(sleep_max), taken, &mut done) {
                        return Some(result);
                    }
                }
            }
        }
    }

    /// Sleeps until the bell rings, unless there is something to do or `done` gives something after the announcement.
    #[inline(never)]
    fn sleep<R>(
        &self,
        now: Instant,
        at_most: Duration,
        taken: bool,
        done: &mut impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let _asleep = Asleep::new(&self.sleepers);
        let ticket = self.bell.announce();
        let next_deadline = self.expire(now);
        let cold = self.engine().transport().turn_cold();
        let work = cold == Cold::Work || self.news.load(Ordering::Acquire) != 0;
        // Work that another thread is at is no reason to stay awake; but it may leave without doing all of it.
        let at_most = match cold {
            _ if work && !taken => return None,
            Cold::Work | Cold::Blocked => at_most.min(NAP),
            Cold::Quiet if work => at_most.min(NAP),
            Cold::Quiet => at_most.min(next_deadline),
        };
        let result = done();
        if result.is_none() {
            ticket.sleep(Some(at_most));
        }
        result
    }

    /// Ends the operations whose deadlines have passed, and lets go on who waits for them. Returns the time until the
    /// next deadline.
    fn expire(&self, now: Instant) -> Duration {
        let now = self.nanos(now);
        let (ended, next) = {
            let mut engine = self.engine();
            let before = engine.in_flight();
            let next = engine.expire(now);
            (engine.in_flight() != before, next)
        };
        if ended {
            self.wake();
        }
        next.map_or(Duration::MAX, |at| Duration::from_nanos(at.saturating_sub(now)))
    }

    /// Makes progress at most once, for callers that poll and never wait.
    pub(crate) fn poll_once(self: &Arc<Self>) -> Progress {
        // Twice, with looks in between: callers do this in loops, and polling without a pause takes the lines of
        // memory away from whoever writes them.
        let progress = self.progress(if self.spin.is_zero() { 1 } else { 2 });
        if progress == Progress::Idle {
            self.expire(Instant::now());
        }
        progress
    }
}

/// How long a wait goes on polling, sleeping and waiting at all.
struct Patience {
    deadline: Option<Instant>,
    spin: Duration,
    /// Set at the first poll in vain since something moved.
    polls_until: Option<Instant>,
}

/// What a wait does next.
enum Next {
    Poll,
    Sleep(Duration),
    GiveUp,
}

impl Patience {
    fn new(now: Instant, timeout: Option<Duration>, spin: Duration) -> Patience {
        Patience { deadline: timeout.and_then(|timeout| now.checked_add(timeout)), spin, polls_until: None }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn next(&mut self, now: Instant) -> Next {
        let polls_until = *self.polls_until.get_or_insert(now.checked_add(self.spin).unwrap_or(now));
        match self.deadline {
            Some(deadline) if deadline <= now => Next::GiveUp,
            _ if now < polls_until => Next::Poll,
            deadline => Next::Sleep(deadline.map_or(Duration::MAX, |deadline| deadline - now)),
        }
    }
}

/// A thread that sleeps or is about to, counted while this lives.
struct Asleep<'a>(&'a AtomicU32);

impl<'a> Asleep<'a> {
    fn new(sleepers: &'a AtomicU32) -> Asleep<'a> {
        sleepers.fetch_add(1, Ordering::SeqCst);
        Asleep(sleepers)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

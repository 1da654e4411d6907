//! Waiting: polling while that pays, then sleeping until the bell or the network rings. And the progress
//! thread, which does so for the program.
//!
//! It *attends* where peers are known to depend on it: it sleeps until something comes, and then makes
//! progress, whatever the program does. Else it *stands by*, from when on messages may come that somebody
//! waits for: the node has handlers, or has begun a collective. It looks now and then whether the program
//! polls, or waits in calls that do. While the program does, this thread keeps off the doorbell, so that no
//! message wakes two threads and rings stay hot. Once it has not for a while, this thread sleeps on the
//! doorbell. It leaves what comes to the program for as long again. Then this thread serves, until the
//! program polls.
//!
//! Polls and sends pay nothing for that: what it looks at they keep anyway. It takes no lock while the
//! program polls, and then borrows the engine, which leaves its usual holder the privilege.

use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use vm::Wake;

use super::{Engine, GRACE, LOSSES, NodeCore, Progress};
use crate::base::interrupt::Asking;
use crate::runtime::progress_thread::Asleep;
use crate::runtime::wait_policy::{Next, VainPolls, WaitPolicy};
use crate::transport::contract::{NodeTransport as _, Rest};
use crate::transport::net_wakeup::Waiting;

/// No sleep is longer, whatever is waited for: what a hostile peer hides from the doorbell is found then.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// A sleep's length where nothing will ring: a full lane is drained by the peer in its own time.
const NAP: Duration = Duration::from_micros(100);

/// The bytes that waits expect a network to carry while they poll for a copy. A fast one has carried it by
/// then, and on a slow one they have polled for a small part of the time.
const BYTES_PER_NS: u64 = 1;

/// Looks for what is waited for, at most, between two polls for whatever else there may be.
const LOOKS: u32 = 8;

/// Messages that a wait takes between two looks at the clock, at most: a peer may have so much to say that
/// there is always something better to do.
const MOVES: u64 = 64;

/// Messages between two looks at deadlines, whoever takes them.
const MOVES_UNTIMED: u32 = 256;

/// How often the progress thread looks whether the program polls.
const LOOK: Duration = Duration::from_millis(5);

/// Looks in turn that find that it does not, before the progress thread takes what there is: a hundredth of a
/// second.
const UNPOLLED_LOOKS: u32 = 2;

/// Sleeps in turn that end for nothing that is to be done, after which the thread stands by again: others
/// ring for signals, too.
const VAIN_MAX: u32 = 64;

/// Whether a wait looks at the clock after so many messages: seldom, as most are short, and more often at
/// first, as the handlers of some are long. Not after the first, which mostly is what the wait is for.
const fn is_look_due(moves: u64) -> bool {
    moves.is_multiple_of(MOVES) || (moves > 1 && moves.is_power_of_two())
}

impl NodeCore {
    /// Makes progress until `done` gives something, or `timeout` has passed, the node has closed or the
    /// program's hook has ended the wait (then `None`, and the caller says why).
    pub(crate) fn wait<R>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.wait_napping(timeout, SLEEP_MAX, done)
    }

    /// As [`NodeCore::wait`], for what nothing announces: no sleep is longer than a nap.
    pub(crate) fn wait_for_room<R>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.wait_napping(timeout, NAP, done)
    }

    /// Makes progress until `done` gives something, for as long as a wait of that policy polls before it
    /// sleeps (then `None`). `done` may look for what it is about by itself, and is asked more often than
    /// there are polls.
    #[inline]
    pub(crate) fn poll_for<R>(
        self: &Arc<Self>,
        wait_policy: &mut WaitPolicy,
        mut done: impl FnMut(&mut Engine) -> Option<R>,
    ) -> Option<R> {
        let looks = if self.polls() { LOOKS } else { 1 };
        let mut look = || {
            let mut engine = self.engine();
            for _ in 0..looks {
                if let Some(result) = done(&mut engine) {
                    return Some(result);
                }
                // Once between looks: without it they take the line away from whoever is writing it, and each
                // more is some 20 ns that the word may have been there.
                spin_loop();
            }
            None
        };
        let mut moves = 0;
        while moves < MOVES {
            if let Some(result) = look() {
                return Some(result);
            }
            if self.progress(self.waking.polling.polls) == Progress::Moved {
                moves += 1;
                self.note_moved();
                if is_look_due(moves) && wait_policy.is_over() {
                    break;
                }
            } else if !matches!(wait_policy.next(Instant::now(), moves, self.waking.polling.spin), Next::Poll)
            {
                break;
            }
        }
        look()
    }

    /// Makes progress at most once, for callers that poll and never wait. Where they do nothing else, and
    /// find nothing, it gives the processor away now and then: before it polls, so that what it says is so
    /// when it returns.
    pub(crate) fn poll_once(self: &Arc<Self>) -> Progress {
        if self.waking.polling.vain.is_yield_due() {
            give_processor_away(&self.waking.polling.vain);
        }
        // Twice, with looks in between: callers do this in loops, and polling without a pause takes the lines
        // of memory away from whoever writes them.
        let progress = self.progress(if self.waking.polling.spin.is_zero() { 1 } else { 2 });
        match progress {
            Progress::Idle => {
                let now = Instant::now();
                self.expire(now, true);
                self.note(&self.waking.polling.vain, now);
            }
            Progress::Moved => self.note_moved(),
            Progress::Taken => self.note(&self.waking.polling.vain, Instant::now()),
        }
        progress
    }

    /// A call that never waits, and polls nothing, cannot be done now: its caller may try it again and again,
    /// on a core that others need. Nobody may hold the engine here: another thread may need it to go on.
    #[cold]
    pub(crate) fn tried_in_vain(&self) {
        self.note(&self.waking.polling.tries, Instant::now());
        if self.waking.polling.tries.is_yield_due() {
            give_processor_away(&self.waking.polling.tries);
        }
    }

    #[inline]
    fn note(&self, vain: &VainPolls, now: Instant) {
        vain.note(now, self.waking.moved.load(Ordering::Relaxed), !self.polls());
    }

    /// Makes progress without ever polling in vain, until `done`.
    pub(super) fn wait_asleep(self: &Arc<Self>, mut done: impl FnMut() -> Option<()>) {
        let mut quiet = WaitPolicy::default();
        while done().is_none() {
            if self.waking.net_wakeup.get().is_some_and(|net_wakeup| net_wakeup.park()) {
                continue;
            }
            let progress = self.progress(1);
            if progress == Progress::Moved {
                self.note_moved();
                quiet = WaitPolicy::default();
                continue;
            }
            let now = Instant::now();
            // Tasks may wait.
            if quiet.turns_long(now) {
                self.tell_of_unattended();
            }
            self.sleep(now, SLEEP_MAX, progress == Progress::Taken, &mut done);
        }
    }

    #[inline]
    fn wait_napping<R>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        sleep_max: Duration,
        mut done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let mut wait_policy = WaitPolicy::new(timeout);
        let (mut moves, mut asking) = (0u64, Asking::begin());
        let _waiting: Option<Waiting<'_>> = self.waking.net_wakeup.get().map(|net_wakeup| net_wakeup.wait());
        loop {
            if let Some(result) = done() {
                return Some(result);
            }
            if self.has_closed() || asking.ends() {
                return None;
            }
            let progress = self.progress(self.waking.polling.polls);
            if progress == Progress::Moved {
                moves += 1;
                self.note_moved();
                if is_look_due(moves) && wait_policy.is_over() {
                    return done();
                }
                continue;
            }
            // The clock is read only once there is nothing better to do.
            let now = Instant::now();
            match wait_policy.next(now, moves, self.waking.polling.spin) {
                Next::Poll => {}
                Next::GiveUp => return done(),
                Next::Sleep(_)
                    if progress == Progress::Idle
                        && self.polls_longer()
                        && wait_policy.poll_longer(now, || self.on_the_way()) => {}
                Next::Sleep(left) => {
                    if wait_policy.turns_long(now) {
                        self.tell_of_unattended();
                    }
                    let taken = progress == Progress::Taken;
                    if let Some(result) = self.sleep(now, left.min(sleep_max), taken, &mut done) {
                        return Some(result);
                    }
                }
            }
        }
    }

    /// A call has waited for long: says in the log for which peers that may be of no use.
    #[cold]
    pub(super) fn tell_of_unattended(&self) {
        let awaited = self.engine().started(None).awaited();
        self.peers.unheard_by().chain(awaited).for_each(|peer| self.peers.tell_unattended(peer));
    }

    /// Whether a wait may poll for longer than usual.
    fn polls_longer(&self) -> bool {
        !self.waking.polling.spin.is_zero() && self.waking.net_wakeup.get().is_some()
    }

    /// How long what the network has of this node's copies may take to go over it.
    #[cold]
    fn on_the_way(&self) -> Duration {
        let bytes = self.engine().transport().bytes_on_the_way();
        Duration::from_nanos(bytes / BYTES_PER_NS).min(SLEEP_MAX)
    }

    /// Sleeps until the bell rings, unless there is something to do or `done` gives something after the
    /// announcement.
    #[inline(never)]
    pub(super) fn sleep<R>(
        &self,
        now: Instant,
        at_most: Duration,
        taken: bool,
        done: &mut impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let _asleep = Asleep::new(&self.waking.sleepers);
        let ticket = self.waking.bell.announce();
        let next_deadline = self.expire(now, !taken);
        let rest = self.engine().transport().prepare_sleep();
        let (notices, at_most) = match self.notes.pending.load(Ordering::Acquire) {
            LOSSES if !self.losses_are_due(now) => (false, at_most.min(GRACE / 4)),
            notices => (notices != 0, at_most),
        };
        let work = rest == Rest::Poll || notices;
        // Work that another thread is at is no reason to stay awake; but it may leave without doing all of
        // it.
        let at_most = match rest {
            _ if work && !taken => return None,
            Rest::Sleep if !work => at_most.min(next_deadline),
            _ => at_most.min(NAP),
        };
        let result = done();
        match self.waking.net_wakeup.get() {
            _ if result.is_some() => {}
            Some(net_wakeup) => {
                if net_wakeup.sleep(ticket, at_most) && self.waking.sleepers.load(Ordering::SeqCst) > 1 {
                    self.waking.bell.poke();
                }
            }
            None => {
                ticket.sleep(Some(at_most));
            }
        }
        result
    }

    /// Deadlines are looked at when nothing moves. Under constant traffic something always does, so this
    /// looks at them every [`MOVES_UNTIMED`] moves.
    #[inline]
    pub(super) fn note_moved(&self) {
        // Several threads may count one move: how many it are exactly does not matter.
        let moved = self.waking.moved.load(Ordering::Relaxed).wrapping_add(1);
        self.waking.moved.store(moved, Ordering::Relaxed);
        if moved.is_multiple_of(MOVES_UNTIMED) {
            self.expire_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn expire_now(&self) {
        self.expire(Instant::now(), true);
    }

    /// Ends the operations whose deadlines have passed, and lets go on who waits for them: after a poll, or
    /// while another thread is at that. Returns the time until the next deadline.
    pub(super) fn expire(&self, now: Instant, polled: bool) -> Duration {
        let now = self.nanos(now);
        let (ended, next) = {
            let mut engine = self.engine();
            // With nobody to be told it does not matter what ends, and to count costs more than the rest of
            // this. A thread that is about to sleep counts as asleep first, and then takes the engine to look
            // for itself.
            let heeded = self.waking.sleepers.load(Ordering::SeqCst) > 0
                || self.due.flags.load(Ordering::Acquire) != 0;
            // One that settles with the loss of a peer has left those in flight before.
            let under_way = |engine: &Engine| {
                let in_flight = || engine.in_flight_of_all() + engine.collectives_in_flight();
                heeded.then(|| (in_flight(), engine.settling()))
            };
            let before = under_way(&engine);
            let next = if polled { engine.expire(now) } else { engine.expire_unpolled(now) };
            (under_way(&engine) != before, next)
        };
        if ended {
            self.look_after_followed();
            self.wake_for_ended();
        }
        next.map_or(Duration::MAX, |at| Duration::from_nanos(at.saturating_sub(now)))
    }
}

/// The progress thread.
impl NodeCore {
    /// Starts the progress thread, if the node may have one, or has it serve from now on whatever the program
    /// does.
    pub(crate) fn attend(self: &Arc<Self>) -> io::Result<()> {
        let attended = self.threads.progress.set_attending();
        self.start_progress_thread()?;
        if !attended {
            self.threads.progress.unpark();
            self.wake_threads();
        }
        Ok(())
    }

    /// As [`NodeCore::attend`], where the node has handlers: those who come from without may wait for their
    /// answers, and need not know what this process does meanwhile.
    pub(crate) fn attend_to_callers(self: &Arc<Self>) -> io::Result<()> {
        if self.threads.may_attend && !self.handlers.is_empty() { self.attend() } else { Ok(()) }
    }

    /// From now on somebody may wait for what this node's handlers do, or for its part in a collective: the
    /// progress thread stands by, if the node may have one. Where the system gives none, all goes well as
    /// long as the program polls.
    #[inline]
    pub(crate) fn stand_by(self: &Arc<Self>) {
        if !self.threads.progress.has_been_asked()
            && let Err(error) = self.start_progress_thread()
        {
            tracing::warn!(%error, "no progress thread: peers wait while this process makes no progress");
        }
    }

    /// As [`NodeCore::stand_by`], where there are others in the job.
    #[inline]
    pub(crate) fn stand_by_for_team(self: &Arc<Self>) {
        if self.peers.own().size > 1 {
            self.stand_by();
        }
    }

    #[cold]
    fn start_progress_thread(self: &Arc<Self>) -> io::Result<()> {
        let core = Arc::clone(self);
        self.threads.progress.start("standpipe-progress", move || core.look_after())
    }

    /// All that the progress thread does.
    fn look_after(self: &Arc<Self>) {
        let is_closing = || self.threads.closing.load(Ordering::SeqCst);
        let (mut seen, mut unpolled) = (self.polls_seen(), 0);
        while !is_closing() {
            if self.threads.progress.attends() {
                return self.wait_asleep(|| is_closing().then_some(()));
            }
            park_timeout(LOOK);
            unpolled = if self.has_polled(&mut seen) { 0 } else { unpolled + 1 };
            if unpolled >= UNPOLLED_LOOKS && !is_closing() {
                if self.sleep_unpolled() {
                    self.serve();
                }
                (seen, unpolled) = (self.polls_seen(), 0);
            }
        }
    }

    /// A number that changes with what threads of this process poll.
    fn polls_seen(&self) -> (u32, u64) {
        (self.waking.moved.load(Ordering::Relaxed), self.waking.polling.vain.counted())
    }

    /// Whether other threads have polled since that was seen, or sleep in a call that goes on with it.
    fn has_polled(&self, seen: &mut (u32, u64)) -> bool {
        let before = std::mem::replace(seen, self.polls_seen());
        *seen != before || self.waking.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Nobody polls: sleeps until the doorbell is rung, if nothing waits yet. Whether something does that has
    /// waited for so long that the program has left it alone.
    fn sleep_unpolled(&self) -> bool {
        let asleep = Asleep::new(&self.waking.sleepers);
        loop {
            let seen = self.polls_seen();
            let ticket = self.waking.bell.announce();
            // Where another thread holds the engine, it polls.
            let rest = self.lender.engine.try_borrow(|engine| match engine.has_work() {
                true => Rest::Poll,
                false => engine.transport().prepare_sleep(),
            });
            let Some(rest) = rest else { return false };
            let is_over = self.threads.closing.load(Ordering::SeqCst) || self.threads.progress.attends();
            if rest != Rest::Sleep || is_over {
                return !is_over;
            }
            let is_rung = ticket.sleep(Some(SLEEP_MAX)) != Wake::TimedOut;
            if is_rung || self.polls_seen() != seen || asleep.has_company() {
                // It is the program's turn, also where it was rung for nothing that this thread can do.
                return false;
            }
        }
    }

    /// Makes progress as long as nobody else does.
    fn serve(self: &Arc<Self>) {
        let (mut seen, mut vain) = (self.polls_seen(), 0);
        let is_over = || self.threads.closing.load(Ordering::SeqCst) || self.threads.progress.attends();
        while !is_over() && !self.has_polled(&mut seen) && vain < VAIN_MAX {
            match self.progress(1) {
                Progress::Moved => {
                    self.note_moved();
                    (seen, vain) = (self.polls_seen(), 0);
                }
                Progress::Idle => {
                    vain += 1;
                    self.sleep(Instant::now(), SLEEP_MAX, false, &mut || is_over().then_some(()));
                }
                Progress::Taken => return,
            }
        }
    }
}

#[cold]
#[inline(never)]
fn give_processor_away(vain: &VainPolls) {
    std::thread::yield_now();
    vain.is_back(Instant::now());
}

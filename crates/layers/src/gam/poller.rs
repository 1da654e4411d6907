//! Polling and waiting: where handlers run, and how a wait ends that nobody ends any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use standpipe::{Error, Node, Rank};

use super::credits::CREDITS;
use super::error::GamError;
use super::handlers::{Shared, bump, id};
use super::message::{Arguments, Kind};
use super::pending::{AllPending, Credit, End, Pending, State};
use super::program::Program;

/// Polls in a row that found nothing, after which a wait sleeps for a while.
const IDLE_POLLS: u64 = 2_000;

/// Polls in a row that found nothing, after each of which a poll looks whether a process is gone.
const LOSSES_EVERY: u64 = 1_024;

/// Polls in a row that found nothing, after each of which a poll gives back what it owes. So few that a
/// process that goes on to compute has given it back, and more than there are between two long stores.
const OWED_EVERY: u64 = 256;

/// Polls, after each of which one looks whether something has failed that nobody waited for.
const FAILURES_EVERY: u64 = 64;

/// Calls that send, of which one polls: a poll that finds nothing costs more than a message.
const SEND_POLLS: u64 = 64;

/// So many requests are without their reply when a call that sends polls. A receiver that keeps up has given
/// back half of them by then.
const OUT_POLLS: u32 = CREDITS * 3 / 4;

/// Polls that end with the one message that they found, after one that looked for another in vain.
const SINGLE_POLLS: u64 = 32;

/// How long such a sleep lasts at most, where no message ends it.
pub(super) const NAP: Duration = Duration::from_millis(1);

/// Messages that one poll handles at most.
const POLLED_MAX: usize = 64;

/// Makes progress for the layer, and ends what it has started.
pub(super) struct Poller<P> {
    node: Node,
    shared: Arc<Shared<P>>,
    pending: AllPending,
    /// Polls in a row that found nothing.
    idle: AtomicU64,
    polls: AtomicU64,
    /// Calls that have sent something.
    sends: AtomicU64,
    /// How many polls are to look for one message only.
    single: AtomicU64,
}

impl<P: Program + 'static> Poller<P> {
    pub(super) fn new(node: Node, shared: Arc<Shared<P>>) -> Poller<P> {
        let (pending, zero) = (AllPending::default(), || AtomicU64::new(0));
        let (idle, polls, sends, single) = (zero(), zero(), zero(), zero());
        Poller { node, shared, pending, idle, polls, sends, single }
    }

    /// See [`Gam::poll`](super::Gam::poll).
    #[inline]
    pub(super) fn poll(&self) -> Result<(), GamError> {
        if self.shared.may_call("a poll").is_err() {
            return Ok(());
        }
        self.advance().map(|_| ())
    }

    /// See [`Gam::poll_idle`](super::Gam::poll_idle).
    pub(super) fn poll_idle(&self) -> Result<(), GamError> {
        self.shared.may_call("a wait")?;
        if self.advance()? || self.idle.load(Ordering::Relaxed) < IDLE_POLLS {
            return Ok(());
        }
        self.nap(NAP)
    }

    /// See [`Gam::sleep`](super::Gam::sleep).
    pub(super) fn sleep(&self, time: Duration) -> Result<(), GamError> {
        self.shared.may_call("am_sleep")?;
        let end = Instant::now() + time;
        loop {
            self.advance()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.nap(left.min(NAP))?;
        }
    }

    /// Waits until nothing of this process's is under way, which leaves then: other processes keep no reply
    /// back any more.
    pub(super) fn settle(&self) -> Result<(), GamError> {
        let owing: Vec<Rank> = self.shared.owing().collect();
        owing.into_iter().try_for_each(|dest| self.node.request(dest, id(Kind::Leave), [0; 4]))?;
        while !(self.pending.is_empty() && self.shared.owing().next().is_none()) {
            self.poll_idle()?;
        }
        Ok(())
    }

    /// Sends the replies that this process keeps back, as it may come to no poll for long.
    pub(super) fn give_back_owed(&self) {
        self.shared.give_back_owed(&self.node);
    }

    /// Polls now and then, before what sends.
    #[inline]
    pub(super) fn poll_to_send(&self, dest: Rank) -> Result<(), GamError> {
        let is_turn = bump(&self.sends).is_multiple_of(SEND_POLLS);
        if is_turn || self.shared.credits(dest).are_out() == OUT_POLLS { self.poll() } else { Ok(()) }
    }

    /// Polls now and then, and takes a credit, for which it waits.
    #[inline]
    pub(super) fn await_credit(&self, dest: Rank) -> Result<(), GamError> {
        self.poll_to_send(dest)?;
        let credits = self.shared.credits(dest);
        while !credits.take() {
            // Replies that have come cost a poll, and no wait.
            if self.advance()? && credits.has_one() {
                continue;
            }
            self.node.wait_until(|| {
                // First, as it makes progress: a reply's handler may give the credit back in it.
                self.pending.has_ended()
                    || credits.has_one()
                    || self.node.is_lost(dest)
                    || self.node.has_failed()
            })?;
            self.advance()?;
            self.look_for_failures()?;
            if !credits.has_one() && self.node.is_lost(dest) {
                return Err(GamError::Lost { peer: dest });
            }
        }
        Ok(())
    }

    /// Keeps what is under way, or has something to run in a later poll. What has failed already fails here.
    pub(super) fn hold(&self, pending: Pending) -> Result<(), GamError> {
        let Pending { state, dest, end, credit } = pending;
        let state = match state.look() {
            Ok(state) => state,
            Err(error) => {
                if credit != Credit::None {
                    self.shared.give_credit_back(dest);
                }
                return Err(error.into());
            }
        };
        let is_settled = matches!(state, State::Over) && end.is_none();
        if !is_settled {
            self.pending.hold(Pending { state, dest, end, credit });
        }
        Ok(())
    }

    /// Ends what is over, in the order in which it was started: whether there was anything. Stops at the
    /// first that has failed; the next call goes on.
    #[inline]
    fn end_pending(&self) -> Result<bool, GamError> {
        let mut any = false;
        while let Some(Pending { state, dest, end, credit }) = self.pending.take_ended() {
            any = true;
            let result = state.result();
            if credit == Credit::AtEnd || credit == Credit::IfItFails && result.is_err() {
                self.shared.give_credit_back(dest);
            }
            result.map_err(GamError::late)?;
            if let Some(End { function, local, len, arg }) = end {
                self.shared.run_after(dest, function, Arguments::Memory { addr: local, len, arg });
            }
        }
        Ok(any)
    }

    /// Runs the functions of gets and stores that have ended, gives back what is owed, and tells of failures.
    /// For a wait that makes progress by itself.
    pub(super) fn look_after_started(&self) -> Result<(), GamError> {
        self.end_pending()?;
        self.give_back_owed();
        self.look_for_failures()
    }

    /// Makes progress, and ends what has ended: whether there was anything.
    #[inline]
    fn advance(&self) -> Result<bool, GamError> {
        let moved = self.node.progress() && self.drain();
        // Also where others keep this process busy: a requester may wait for them.
        if self.shared.has_unsent() {
            self.give_back_owed();
        }
        let ended = self.end_pending()?;
        if bump(&self.polls).is_multiple_of(FAILURES_EVERY) {
            self.look_for_failures()?;
        }
        if moved || ended {
            self.idle.store(0, Ordering::Relaxed);
            return Ok(true);
        }
        let idle = bump(&self.idle);
        if idle.is_multiple_of(OWED_EVERY) {
            self.give_back_owed();
        }
        if idle.is_multiple_of(LOSSES_EVERY) {
            self.look_for_losses()?;
        }
        Ok(false)
    }

    /// Handles more of what has come, after a message that was there. Looking in vain takes as long as a few
    /// messages: where they come one by one, it looks seldom.
    fn drain(&self) -> bool {
        let single = self.single.load(Ordering::Relaxed);
        if single > 0 {
            self.single.store(single - 1, Ordering::Relaxed);
            return true;
        }
        let mut moved = 1;
        while moved < POLLED_MAX && self.node.progress() {
            moved += 1;
        }
        if moved == 1 {
            self.single.store(SINGLE_POLLS, Ordering::Relaxed);
        }
        true
    }

    /// What has failed that nobody waited for, such as a request that its peer refused.
    pub(super) fn look_for_failures(&self) -> Result<(), GamError> {
        if let Some(error) = self.shared.take_failed() {
            return Err(GamError::late(error));
        }
        if !self.node.has_failed() {
            return Ok(());
        }
        match self.node.within(NAP).quiet() {
            // Something else is under way still: it is told of later.
            Err(Error::Timeout { .. } | Error::WaitTimeout { .. }) => Ok(()),
            told => told.map_err(GamError::late),
        }
    }

    /// A process that is gone ends a program whose processes rely on each other.
    #[cold]
    fn look_for_losses(&self) -> Result<(), GamError> {
        match self.node.lost_peers().first() {
            Some(peer) => Err(GamError::Lost { peer: *peer }),
            None => Ok(()),
        }
    }

    /// Sleeps, at most so long, until something comes.
    fn nap(&self, time: Duration) -> Result<(), GamError> {
        self.give_back_owed();
        self.look_for_losses()?;
        self.look_for_failures()?;
        let arrived = self.shared.arrived();
        // What makes progress comes first: messages may arrive in it.
        let woken = || self.pending.has_ended() || self.shared.arrived() != arrived || self.node.has_failed();
        match self.node.within(time).wait_until(woken) {
            Ok(()) | Err(Error::WaitTimeout { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

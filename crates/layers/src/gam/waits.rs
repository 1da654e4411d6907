//! Polling and waiting: where handlers run, and how a wait ends that nobody ends any more.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use standpipe::{Error, Rank};

use super::error::GamError;
use super::handlers::may_call;
use super::{Gam, Program};

/// Polls in a row that found nothing, after which a wait sleeps for a while.
const IDLE_POLLS: u64 = 2_000;

/// Polls in a row that found nothing, after each of which a poll looks whether a process is gone.
const LOSSES_EVERY: u64 = 1_024;

/// Polls, after each of which one looks whether something has failed that nobody waited for.
const FAILURES_EVERY: u64 = 64;

/// How long such a sleep lasts at most, where no message ends it.
const NAP: Duration = Duration::from_millis(1);

/// Messages that one poll handles at most.
const POLLED_MAX: usize = 64;

/// How long leaving may take, for each of the library's parts.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The same, for a process that leaves without the others.
const ABANDON_WITHIN: Duration = Duration::from_millis(100);

/// Polling, and what waits.
impl<P: Program + 'static> Gam<P> {
    /// Runs the handlers of what has come, and the functions of gets and stores that have ended (`am_poll`).
    /// In a handler it does nothing. Never waits.
    ///
    /// # Errors
    /// [`GamError::Lost`] where a process is gone; [`GamError::Failed`].
    pub fn poll(&self) -> Result<(), GamError> {
        if may_call("a poll").is_err() {
            return Ok(());
        }
        self.advance().map(|_| ())
    }

    /// As [`Gam::poll`], for a loop that waits for a handler: it sleeps a while where nothing has come for
    /// long, so that a process that waits leaves its processor to one that works.
    ///
    /// # Errors
    /// As for [`Gam::poll`]; [`GamError::InHandler`], as no other handler runs meanwhile.
    pub fn poll_idle(&self) -> Result<(), GamError> {
        may_call("a wait")?;
        if self.advance()? || self.idle.load(Ordering::Relaxed) < IDLE_POLLS {
            return Ok(());
        }
        self.nap(NAP)
    }

    /// Runs handlers for so long (`am_sleep`).
    ///
    /// # Errors
    /// As for [`Gam::poll`]; [`GamError::InHandler`].
    pub fn sleep(&self, time: Duration) -> Result<(), GamError> {
        may_call("am_sleep")?;
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

    /// Waits until all processes have called it, and runs handlers meanwhile (`gam_barrier`).
    ///
    /// # Errors
    /// [`GamError::Lost`]; [`GamError::InHandler`].
    pub fn barrier(&self) -> Result<(), GamError> {
        may_call("a barrier")?;
        Ok(self.team.barrier()?)
    }

    /// Leaves (`am_disable`): waits until all that this process has sent is handled and replied to, and until
    /// all processes come here, and closes the layer's part of the node.
    ///
    /// # Errors
    /// [`GamError::InHandler`], and the layer stays open. [`GamError::Lost`] and [`GamError::Failed`]: the
    /// layer is closed all the same, and the others find this process lost.
    pub fn close(&self) -> Result<(), GamError> {
        may_call("am_disable")?;
        let met = self.settle().and_then(|()| self.barrier());
        // What is left are messages to processes that have left, too.
        let _ = self.node.clone().close(LEAVE_WITHIN);
        met
    }

    /// Leaves without the others, which find this process lost: for a program that ends without
    /// [`Gam::close`]. Does nothing in a handler, where a node cannot be closed.
    pub fn abandon(&self) {
        let _ = self.node.clone().close(ABANDON_WITHIN);
    }

    /// Waits until nothing of this process's is under way.
    fn settle(&self) -> Result<(), GamError> {
        while !(self.pending.is_empty() && self.shared.owes_nothing()) {
            self.poll_idle()?;
        }
        Ok(())
    }

    /// Polls, and takes a credit, for which it waits.
    pub(super) fn await_credit(&self, dest: Rank) -> Result<(), GamError> {
        self.poll()?;
        while !self.shared.take_credit(dest) {
            self.node.wait_until(|| {
                self.shared.has_credit(dest)
                    || self.pending.has_ended()
                    || self.node.is_lost(dest)
                    || self.node.has_failed()
            })?;
            self.advance()?;
            self.look_for_failures()?;
            if !self.shared.has_credit(dest) && self.node.is_lost(dest) {
                return Err(GamError::Lost { peer: dest });
            }
        }
        Ok(())
    }

    /// Makes progress, and ends what has ended: whether there was anything.
    fn advance(&self) -> Result<bool, GamError> {
        let mut moved = 0;
        while moved < POLLED_MAX && self.node.progress() {
            moved += 1;
        }
        let ended = self.end_pending()?;
        if self.polls.fetch_add(1, Ordering::Relaxed) % FAILURES_EVERY == FAILURES_EVERY - 1 {
            self.look_for_failures()?;
        }
        if moved > 0 || ended {
            self.idle.store(0, Ordering::Relaxed);
            return Ok(true);
        }
        let idle = self.idle.fetch_add(1, Ordering::Relaxed);
        if idle % LOSSES_EVERY == LOSSES_EVERY - 1 {
            self.look_for_losses()?;
        }
        Ok(false)
    }

    /// What has failed that nobody waited for, such as a request that its peer refused.
    fn look_for_failures(&self) -> Result<(), GamError> {
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
        self.look_for_losses()?;
        self.look_for_failures()?;
        let arrived = self.shared.arrived();
        let woken = || self.shared.arrived() != arrived || self.pending.has_ended() || self.node.has_failed();
        match self.node.within(time).wait_until(woken) {
            Ok(()) | Err(Error::WaitTimeout { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

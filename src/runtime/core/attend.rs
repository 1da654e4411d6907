//! The progress thread: when it serves, and when it leaves that to the program.
//!
//! It *attends* where peers are known to depend on it: it sleeps until something comes, and then makes
//! progress, whatever the program does. Else, in a launched job, it *stands by*, from when on messages may
//! come that somebody waits for. It looks now and then whether the program polls, or waits in calls that do.
//! While the program does, this thread keeps off the doorbell, so that no message wakes two threads and rings
//! stay hot. Once it has not for a while, this thread sleeps on the doorbell; what comes is left to the program
//! for as long again, and then it serves, until the program polls again.
//!
//! Polls and sends pay nothing for that: what it looks at they keep anyway. It takes no lock while the
//! program polls, and then borrows the engine, which leaves its usual holder the privilege.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use vm::Wake;

use super::wait::SLEEP_MAX;
use super::{NodeCore, Progress};
use crate::runtime::progress_thread::Asleep;
use crate::transport::contract::{NodeTransport as _, Rest};

/// How often the progress thread looks whether the program polls.
const LOOK: Duration = Duration::from_millis(5);

/// Looks in turn that find that it does not, before the progress thread takes what there is: a hundredth of a
/// second.
const UNPOLLED_LOOKS: u32 = 2;

/// Sleeps in turn that end for nothing that is to be done, after which the thread stands by again: others
/// ring for signals, too.
const VAIN_MAX: u32 = 64;

impl NodeCore {
    /// Starts the progress thread, if the node may have one, or has it serve from now on whatever the program
    /// does.
    pub(crate) fn attend(self: &Arc<Self>) -> io::Result<()> {
        let attended = self.progress_thread.set_attending();
        self.start_progress_thread()?;
        if !attended {
            self.progress_thread.unpark();
            self.wake_threads();
        }
        Ok(())
    }

    /// As [`NodeCore::attend`], where the node has handlers: those who come from without may wait for their
    /// answers, and need not know what this process does meanwhile.
    pub(crate) fn attend_to_callers(self: &Arc<Self>) -> io::Result<()> {
        if self.may_attend && !self.handlers.is_empty() { self.attend() } else { Ok(()) }
    }

    /// From now on somebody may wait for this node's answers, or for its part of what it has begun: in a
    /// launched job the progress thread stands by, if the node may have one.
    #[inline]
    pub(crate) fn stand_by(self: &Arc<Self>) -> io::Result<()> {
        let is_needed = !self.progress_thread.has_been_asked() && self.peers.own().size > 1;
        if is_needed { self.start_progress_thread() } else { Ok(()) }
    }

    /// As [`NodeCore::stand_by`], where the call goes well without.
    #[inline]
    pub(crate) fn try_stand_by(self: &Arc<Self>) {
        if let Err(error) = self.stand_by() {
            tracing::warn!(%error, "no progress thread: peers wait while this process makes no progress");
        }
    }

    #[cold]
    fn start_progress_thread(self: &Arc<Self>) -> io::Result<()> {
        let core = Arc::clone(self);
        self.progress_thread.start("standpipe-progress", move || core.look_after())
    }

    /// All that the progress thread does.
    fn look_after(self: &Arc<Self>) {
        let is_closing = || self.closing.load(Ordering::SeqCst);
        let (mut seen, mut unpolled) = (self.polls_seen(), 0);
        while !is_closing() {
            if self.progress_thread.attends() {
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
        (self.moved.load(Ordering::Relaxed), self.polling.vain.counted())
    }

    /// Whether other threads have polled since that was seen, or sleep in a call that goes on with it.
    fn has_polled(&self, seen: &mut (u32, u64)) -> bool {
        let before = std::mem::replace(seen, self.polls_seen());
        *seen != before || self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Nobody polls: sleeps until the doorbell is rung, if nothing waits yet. Whether something does that has
    /// waited for so long that the program has left it alone.
    fn sleep_unpolled(&self) -> bool {
        let asleep = Asleep::new(&self.sleepers);
        loop {
            let seen = self.polls_seen();
            let ticket = self.bell.announce();
            // Where another thread holds the engine, it polls.
            let rest = self.engine.try_borrow(|engine| match engine.has_work() {
                true => Rest::Poll,
                false => engine.transport().prepare_sleep(),
            });
            let Some(rest) = rest else { return false };
            let is_over = self.closing.load(Ordering::SeqCst) || self.progress_thread.attends();
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
        let is_over = || self.closing.load(Ordering::SeqCst) || self.progress_thread.attends();
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

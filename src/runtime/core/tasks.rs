//! Tasks that await: who wakes them, and who makes the progress that they wait for.
//!
//! A task that awaits an operation sleeps until it is woken. Whoever makes progress wakes the tasks whose
//! operations have ended, and no others: the engine tells which those are. But while all threads of the
//! program sleep nobody makes any. So the first task that has to wait starts a thread: the progress thread,
//! where the node may have one. Under `STANDPIPE_PROGRESS=off` it may not, and the thread only *wakes*: it
//! sleeps until there may be something to do, and wakes the tasks, whose own polls then do it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use engine::OpId;

use super::{ENDED, NodeCore, Progress, WAKERS};
use crate::base::lock::lock;

/// Messages that one poll of a task takes, at most, before it lets its executor go on with others.
const MOVES: u32 = 64;

/// The longest sleep of the thread that only wakes tasks: they look then whether they have been told of all.
const SLEEP_MAX: Duration = Duration::from_millis(100);

impl NodeCore {
    /// For the poll of a task that awaits an operation: makes progress while there is something to do, until
    /// `done`; then sees to it that the task is woken when the operation has ended. Whether it is done.
    pub(crate) fn poll_task(
        self: &Arc<Self>,
        op: OpId,
        waker: &Waker,
        mut done: impl FnMut() -> bool,
    ) -> bool {
        let mut moves = 0;
        while !done() {
            if moves == MOVES {
                // There may be more, which nobody announces again.
                waker.wake_by_ref();
            } else if self.poll_once() == Progress::Moved {
                moves += 1;
                continue;
            }
            self.wake_later(op, waker);
            // It may have ended between the look and the registration.
            return done();
        }
        true
    }

    /// Wakes the task when the operation has ended, and sees to it that somebody makes progress, or wakes the
    /// task to make it.
    fn wake_later(self: &Arc<Self>, op: OpId, waker: &Waker) {
        let is_known = lock(&self.wakers).get(&op).is_some_and(|known| known.will_wake(waker));
        if !is_known {
            // A copy runs the executor's code, and so may the drop of the one before.
            let copy = waker.clone();
            let before = {
                let mut wakers = lock(&self.wakers);
                self.deferred.fetch_or(WAKERS, Ordering::AcqRel);
                wakers.insert(op, copy)
            };
            drop(before);
        }
        if !self.engine().watch(op) {
            // It has ended, which the caller finds.
            return self.forget_task(op);
        }
        let watched = match self.may_attend {
            true => self.attend(),
            false => self.start_waking(),
        };
        if let Err(error) = watched {
            // Slower, as the executor then polls without end; but it ends.
            tracing::warn!(%error, "no thread to make progress or wake tasks: tasks that await are polled all the time");
            waker.wake_by_ref();
        } else if self.closing.load(Ordering::SeqCst) {
            // The node may have closed since the poll looked: the next poll ends.
            waker.wake_by_ref();
        }
    }

    /// Starts the thread that only wakes tasks, or tells it that there are some.
    fn start_waking(self: &Arc<Self>) -> std::io::Result<()> {
        let core = Arc::clone(self);
        self.waker.start("standpipe-wake", move || core.keep_waking())?;
        self.waker.unpark();
        Ok(())
    }

    /// Wakes tasks whenever there may be something for their polls to do, until the node closes. Makes no
    /// progress, runs no handler and serves no peer.
    fn keep_waking(&self) {
        while !self.closing.load(Ordering::SeqCst) {
            if self.deferred.load(Ordering::Acquire) & WAKERS == 0 {
                std::thread::park();
                continue;
            }
            // What is there already the tasks will have seen when they were polled just now: if not, it is a
            // short nap away.
            let mut is_closing = || self.closing.load(Ordering::SeqCst).then_some(());
            self.sleep(Instant::now(), SLEEP_MAX, true, &mut is_closing);
            self.wake_tasks();
        }
    }

    /// Wakes all tasks.
    pub(super) fn wake_tasks(&self) {
        self.take_wakers().into_values().for_each(Waker::wake);
    }

    /// Wakes the tasks whose operations have ended.
    pub(super) fn wake_ended_tasks(&self) {
        let mut ended = Vec::new();
        {
            let mut engine = self.engine();
            self.deferred.fetch_and(!ENDED, Ordering::AcqRel);
            engine.take_ended(&mut ended);
        }
        for op in ended {
            // Whoever is woken may poll at once: no lock is held.
            self.take_waker(op).into_iter().for_each(Waker::wake);
        }
    }

    /// Forgets the task that awaited an operation, which nobody awaits any more.
    pub(crate) fn forget_task(&self, op: OpId) {
        drop(self.take_waker(op));
    }

    #[cfg(test)]
    pub(crate) fn tasks_that_await(&self) -> usize {
        lock(&self.wakers).len()
    }

    fn take_waker(&self, op: OpId) -> Option<Waker> {
        let mut wakers = lock(&self.wakers);
        let waker = wakers.remove(&op);
        if wakers.is_empty() {
            self.deferred.fetch_and(!WAKERS, Ordering::AcqRel);
        }
        waker
    }

    fn take_wakers(&self) -> HashMap<OpId, Waker> {
        let mut wakers = lock(&self.wakers);
        self.deferred.fetch_and(!WAKERS, Ordering::AcqRel);
        std::mem::take(&mut *wakers)
    }

    /// Wakes every thread that waits, as [`NodeCore::wake`] does; and tasks by a thread of its own, as
    /// whoever wakes one may poll it at once, which can wait for the caller.
    pub(crate) fn wake_from_afar(&self) {
        self.wake_threads();
        if self.deferred.load(Ordering::Acquire) & WAKERS == 0 {
            return;
        }
        let wakers = Arc::new(Mutex::new(self.take_wakers()));
        let wake = |wakers: &Mutex<HashMap<OpId, Waker>>| {
            let wakers = std::mem::take(&mut *lock(wakers));
            wakers.into_values().for_each(Waker::wake);
        };
        let theirs = Arc::clone(&wakers);
        if vm::threads::spawn("standpipe-wake", move || wake(&theirs)).is_err() {
            wake(&wakers);
        }
    }
}

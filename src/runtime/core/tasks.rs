//! Tasks that await, and queues of completions: who tells them, and who makes the progress that they wait
//! for.
//!
//! A task that awaits an operation sleeps until it is woken. A thread that makes progress wakes the tasks
//! whose operations have ended, and no others: the engine tells which those are. So it tells each queue what
//! of it has ended. But while all threads of the program sleep nobody makes any progress. So the first task
//! that has to wait starts a thread, as does the first operation of a queue whose descriptor somebody waits
//! on. That is the progress thread, where the node may have one. Under `STANDPIPE_PROGRESS=off` it may not,
//! and the thread only *wakes*: it sleeps until there may be something to do, and has tasks and queues look,
//! which then do it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use engine::OpId;

use vm::completion_queue::Place;

use super::{ENDED, NodeCore, Progress, WATCHERS};
use crate::base::lock::lock;
use crate::runtime::wait_policy::WaitPolicy;
use crate::runtime::watchers::{Queue, Watcher};

/// Messages that one poll of a task takes, at most, before it lets its executor go on with others.
const MOVES: u32 = 64;

/// The longest sleep of the thread that only wakes tasks: they look then whether they have been told of all.
const SLEEP_MAX: Duration = Duration::from_millis(100);

impl NodeCore {
    /// For the poll of a task that awaits an operation: makes progress while there is something to do, until
    /// `done`. Then it sees to it that the task is woken when the operation has ended. Whether it is done.
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
        let is_known = lock(&self.due.watchers).tasks.get(&op).is_some_and(|known| known.will_wake(waker));
        if !is_known {
            // A copy runs the executor's code, and so may the drop of the one before.
            let copy = waker.clone();
            let before = {
                let mut watchers = lock(&self.due.watchers);
                self.due.flags.fetch_or(WATCHERS, Ordering::AcqRel);
                watchers.tasks.insert(op, copy)
            };
            drop(before);
        }
        if !self.engine().watch(op) {
            // It has ended, which the caller finds.
            return self.forget_watcher(op);
        }
        if !self.see_to_progress() || self.threads.closing.load(Ordering::SeqCst) {
            // Slower, as the executor then polls without end; but it ends. Or the node has closed since the
            // poll looked: the next one ends.
            waker.wake_by_ref();
        }
    }

    /// Tells the queue when the operation in that place of it has ended, now if it has.
    pub(crate) fn tell_queue(&self, op: OpId, queue: &Arc<dyn Queue>, place: Place) {
        let task_before = {
            let mut watchers = lock(&self.due.watchers);
            self.due.flags.fetch_or(WATCHERS, Ordering::AcqRel);
            watchers.queued.insert(op, (Arc::clone(queue), place));
            watchers.tasks.remove(&op)
        };
        drop(task_before);
        let is_under_way = self.engine().watch(op);
        // The node may have closed, or lost the peer, since the operation started.
        if (!is_under_way || self.threads.closing.load(Ordering::SeqCst))
            && let Some(watcher) = self.take_watcher(op)
        {
            watcher.tell(self.number(), op);
        }
    }

    /// A number that no other node of this process has while this one is there.
    pub(crate) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Knows of a queue from now on, for as long as there is one.
    pub(crate) fn add_queue(&self, queue: Weak<dyn Queue>) {
        let mut watchers = lock(&self.due.watchers);
        watchers.queues.retain(|known| known.strong_count() > 0);
        watchers.queues.push(queue);
    }

    /// For whoever is going to sleep by other means than this library's: sees to it that somebody makes
    /// progress meanwhile, or tells when there may be some to make. `false` where nobody does: look again.
    pub(crate) fn see_to_progress(self: &Arc<Self>) -> bool {
        let started = match self.threads.may_attend {
            true => self.attend(),
            false => self.start_waking(),
        };
        if let Err(error) = &started {
            tracing::warn!(%error, "no thread to make progress or wake tasks: whoever waits looks all the time");
        }
        started.is_ok()
    }

    /// Starts the thread that only wakes tasks, or tells it that there are some.
    fn start_waking(self: &Arc<Self>) -> std::io::Result<()> {
        let core = Arc::clone(self);
        self.threads.waker.start("standpipe-wake", move || core.keep_waking())?;
        self.threads.waker.unpark();
        Ok(())
    }

    /// Has tasks and queues look whenever there may be something for them to do, until the node closes. Makes
    /// no progress, runs no handler and serves no peer.
    fn keep_waking(&self) {
        let (mut quiet, mut moved) = (WaitPolicy::default(), 0);
        while !self.threads.closing.load(Ordering::SeqCst) {
            if !lock(&self.due.watchers).has_sleepers() {
                let parked = Instant::now();
                std::thread::park();
                // Tasks that were woken just now, and wait on, have waited all the time.
                if parked.elapsed() > SLEEP_MAX {
                    quiet = WaitPolicy::default();
                }
                continue;
            }
            let moved_before = std::mem::replace(&mut moved, self.waking.moved.load(Ordering::Relaxed));
            if moved_before != moved {
                quiet = WaitPolicy::default();
            } else if quiet.turns_long(Instant::now()) {
                self.tell_of_unattended();
            }
            // The tasks will have seen what is there already when they were polled just now: if not, it is a
            // short nap away.
            let mut is_closing = || self.threads.closing.load(Ordering::SeqCst).then_some(());
            self.sleep(Instant::now(), SLEEP_MAX, true, &mut is_closing);
            self.wake_tasks();
        }
    }

    /// Wakes all tasks, and has all queues look.
    pub(super) fn wake_tasks(&self) {
        wake_all(self.take_all_to_wake());
    }

    /// Tells all whose operations have ended.
    pub(super) fn tell_of_ended(&self) {
        let mut ended = Vec::new();
        {
            let mut engine = self.engine();
            self.due.flags.fetch_and(!ENDED, Ordering::AcqRel);
            engine.take_ended(&mut ended);
        }
        each_to_the_last(ended, |op| {
            self.take_watcher(op).into_iter().for_each(|watcher| watcher.tell(self.number(), op));
        });
    }

    /// The node has closed: nobody goes on with what queues wait for, which they find.
    pub(super) fn end_queued(&self) {
        let queued = std::mem::take(&mut lock(&self.due.watchers).queued);
        each_to_the_last(queued, |(op, (queue, place))| queue.ended(self.number(), op, place));
    }

    /// Tells nobody of an operation any more.
    pub(crate) fn forget_watcher(&self, op: OpId) {
        drop(self.take_watcher(op));
    }

    #[cfg(test)]
    pub(crate) fn watched_operations(&self) -> usize {
        let watchers = lock(&self.due.watchers);
        watchers.tasks.len() + watchers.queued.len()
    }

    fn take_watcher(&self, op: OpId) -> Option<Watcher> {
        let mut watchers = lock(&self.due.watchers);
        let watcher = watchers.take(op);
        if watchers.is_empty() {
            self.due.flags.fetch_and(!WATCHERS, Ordering::AcqRel);
        }
        watcher
    }

    fn take_all_to_wake(&self) -> ToWake {
        let mut watchers = lock(&self.due.watchers);
        let tasks = std::mem::take(&mut watchers.tasks);
        // Where the node may have a progress thread, that one makes progress, and tells them of ends alone.
        let queues = match self.threads.may_attend || watchers.queued.is_empty() {
            true => Vec::new(),
            false => watchers.queues.iter().filter_map(Weak::upgrade).collect(),
        };
        if watchers.is_empty() {
            self.due.flags.fetch_and(!WATCHERS, Ordering::AcqRel);
        }
        (tasks, queues)
    }

    /// Wakes every thread that waits, as [`NodeCore::wake`] does; and tasks by a thread of its own, as
    /// whoever wakes one may poll it at once, which can wait for the caller.
    pub(crate) fn wake_from_afar(&self) {
        self.wake_threads();
        if self.due.flags.load(Ordering::Acquire) & WATCHERS == 0 {
            return;
        }
        let to_wake = Arc::new(Mutex::new(Some(self.take_all_to_wake())));
        let wake = |to_wake: &Mutex<Option<ToWake>>| {
            let to_wake = lock(to_wake).take();
            to_wake.into_iter().for_each(wake_all);
        };
        let theirs = Arc::clone(&to_wake);
        if vm::threads::spawn("standpipe-wake", move || wake(&theirs)).is_err() {
            wake(&to_wake);
        }
    }
}

/// Does it for each, also where the program's code, as a waker is, panics at one. That panic goes on then.
fn each_to_the_last<T>(all: impl IntoIterator<Item = T>, mut tell: impl FnMut(T)) {
    let mut panicked = None;
    for one in all {
        let told = std::panic::catch_unwind(AssertUnwindSafe(|| tell(one)));
        panicked = panicked.or(told.err());
    }
    if let Some(panic) = panicked {
        std::panic::resume_unwind(panic);
    }
}

/// Tasks that are to look, and queues that may have to.
type ToWake = (HashMap<OpId, Waker>, Vec<Arc<dyn Queue>>);

enum ToTell {
    Task(Waker),
    Queue(Arc<dyn Queue>),
}

fn wake_all((tasks, queues): ToWake) {
    let all = tasks.into_values().map(ToTell::Task).chain(queues.into_iter().map(ToTell::Queue));
    each_to_the_last(all, |one| match one {
        ToTell::Task(waker) => waker.wake(),
        ToTell::Queue(queue) => queue.nudge(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_that_panics_keeps_no_other_from_being_woken() {
        let mut told = Vec::new();
        let telling = AssertUnwindSafe(|| {
            each_to_the_last(0..4, |one| {
                told.push(one);
                assert!(one % 2 == 0, "number {one} panics");
            });
        });
        let panic = std::panic::catch_unwind(telling).expect_err("the panic goes on");
        let said = panic.downcast_ref::<String>().map(String::as_str);
        assert_eq!((told, said), (vec![0, 1, 2, 3], Some("number 1 panics")));
    }
}

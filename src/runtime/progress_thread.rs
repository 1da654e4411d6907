//! The progress thread: makes progress while no call of the library waits, and sleeps when there is none to
//! make.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, ThreadId};

use crate::base::lock::lock;

/// A node's progress thread, if it has one or may get one.
pub(crate) struct ProgressThreadSlot {
    state: Mutex<State>,
    /// Whether somebody has asked for it: then there is one, unless it may not be.
    has_been_asked: AtomicBool,
    /// Whether it serves whatever the program does.
    attends: AtomicBool,
}

enum State {
    /// There is none, and it may start when a peer turns out to depend on it.
    Allowed,
    /// There is none and there never will be: by configuration, or because the node closes.
    Barred,
    Runs(JoinHandle<()>),
}

impl ProgressThreadSlot {
    /// No thread yet.
    pub(crate) fn new(allowed: bool) -> ProgressThreadSlot {
        let state = Mutex::new(if allowed { State::Allowed } else { State::Barred });
        ProgressThreadSlot { state, has_been_asked: AtomicBool::new(false), attends: AtomicBool::new(false) }
    }

    /// Whether [`ProgressThreadSlot::start`] has done what it can: one look at one word.
    #[inline]
    pub(crate) fn has_been_asked(&self) -> bool {
        self.has_been_asked.load(Ordering::Relaxed)
    }

    /// From now on it serves whatever the program does. Whether it did before.
    pub(crate) fn set_attending(&self) -> bool {
        self.attends.swap(true, Ordering::SeqCst)
    }

    /// Whether it serves whatever the program does.
    pub(crate) fn attends(&self) -> bool {
        self.attends.load(Ordering::SeqCst)
    }

    /// Starts the thread, which does `work` until that returns, unless it runs or may not.
    pub(crate) fn start(&self, name: &str, work: impl Fn() + Send + 'static) -> io::Result<()> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Allowed) {
            // A panic of the program's code ends the call that made progress. This one is nobody's, and peers
            // depend on the next.
            let work = move || {
                while std::panic::catch_unwind(AssertUnwindSafe(&work)).is_err() {
                    tracing::error!(
                        "a handler or another function of the program's panicked on the progress thread, which goes on"
                    );
                }
            };
            *state = State::Runs(vm::threads::spawn(name, work)?);
        }
        self.has_been_asked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lets the thread go on, if it is parked.
    pub(crate) fn unpark(&self) {
        if let State::Runs(thread) = &*lock(&self.state) {
            thread.thread().unpark();
        }
    }

    /// Waits for the thread, which the node's closing has ended, unless it is the closer's own, and lets none
    /// start any more.
    pub(crate) fn end(&self, closer: ThreadId) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Barred);
        if let State::Runs(thread) = before
            && thread.thread().id() != closer
        {
            // It has caught and told of panics in the program's code.
            let _ = thread.join();
        }
    }
}

/// A thread that sleeps or is about to, counted while this lives.
pub(crate) struct Asleep<'a>(&'a AtomicU32);

impl<'a> Asleep<'a> {
    pub(crate) fn new(sleepers: &'a AtomicU32) -> Asleep<'a> {
        sleepers.fetch_add(1, Ordering::SeqCst);
        Asleep(sleepers)
    }

    /// Whether others do likewise.
    pub(crate) fn has_company(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 1
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

//! The parts that end with a node, when its last handle goes or somebody closes it: its threads, its part in
//! the job.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use crate::base::lock::lock;
use crate::job::launchers::Host;
use crate::runtime::core::NodeCore;

/// The parts that are to end when a node closes. Its clients have shares of it.
pub(crate) struct Life {
    core: Arc<NodeCore>,
    /// The part that ends after the node has: its part in a job of another launcher's.
    host: Mutex<Option<Host>>,
    has_ended: AtomicBool,
}

/// How long the last handle waits for the network to take what was sent.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

impl Life {
    pub(crate) fn new(core: Arc<NodeCore>) -> Life {
        Life { core, host: Mutex::default(), has_ended: AtomicBool::new(false) }
    }

    /// The parts that end with it.
    pub(crate) fn core(&self) -> &Arc<NodeCore> {
        &self.core
    }

    /// Keeps this process's part in another launcher's job until the node has left it.
    pub(crate) fn stay_for(&self, host: Host) {
        *lock(&self.host) = Some(host);
    }

    /// Whether nobody has begun to end the node; from now on somebody has.
    pub(crate) fn may_end(&self) -> bool {
        !self.has_ended.swap(true, Ordering::SeqCst)
    }

    /// Ends all that the node has, and waits for that so long. The error says what it still waits for: then
    /// it goes on by itself.
    pub(crate) fn finish(&self, within: Duration) -> Result<(), &'static str> {
        let (core, host) = (Arc::clone(&self.core), lock(&self.host).take());
        let (ended, when_ended) = channel::<()>();
        let stage = Arc::new(AtomicU8::new(0));
        let closer = std::thread::current().id();
        let work = Arc::new(Mutex::new(Some((core, host, ended))));
        let ending = {
            let (work, stage) = (Arc::clone(&work), Arc::clone(&stage));
            move || {
                let taken = lock(&work).take();
                if let Some((core, host, ended)) = taken {
                    end(&core, host, &stage, closer);
                    // A thread that waits has a share of it, and is the last to let go.
                    drop(core);
                    drop(ended);
                }
            }
        };
        if vm::threads::spawn("standpipe-close", ending.clone()).is_err() {
            ending();
        }
        match when_ended.recv_timeout(within) {
            Err(RecvTimeoutError::Timeout) => Err(STAGES[usize::from(stage.load(Ordering::SeqCst))]),
            _ => Ok(()),
        }
    }

    /// Ends the node here and now, unless somebody has begun to.
    pub(crate) fn end(&self) {
        if self.may_end() {
            self.core.finish_copies();
            self.core.take_leave(FLUSH_WITHIN);
            end(&self.core, lock(&self.host).take(), &AtomicU8::new(0), std::thread::current().id());
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.core.is_forked() {
            // A child that was forked has a copy of what is the parent's: none of it is its own to end.
            let host = self.host.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            std::mem::forget((Arc::clone(&self.core), host));
        } else {
            self.end();
        }
    }
}

/// The things that the end waits for, in its order.
const STAGES: [&str; 2] = [
    "a handler that runs, or a task that is being woken",
    "the other processes of its host, which have not left their job and need it",
];

/// Ends the node's threads and its part in the job. The closer's thread, which may be one of them, is not
/// waited for.
fn end(core: &Arc<NodeCore>, host: Option<Host>, stage: &AtomicU8, closer: ThreadId) {
    core.threads.closing.store(true, Ordering::SeqCst);
    core.wake();
    // No listener is opened any more.
    lock(&core.opening.outside).take();
    // Published values hold the node itself.
    lock(&core.published).clear();
    // Nothing is written into peers that believe this node gone.
    core.engine().transport().shm().end_copiers();
    core.peers.leave();
    // Handles may be left that keep the rest of it.
    core.drop_handlers();
    core.threads.progress.unpark();
    core.threads.progress.end(closer);
    core.threads.listener.end(closer);
    core.threads.waker.unpark();
    core.threads.waker.end(closer);
    // Memory of collectives that nobody waits for goes with the node; nobody goes on with them any more.
    core.engine().give_up_offers();
    core.publish_last();
    stage.store(1, Ordering::SeqCst);
    drop(host);
}

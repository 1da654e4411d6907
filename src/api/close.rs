//! Leaving: what the last handle on a node does when it goes, and closing before that, within a time.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::api::node::Node;
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::Error;
use crate::base::lock::lock;
use crate::job::bootstrap::Host;
use crate::runtime::core::NodeCore;

/// How long the last handle waits for the network to take what was sent.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

debug_is_display!(CloseError);

/// What [`Node::close`] could not do, or not in time. But for the first, the node has closed all the same.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The node is as it was: closing waits, and a handler must not; or the node was closed before, or is the
    /// parent's of this process.
    #[error("cannot close the node: {0}")]
    Refused(Error),
    /// Something that this node had started failed, or had not ended in time.
    #[error("the node has closed, and not all that it had started was done: {0}")]
    Undone(Error),
    /// The network had not taken all that was sent, after so long. Peers on other hosts may learn late that
    /// this node has left.
    #[error("the node has closed, and the network had not taken all that was sent after {waited:?}")]
    Unsent {
        /// How long it was waited for.
        waited: Duration,
    },
    /// A thread of the library had not ended after so long, and ends when it can.
    #[error("the node has closed, and after {waited:?} it still waits for {what}")]
    Unfinished {
        /// How long it was waited for.
        waited: Duration,
        /// What for: a handler, or others.
        what: &'static str,
    },
}

impl CloseError {
    /// What kind of error it is: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            CloseError::Refused(error) | CloseError::Undone(error) => error.code(),
            CloseError::Unsent { .. } | CloseError::Unfinished { .. } => Code::Timeout,
        }
    }
}

into_io_error!(CloseError);

impl CloseError {
    /// Whether the node has closed.
    pub fn has_closed(&self) -> bool {
        !matches!(self, CloseError::Refused(_))
    }
}

/// Closing.
impl Node {
    /// Leaves the job, and waits at most so long for what that takes: for what this node has started, for the
    /// network to take the rest, and for the library's threads. Under another launcher than ours the lowest
    /// rank of a host also waits for the others there, which need it. However it ends, but for
    /// [`CloseError::Refused`], the node has closed: other handles on it end their calls with
    /// [`Error::Closed`], also calls that wait now, and peers find it lost.
    ///
    /// Without this, the node closes when its last handle is dropped, which waits for the same: 2 s for the
    /// network, and for all else as long as it takes.
    ///
    /// # Errors
    /// See [`CloseError`]. Not in handlers.
    pub fn close(self, within: Duration) -> Result<(), CloseError> {
        self.core.may_wait("closing the node").map_err(CloseError::Refused)?;
        // Whose node it is, a handler's handle does not say: it is refused above.
        let Some(life) = self.life() else { return Ok(()) };
        let begun = Instant::now();
        let left = || within.saturating_sub(begun.elapsed());
        let done = self.within(left()).quiet().map_err(CloseError::Undone);
        let told = self.core.take_leave(left());
        let told = if told { Ok(()) } else { Err(CloseError::Unsent { waited: begun.elapsed() }) };
        // Of two threads that close at once, the second one waits for nothing more.
        if life.has_ended.swap(true, Ordering::SeqCst) {
            return Err(CloseError::Refused(Error::Closed { call: "closing the node" }));
        }
        self.core.peers.close();
        let finished = finish(&life, left()).map_err(|what| {
            let waited = begun.elapsed();
            CloseError::Unfinished { waited, what }
        });
        done.and(told).and(finished)
    }
}

/// What is to end when a node closes. Shared by all handles but those of handlers.
pub(crate) struct Life {
    core: Arc<NodeCore>,
    /// What ends after the node has: its part in a job of another launcher's.
    host: Mutex<Option<Host>>,
    has_ended: AtomicBool,
}

impl Life {
    pub(crate) fn new(core: Arc<NodeCore>) -> Life {
        Life { core, host: Mutex::default(), has_ended: AtomicBool::new(false) }
    }

    /// Keeps this process's part in another launcher's job until the node has left it.
    pub(crate) fn stay_for(&self, host: Host) {
        *lock(&self.host) = Some(host);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let host = self.host.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if self.core.is_forked() {
            // A child that was forked has a copy of what is the parent's: none of it is its own to end.
            std::mem::forget((Arc::clone(&self.core), host));
        } else if !self.has_ended.load(Ordering::SeqCst) {
            self.core.take_leave(FLUSH_WITHIN);
            end(&self.core, host, &AtomicU8::new(0));
        }
    }
}

/// What the end waits for, in its order.
const STAGES: [&str; 2] = [
    "a handler that runs, or a task that is being woken",
    "the other processes of its host, which have not left their job and need it",
];

/// Ends all that the node has, and waits for that so long. The error says what it still waits for: then it
/// goes on by itself.
fn finish(life: &Life, within: Duration) -> Result<(), &'static str> {
    let (core, host) = (Arc::clone(&life.core), lock(&life.host).take());
    let (ended, when_ended) = channel::<()>();
    let stage = Arc::new(AtomicU8::new(0));
    let work = Arc::new(Mutex::new(Some((core, host, ended))));
    let ending = {
        let (work, stage) = (Arc::clone(&work), Arc::clone(&stage));
        move || {
            let taken = lock(&work).take();
            if let Some((core, host, _ended)) = taken {
                end(&core, host, &stage);
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

/// Ends the node's threads and its part in the job.
fn end(core: &Arc<NodeCore>, host: Option<Host>, stage: &AtomicU8) {
    core.closing.store(true, Ordering::SeqCst);
    core.wake();
    // No listener is opened any more.
    lock(&core.outside).take();
    // What is published holds the node itself.
    lock(&core.published).clear();
    core.peers.leave();
    core.progress_thread.end();
    core.listener.end();
    core.waker.unpark();
    core.waker.end();
    // Memory of collectives that nobody waits for goes with the node; nobody goes on with them any more.
    core.engine().give_up_offers();
    core.publish_last();
    stage.store(1, Ordering::SeqCst);
    drop(host);
}

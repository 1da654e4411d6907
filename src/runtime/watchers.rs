//! The ones that are to be told when operations end.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Waker;

use engine::OpId;
use vm::completion_queue::Place;

/// A queue of completions.
pub(crate) trait Queue: Send + Sync {
    /// That node's operation in that place has ended, if it is still there.
    fn ended(&self, node: usize, op: OpId, place: Place);

    /// There may be progress to make, for who waits on the queue.
    fn nudge(&self);

    /// Whether anybody sleeps on it by other means than this library's.
    fn is_slept_on(&self) -> bool;
}

/// The ones that are told, and of which operations.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Tasks that await operations.
    pub(crate) tasks: HashMap<OpId, Waker>,
    /// Where in which queue an operation is.
    pub(crate) queued: hashbrown::HashMap<OpId, (Arc<dyn Queue>, Place)>,
    /// All queues that there are.
    pub(crate) queues: Vec<Weak<dyn Queue>>,
}

/// Whom an operation's end is told.
pub(crate) enum Watcher {
    Task(Waker),
    Queue(Arc<dyn Queue>, Place),
}

impl Watcher {
    /// To be called with no lock held: whoever is woken may poll at once.
    pub(crate) fn tell(self, node: usize, op: OpId) {
        match self {
            Watcher::Task(waker) => waker.wake(),
            Watcher::Queue(queue, place) => queue.ended(node, op, place),
        }
    }
}

impl Watchers {
    /// Whom that operation's end is to be told, who is told no more.
    pub(crate) fn take(&mut self, op: OpId) -> Option<Watcher> {
        if let Some(waker) = self.tasks.remove(&op) {
            return Some(Watcher::Task(waker));
        }
        self.queued.remove(&op).map(|(queue, place)| Watcher::Queue(queue, place))
    }

    /// Whether somebody sleeps who cannot make progress meanwhile.
    pub(crate) fn has_sleepers(&self) -> bool {
        let slept_on = |queue: &Weak<dyn Queue>| queue.upgrade().is_some_and(|queue| queue.is_slept_on());
        !self.tasks.is_empty() || (!self.queued.is_empty() && self.queues.iter().any(slept_on))
    }

    /// Whether nobody is to be told of anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.queued.is_empty()
    }
}

//! A queue that tells which of many operations have ended.

use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use engine::{OpId, Rank};
use vm::CompletionQueue;
use vm::completion_queue::{Awaiting, Place, Task};

use crate::api::node::Node;
use crate::api::ops::buffer::{GetBuffer, PutBuffer, filled, source, target};
use crate::api::ops::event::Event;
use crate::base::error::Error;
use crate::base::pointers::Remote;
use crate::runtime::core::{NodeCore, Progress};
use crate::runtime::watchers::Queue;

/// Messages that one poll of a task takes, at most, before it lets its executor go on with others.
const MOVES: u32 = 64;

/// A queue of operations' ends: each operation that is started into it comes out once, with the token that it
/// was given, when it has ended.
///
/// [Made](Node::completions) by a node, and filled by [`Completions::reserve`] and [`Permit::put`] and its
/// kin. Calls take from it ([`take`](Completions::take), [`wait_any`](Completions::wait_any)), tasks
/// ([`next`](Completions::next)), and whoever sleeps on its descriptor ([`AsFd`]), in the order in which the
/// operations end. Any thread may call anything, also several at once: each completion is given to one of
/// them. An operation's cost does not depend on how many are under way.
///
/// Dropping it drops the operations' events: they go on, and [`Node::quiet`] reports failures.
pub struct Completions<B: Send + 'static = ()> {
    node: Node,
    shared: Arc<Shared<B>>,
}

/// The part of a queue that its node knows. It has no handle on the node, one of whose threads may be the
/// last to let go of it.
struct Shared<B: Send + 'static> {
    core: Arc<NodeCore>,
    queue: CompletionQueue<Entry<B>>,
    /// Somebody sleeps by other means than the library's: a task, or whoever has the descriptor.
    is_slept_on: AtomicBool,
}

/// An operation in the queue.
enum Entry<B: Send + 'static> {
    /// It had ended before it came here.
    Ended(Completion<B>),
    /// Boxed, so that the others are not moved with room for it.
    Started(Box<Started<B>>),
}

/// One that was under way when it came.
struct Started<B: Send + 'static> {
    token: u64,
    event: Event<B>,
}

/// An operation that has ended, as a [`Completions`] gives it back.
#[derive(Debug)]
#[must_use = "it has the operation's result, and its buffer"]
pub struct Completion<B> {
    /// The token that the operation was started with.
    pub token: u64,
    /// The peer that the operation was with.
    pub peer: Rank,
    /// How it ended: [`Error::Cancelled`] where [`Completions::cancel`] came first, [`Error::Closed`] where
    /// the node closed, and otherwise what an [`Event`] says.
    pub result: Result<(), Error>,
    /// The buffer, which nothing touches any more.
    pub buffer: B,
}

/// A place in a [`Completions`] for one operation; dropping it gives the place back.
#[must_use = "the place is kept for an operation: start one into it"]
pub struct Permit<'q, B: Send + 'static> {
    completions: &'q Completions<B>,
}

impl Node {
    /// A queue for at most so many operations, under way or ended and not yet taken; the waits of the queue
    /// wait as long as those by this handle. Memory is used as they come.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], and [`Error::System`] where the system gives no descriptor.
    pub fn completions<B: Send + 'static>(&self, capacity: usize) -> Result<Completions<B>, Error> {
        self.may_call("a queue of completions")?;
        let queue = CompletionQueue::new(capacity).map_err(no_descriptor)?;
        let (core, is_slept_on) = (Arc::clone(&self.core), AtomicBool::new(false));
        let shared = Arc::new(Shared { core, queue, is_slept_on });
        let weak: Weak<Shared<B>> = Arc::downgrade(&shared);
        self.core.add_queue(weak);
        Ok(Completions { node: self.clone(), shared })
    }
}

#[cold]
fn no_descriptor(error: io::Error) -> Error {
    Error::System { what: "descriptor for a queue", why: error.to_string() }
}

impl<B: Send + 'static> Completions<B> {
    /// Keeps a place for an operation, to be [started](Permit::start) next. It is counted until its
    /// completion has been taken.
    ///
    /// # Errors
    /// [`Error::QueueFull`] where there is no place left: nothing was started. [`Error::Forked`].
    #[inline]
    pub fn reserve(&self) -> Result<Permit<'_, B>, Error> {
        self.check("starting into a queue")?;
        match self.shared.queue.reserve() {
            true => Ok(Permit { completions: self }),
            false => Err(Error::QueueFull { capacity: self.capacity() as u64 }),
        }
    }

    /// Takes the operation that ended first of those that have; makes progress while there is some to make if
    /// none has, for a while. Never waits; also in handlers.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub fn take(&self) -> Result<Option<Completion<B>>, Error> {
        self.check("taking from a queue")?;
        let taken = self.taken();
        if taken.is_some() {
            return Ok(taken);
        }
        let mut moves = 0;
        while moves < MOVES && self.moved() {
            moves += 1;
            let taken = self.taken();
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(self.taken())
    }

    /// Makes progress once, where the node is open. Whether anything moved.
    fn moved(&self) -> bool {
        let core = &self.node.core;
        !core.threads.closing.load(Ordering::SeqCst)
            && !core.has_closed()
            && core.poll_once() == Progress::Moved
    }

    /// Takes all that have ended, at most so many, in the order of their ends, and adds them to `into`; as
    /// [`Completions::take`]. How many it took. Never waits; also in handlers.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn take_some(&self, most: usize, into: &mut Vec<Completion<B>>) -> Result<usize, Error> {
        let before = into.len();
        if most > 0 {
            into.extend(self.take()?);
        }
        while into.len() > before && into.len() - before < most {
            let Some(completion) = self.taken() else { break };
            into.push(completion);
        }
        Ok(into.len() - before)
    }

    /// Waits until an operation has ended, and takes it; `None` where the queue is empty.
    ///
    /// # Errors
    /// [`Error::WaitTimeout`] after the node's timeout: the operations go on. [`Error::InHandler`] in a
    /// handler, if none has ended. [`Error::Forked`].
    pub fn wait_any(&self) -> Result<Option<Completion<B>>, Error> {
        match self.wait(self.node.timeout)? {
            None if !self.is_empty() => Err(Error::WaitTimeout { waited_for: "a completion" }),
            taken => Ok(taken),
        }
    }

    /// As [`Completions::wait_any`], and takes with it all that have ended, at most so many. Adds them to
    /// `into`, and says how many: 0 where the queue is empty.
    ///
    /// # Errors
    /// As for [`Completions::wait_any`].
    pub fn wait_some(&self, most: usize, into: &mut Vec<Completion<B>>) -> Result<usize, Error> {
        if most == 0 {
            return Ok(0);
        }
        let Some(first) = self.wait_any()? else { return Ok(0) };
        into.push(first);
        let mut count = 1;
        while count < most
            && let Some(completion) = self.taken()
        {
            into.push(completion);
            count += 1;
        }
        Ok(count)
    }

    /// As [`Completions::wait_any`], for at most so long: `None` also where none has ended by then.
    ///
    /// # Errors
    /// [`Error::InHandler`] in a handler, if none has ended. [`Error::Forked`].
    pub fn wait_at_most(&self, time: Duration) -> Result<Option<Completion<B>>, Error> {
        self.wait(Some(time))
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Option<Completion<B>>, Error> {
        self.check("taking from a queue")?;
        let taken = self.taken();
        if taken.is_some() || self.is_empty() {
            return Ok(taken);
        }
        handler_may_wait(&self.node)?;
        let _sleeper = self.shared.queue.sleeper();
        let found = self.node.wait(timeout, || {
            let taken = self.taken();
            // Another thread may take the last one.
            (taken.is_some() || self.is_empty()).then_some(taken)
        });
        let taken = found.flatten().or_else(|| self.taken());
        if taken.is_none() && self.node.has_closed() {
            // Nobody goes on with the rest, and nobody may have told it so yet.
            self.end_where(|_| true, &Error::Closed { call: "waiting for a completion" });
            return Ok(self.taken());
        }
        Ok(taken)
    }

    /// A future of the next operation to end; `None` where the queue is empty. Any executor may await it, and
    /// many tasks at once: each end wakes one. Dropping it loses nothing. Its polls make progress while there
    /// is some to make.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn next(&self) -> Next<'_, B> {
        Next { completions: self, task: None }
    }

    /// Ends the operations with that token that are under way: each comes out with [`Error::Cancelled`], and
    /// with its buffer, which is touched no more. The peer may have seen their effect, in part or whole. How
    /// many. Looks through all that is under way; never waits.
    pub fn cancel(&self, token: u64) -> usize {
        self.cancel_where(|started| started.token == token)
    }

    /// As [`Completions::cancel`], for all operations that are under way.
    pub fn cancel_all(&self) -> usize {
        self.cancel_where(|_| true)
    }

    fn cancel_where(&self, which: impl Fn(&Started<B>) -> bool) -> usize {
        if self.node.core.is_forked() {
            return 0;
        }
        // An event names its own peer.
        self.end_where(which, &Error::Cancelled { peer: Rank::MAX })
    }

    /// Ends what is under way. How many operations it was that ended.
    fn end_where(&self, which: impl Fn(&Started<B>) -> bool, error: &Error) -> usize {
        let is_it = |entry: &Entry<B>| matches!(entry, Entry::Started(started) if which(started));
        let mut count = 0;
        // They are out of the queue while they are ended, as whoever ends others may have to enter that.
        for entry in self.shared.queue.take_out(is_it) {
            let Entry::Started(mut started) = entry else { continue };
            let error = match error {
                Error::Cancelled { .. } => &Error::Cancelled { peer: started.event.peer() },
                error => error,
            };
            started.event.give_up(Some(error));
            count += usize::from(started.event.failure() == Some(error));
            self.shared.wake(self.shared.queue.begin_ended(Entry::Started(started)));
        }
        count
    }

    /// Operations in it, under way or ended and not yet taken, and places that are kept for one.
    pub fn len(&self) -> usize {
        if self.node.core.is_forked() { 0 } else { self.shared.queue.len() }
    }

    /// Whether there are none: nothing can come out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many it can hold.
    pub fn capacity(&self) -> usize {
        self.shared.queue.capacity()
    }

    /// Refuses a child made by `fork`. A node that has closed still gives its operations back.
    #[inline]
    fn check(&self, call: &'static str) -> Result<(), Error> {
        if self.node.core.is_forked() { Err(Error::Forked { call }) } else { Ok(()) }
    }

    #[inline]
    fn taken(&self) -> Option<Completion<B>> {
        match self.shared.queue.take(|| self.node.core.wake_threads())? {
            Entry::Ended(completion) => Some(completion),
            Entry::Started(started) => Some(started.finish()),
        }
    }
}

/// In a child and after the node has closed, waiting is not what fails.
fn handler_may_wait(node: &Node) -> Result<(), Error> {
    match node.may_wait("waiting for a completion") {
        Err(Error::Closed { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

impl<'q, B: Send + 'static> Permit<'q, B> {
    /// Starts a put from a buffer, as [`Node::put_nb`] of the node that made the queue. The token is the
    /// caller's, and need not be unique.
    #[inline]
    pub fn put(self, token: u64, to: impl Into<Remote>, mut buffer: B)
    where
        B: PutBuffer,
    {
        let to = to.into();
        let started = self.completions.node.start_one(to, source(&mut buffer));
        match Self::under_way(started) {
            Ok(op) => {
                let event = Event::new(&self.completions.node, to.peer, Ok(Some(op)), buffer);
                self.start(token, event);
            }
            Err(result) => self.end(Completion { token, peer: to.peer, result, buffer }),
        }
    }

    /// Starts a get into a buffer, as [`Node::get_nb`] of the node that made the queue; the token as for
    /// [`Permit::put`].
    #[inline]
    pub fn get(self, token: u64, from: impl Into<Remote>, mut buffer: B)
    where
        B: GetBuffer,
    {
        let from = from.into();
        let started = self.completions.node.start_one(from, target(&mut buffer));
        match Self::under_way(started) {
            Ok(op) => {
                let event = Event::of_get(&self.completions.node, from.peer, Ok(Some(op)), buffer);
                self.start(token, event);
            }
            Err(result) => {
                if result.is_ok() {
                    filled(&mut buffer);
                }
                self.end(Completion { token, peer: from.peer, result, buffer });
            }
        }
    }

    /// Puts any operation that has just been started into the queue, or one that was started before; the
    /// token as for [`Permit::put`]. An operation of another node of this process comes out, too, but
    /// somebody else must make progress for it.
    ///
    /// # Panics
    /// When the event has been awaited to its end: it has given its buffer away.
    #[inline]
    pub fn start(self, token: u64, mut event: Event<B>) {
        assert!(event.has_buffer(), "an event that has been awaited to its end has nothing to complete");
        match event.under_way() {
            None => {
                let (peer, (result, buffer)) = (event.peer(), event.take());
                self.end(Completion { token, peer, result, buffer });
            }
            Some(op) => self.used().begin(op, Box::new(Started { token, event })),
        }
    }

    /// The operation, if it is under way, or else how it has ended.
    #[inline]
    fn under_way(started: Result<Option<OpId>, Error>) -> Result<OpId, Result<(), Error>> {
        match started {
            Ok(Some(op)) => Ok(op),
            Ok(None) => Err(Ok(())),
            Err(error) => Err(Err(error)),
        }
    }

    #[inline]
    fn end(self, completion: Completion<B>) {
        let shared = self.used();
        if shared.core.is_forked() {
            // Nothing comes out there, and what the buffer keeps is the parent's.
            return std::mem::forget(completion);
        }
        shared.wake(shared.queue.begin_ended(Entry::Ended(completion)));
    }

    /// The room is used, and not to be given back.
    #[inline]
    fn used(self) -> &'q Arc<Shared<B>> {
        let shared = &self.completions.shared;
        std::mem::forget(self);
        shared
    }
}

impl<B: Send + 'static> Drop for Permit<'_, B> {
    fn drop(&mut self) {
        let shared = &self.completions.shared;
        if !shared.core.is_forked() {
            shared.wake(shared.queue.release());
        }
    }
}

impl<B: Send + 'static> Started<B> {
    #[inline(never)]
    fn finish(mut self) -> Completion<B> {
        self.event.end_for_closed();
        let (peer, token) = (self.event.peer(), self.token);
        let (result, buffer) = self.event.take();
        Completion { token, peer, result, buffer }
    }
}

impl<B: Send + 'static> Shared<B> {
    #[inline(never)]
    fn begin(self: &Arc<Self>, op: OpId, started: Box<Started<B>>) {
        if self.core.is_forked() {
            return std::mem::forget(started);
        }
        let core = Arc::clone(started.event.core());
        let place = self.queue.begin(Entry::Started(started));
        let queue: Arc<dyn Queue> = Arc::clone(self) as Arc<dyn Queue>;
        core.tell_queue(op, &queue, place);
        if self.is_slept_on.load(Ordering::SeqCst) && !core.see_to_progress() {
            self.queue.raise_always();
        }
    }

    #[inline]
    fn wake(&self, awaiting: Awaiting) {
        awaiting.wake(|| self.core.wake_threads());
    }

    /// Somebody sleeps on the descriptor from now on.
    fn observe(&self) {
        if self.core.is_forked() {
            return;
        }
        self.is_slept_on.store(true, Ordering::SeqCst);
        if self.queue.observe() && !self.core.see_to_progress() {
            self.queue.raise_always();
        }
    }
}

impl<B: Send + 'static> Queue for Shared<B> {
    fn ended(&self, node: usize, op: OpId, place: Place) {
        let is_it = |entry: &Entry<B>| matches!(entry, Entry::Started(started) if started.event.is(node, op));
        self.wake(self.queue.end(place, is_it));
    }

    fn nudge(&self) {
        if self.is_slept_on() {
            self.wake(self.queue.nudge());
        }
    }

    fn is_slept_on(&self) -> bool {
        self.is_slept_on.load(Ordering::SeqCst)
    }
}

/// The descriptor can be read while, and only while, there is something to take: level-triggered and
/// edge-triggered waiting both do. Only poll it, and let nobody read or write it. The library lowers it at
/// the take after which nothing is left. It stays open and the same as long as the queue lives. From the
/// first call on, what is under way starts the progress thread, where the node may have one. Under
/// [`ProgressThread::Off`](crate::ProgressThread::Off) the descriptor can be read also when there may be
/// progress to make: [`Completions::take`] makes it.
impl<B: Send + 'static> AsFd for Completions<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.observe();
        self.shared.queue.as_fd()
    }
}

impl<B: Send + 'static> AsRawFd for Completions<B> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<B: Send + 'static> fmt::Debug for Completions<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Completions");
        shown.field("node", &self.node).field("len", &self.len()).field("capacity", &self.capacity());
        shown.finish_non_exhaustive()
    }
}

impl<B: Send + 'static> fmt::Debug for Permit<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl<B: Send + 'static> Drop for Completions<B> {
    fn drop(&mut self) {
        if self.node.core.is_forked() {
            // Its content is the parent's, and a thread there may have been changing it.
            return std::mem::forget(Arc::clone(&self.shared));
        }
        // Buffers and what they keep are dropped with no lock held.
        for entry in self.shared.queue.take_all() {
            if let Entry::Ended(Completion { peer, result: Err(error), .. }) = entry {
                self.node.core.due.failures.note(self.node.client, peer, error);
            }
        }
    }
}

/// The future of a [queue's](Completions::next) next completion.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Next<'q, B: Send + 'static> {
    completions: &'q Completions<B>,
    /// As which it is to be woken.
    task: Option<Task>,
}

impl<B: Send + 'static> Future for Next<'_, B> {
    type Output = Result<Option<Completion<B>>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let completions = self.completions;
        completions.check("taking from a queue")?;
        let (core, shared) = (&completions.node.core, &completions.shared);
        let mut moves = 0;
        loop {
            let taken = completions.taken();
            if taken.is_some() || completions.is_empty() {
                return Poll::Ready(Ok(taken));
            }
            if moves < MOVES && completions.moved() {
                moves += 1;
                continue;
            }
            self.task = shared.queue.wake_later(cx.waker(), self.task);
            if self.task.is_some() {
                break;
            }
        }
        shared.is_slept_on.store(true, Ordering::SeqCst);
        if moves == MOVES || !core.see_to_progress() {
            // There may be more, which nobody announces again; or nobody makes any.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<B: Send + 'static> Drop for Next<'_, B> {
    fn drop(&mut self) {
        let shared = &self.completions.shared;
        if let Some(task) = self.task.take()
            && !shared.core.is_forked()
        {
            shared.wake(shared.queue.leave(task));
        }
    }
}

impl<B: Send + 'static> fmt::Debug for Next<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

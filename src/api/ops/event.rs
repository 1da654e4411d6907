//! A non-blocking operation gives back an event: something to test, wait on or await.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use engine::{OpError, OpId, Rank};

use crate::api::node::Node;
use crate::api::ops::buffer::{GetBuffer, filled};
use crate::base::error::Error;
use crate::runtime::core::{Engine, NodeCore};

/// A started operation, and the buffer that it uses; of an atomic that [fetches](Node::fetch_nb), the room
/// for the word from before.
///
/// Awaiting it, [`wait`](Event::wait) or [`wait_local`](Event::wait_local) give the buffer back. Dropping it
/// lets the operation go on, with the buffer kept as long as it needs it, and [`Node::quiet`] report its
/// failure; forgetting it leaks the buffer. Any executor may await it, and needs no other thread of the
/// program. The first await that has to wait starts the node's progress thread, or under
/// [`ProgressThread::Off`](crate::ProgressThread::Off) a thread that only wakes tasks.
#[must_use = "dropping the event leaves the operation's failure to the next `quiet`"]
pub struct Event<B: Send + 'static = ()> {
    node: Node,
    peer: Rank,
    state: State,
    buffer: Option<B>,
    /// Tells the buffer that a get has filled it, or gives it an atomic's old word.
    filled: fn(&mut B, u64),
    /// Whether a task or queue has been noted to be told.
    is_awaited: bool,
}

/// The buffer is never reached by way of a pinned event.
impl<B: Send + 'static> Unpin for Event<B> {}

#[derive(Clone, Debug)]
enum State {
    Pending(OpId),
    /// An atomic's old word, and 0 for everything else.
    Done(Result<u64, Error>),
    /// The result has been given away.
    Taken,
}

impl<B: GetBuffer> Event<B> {
    /// As [`Event::new`], of a get that fills the whole buffer.
    pub(crate) fn of_get(
        node: &Node,
        peer: Rank,
        started: Result<Option<OpId>, Error>,
        buffer: B,
    ) -> Event<B> {
        let mut event = Event::new(node, peer, started, buffer);
        event.filled = |buffer, _| filled(buffer);
        event
    }
}

/// An operation that gives a word, once it has started.
pub(crate) enum Begun {
    UnderWay(OpId),
    /// It has completed at once.
    Done(u64),
}

impl Begun {
    /// The operation, where it is under way.
    pub(crate) fn op(self) -> Option<OpId> {
        match self {
            Begun::UnderWay(op) => Some(op),
            Begun::Done(_) => None,
        }
    }
}

impl Event<()> {
    /// The same operation with a value that it gives back when it has ended, or its queue: so one queue takes
    /// operations of several kinds. It uses none of the value.
    pub fn holding<B: Send + 'static>(mut self, value: B) -> Event<B> {
        let state = std::mem::replace(&mut self.state, State::Taken);
        let mut with = Event::new(&self.node, self.peer, Ok(None), value);
        (with.state, with.is_awaited) = (state, self.is_awaited);
        with
    }
}

impl<B: Send + 'static> Event<B> {
    /// As [`Event::new`], of an atomic, whose old word goes where `old_into` writes it.
    pub(crate) fn of_fetch(
        node: &Node,
        peer: Rank,
        started: Result<Begun, Error>,
        (room, old_into): (B, fn(&mut B, u64)),
    ) -> Event<B> {
        let done = if let Ok(Begun::Done(old)) = started { Some(old) } else { None };
        let mut event = Event::new(node, peer, started.map(Begun::op), room);
        event.filled = old_into;
        if let Some(old) = done {
            event.state = State::Done(Ok(old));
        }
        event
    }
}

impl<B: Send + 'static> Event<B> {
    /// The event of an operation that has started (`Some`), has completed at once (`None`), or failed.
    pub(crate) fn new(node: &Node, peer: Rank, started: Result<Option<OpId>, Error>, buffer: B) -> Event<B> {
        let state = match started {
            Ok(Some(op)) => State::Pending(op),
            Ok(None) => State::Done(Ok(0)),
            Err(error) => State::Done(Err(error)),
        };
        Event { node: node.clone(), peer, state, buffer: Some(buffer), filled: |_, _| {}, is_awaited: false }
    }

    /// Whether the operation has ended, remotely too; makes progress once if it has not. Never waits.
    pub fn is_complete(&mut self) -> bool {
        if !self.settle() {
            self.node.core.poll_once();
        }
        self.settle()
    }

    /// Waits at most `time` for the operation to end, and says whether it has; it goes on if it has not.
    ///
    /// # Errors
    /// [`Error::InHandler`] in a handler, if the operation has not ended yet.
    pub fn wait_at_most(&mut self, time: Duration) -> Result<bool, Error> {
        if !self.settle() {
            self.node.may_wait("waiting for an event")?;
            let node = self.node.clone();
            node.wait(Some(time), || self.settle().then_some(()));
        }
        Ok(self.settle())
    }

    /// Waits until the operation has ended at the target too, and gives its result and the buffer back. When
    /// the node's timeout passes first, the operation is ended with [`Error::Timeout`] and touches the buffer
    /// no more; in a handler it is ended so at once.
    pub fn wait(mut self) -> (Result<(), Error>, B) {
        if !self.settle()
            && let State::Pending(op) = self.state
        {
            self.state = State::Done(self.node.finish(op));
        }
        self.take()
    }

    /// Waits until the buffer is no longer needed, and gives it back with an event for the rest of the
    /// operation. For a get that is the whole operation.
    pub fn wait_local(mut self) -> (B, Event<()>) {
        if !self.settle()
            && let State::Pending(op) = self.state
        {
            let done = || self.node.core.engine().is_locally_done(op).then_some(());
            let in_time = self.node.may_wait("waiting for an event").is_ok()
                && self.node.wait(self.node.timeout, done).is_some();
            if !in_time && !self.settle() {
                self.node.core.engine().cancel(op);
                self.node.core.after_cancel();
            }
        }
        self.settle();
        let buffer = self.take_buffer();
        let state = std::mem::replace(&mut self.state, State::Taken);
        let mut rest = Event::new(&self.node, self.peer, Ok(None), ());
        (rest.state, rest.is_awaited) = (state, self.is_awaited);
        (buffer, rest)
    }

    /// Whether the buffer is no longer needed; makes progress once if it is. Never waits. Of a get, and of an
    /// operation that has failed, as [`Event::is_complete`].
    pub fn is_locally_complete(&mut self) -> bool {
        let done = |event: &mut Event<B>| {
            event.settle()
                || match event.state {
                    State::Pending(op) => event.node.core.engine().is_locally_done(op),
                    State::Done(_) | State::Taken => true,
                }
        };
        done(self) || {
            self.node.core.poll_once();
            done(self)
        }
    }

    /// Ends the operation now, if it has not ended, with [`Error::Cancelled`], and gives the buffer back,
    /// which is touched no more. The peer may have done the operation, in part or whole. Never waits; also in
    /// handlers.
    pub fn cancel(mut self) -> (Result<(), Error>, B) {
        self.give_up(Some(&Error::Cancelled { peer: self.peer }));
        self.take()
    }

    /// The peer that the operation is with.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// Why it has failed, where it is known to have.
    pub(crate) fn failure(&self) -> Option<&Error> {
        match &self.state {
            State::Done(result) => result.as_ref().err(),
            State::Pending(_) | State::Taken => None,
        }
    }

    /// Ends the operation where it has not ended: as if its deadline had passed, or with another error.
    pub(crate) fn give_up(&mut self, error: Option<&Error>) {
        if !self.settle()
            && let State::Pending(op) = self.state
        {
            let mut engine = self.node.core.engine();
            // It may have ended since.
            if let Some(outcome) = engine.outcome(op) {
                self.state = State::Done(self.ended(outcome));
                return;
            }
            engine.cancel(op);
            let outcome = engine.outcome(op).unwrap_or(Err(OpError::Timeout { peer: self.peer }));
            drop(engine);
            self.node.core.after_cancel();
            let result = self.ended(outcome);
            self.state = State::Done(error.map_or(result, |error| Err(error.clone())));
        }
    }

    /// Looks whether the operation has ended.
    pub(crate) fn settle(&mut self) -> bool {
        if let State::Pending(op) = self.state {
            if let Err(refused) = self.node.may_call("waiting for an event") {
                self.state = State::Done(self.refused(op, refused));
            } else if let Some(outcome) = self.node.core.engine().outcome(op) {
                self.state = State::Done(self.ended(outcome));
            }
        }
        !self.is_under_way()
    }

    /// The result of an operation that nobody goes on with. The node has closed, or is a parent's, whose
    /// operation goes on in the parent's memory, of which the buffer here is a copy.
    #[cold]
    fn refused(&self, op: OpId, refused: Error) -> Result<u64, Error> {
        if self.node.core.is_forked() {
            return Err(refused);
        }
        let mut engine = self.node.core.engine();
        if let Some(outcome) = engine.outcome(op) {
            return self.ended(outcome);
        }
        engine.cancel(op);
        let _ = engine.outcome(op);
        drop(engine);
        self.node.core.after_cancel();
        Err(refused)
    }

    /// An operation's outcome, with the error that its caller is told.
    fn ended(&self, outcome: Result<u64, OpError>) -> Result<u64, Error> {
        outcome.map_err(|error| self.node.core.error_of(error))
    }

    /// The operation that is under way, of whose end a queue is told from now on; `None` where it has ended.
    #[inline]
    pub(crate) fn under_way(&mut self) -> Option<OpId> {
        match self.state {
            State::Pending(op) => {
                self.is_awaited = true;
                Some(op)
            }
            State::Done(_) | State::Taken => None,
        }
    }

    /// Whether it has not been seen to end.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.state, State::Pending(_))
    }

    /// Whether it is that operation of the node of that number, and has not been seen to end.
    pub(crate) fn is(&self, node: usize, op: OpId) -> bool {
        matches!(self.state, State::Pending(own) if own == op) && self.node.core.number() == node
    }

    /// The node that the operation is of.
    pub(crate) fn core(&self) -> &Arc<NodeCore> {
        &self.node.core
    }

    /// Ends it where it has not ended, as its node has closed.
    #[inline]
    pub(crate) fn end_for_closed(&mut self) {
        if self.is_under_way() {
            self.give_up(Some(&Error::Closed { call: "waiting for a completion" }));
        }
    }

    /// As [`Event::settle`] of an operation of the node that this engine is of, which is neither closed nor a
    /// parent's.
    pub(crate) fn settle_in(&mut self, engine: &mut Engine) -> bool {
        if let State::Pending(op) = self.state
            && let Some(outcome) = engine.outcome(op)
        {
            self.state = State::Done(self.ended(outcome));
        }
        !self.is_under_way()
    }

    /// Whether the buffer has not been given away.
    pub(crate) fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// The buffer, which is told what a get or an atomic has brought.
    fn take_buffer(&mut self) -> B {
        let mut buffer = self.buffer.take().expect("only the consuming methods take the buffer");
        if let State::Done(Ok(old)) = self.state {
            (self.filled)(&mut buffer, old);
        }
        buffer
    }

    /// The result and the buffer, once it is settled.
    pub(crate) fn take(&mut self) -> (Result<(), Error>, B) {
        let buffer = self.take_buffer();
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Done(result) => (result.map(drop), buffer),
            State::Pending(_) | State::Taken => unreachable!("the callers have settled the operation"),
        }
    }
}

impl<B: Send + 'static> fmt::Debug for Event<B> {
    /// Leaves the buffer out: a progress thread may be writing it until the operation ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Event");
        shown.field("node", &self.node).field("peer", &self.peer).field("state", &self.state);
        shown.finish_non_exhaustive()
    }
}

impl<B: Send + 'static> Future for Event<B> {
    type Output = (Result<(), Error>, B);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let core = Arc::clone(&self.node.core);
        if core.threads.closing.load(Ordering::SeqCst) {
            // A handler's event has outlived the node: nobody makes progress any more.
            self.give_up(None);
        }
        if let State::Pending(op) = self.state {
            self.is_awaited = true;
            if !core.poll_task(op, cx.waker(), || self.settle()) {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.take())
    }
}

impl<B: Send + 'static> Drop for Event<B> {
    fn drop(&mut self) {
        if self.node.core.is_forked() {
            // The child waits for none of the parent's operations.
            std::mem::forget(self.buffer.take());
            return;
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Pending(op) => {
                if self.is_awaited {
                    self.node.core.forget_watcher(op);
                }
                if let Some(buffer) = self.buffer.take() {
                    self.node.core.keep(op, Box::new(buffer));
                }
                self.node.core.engine().detach(op);
            }
            // The caller that has cancelled it knows.
            State::Done(Ok(_) | Err(Error::Cancelled { .. })) | State::Taken => {}
            State::Done(Err(error)) => self.node.core.due.failures.note(self.node.client, self.peer, error),
        }
    }
}

//! Operations that are waited for together.

use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;

use crate::api::node::Node;
use crate::api::ops::event::Event;
use crate::api::ops::rma::{PutPiece, Rest};
use crate::base::error::Error;
use crate::base::pointers::Remote;
use crate::transport::shm::Lent;

/// Operations of one kind of buffer that are waited for together, and for no others: other than
/// [`Node::quiet`], which waits for all that the node has started.
///
/// [Made](Node::group) by a node, [filled](Group::add) with [`Event`]s, or with [puts from borrowed
/// memory](Group::put). Dropping it drops the events: their operations go on, and the next `quiet` tells of
/// failures.
#[derive(Debug)]
#[must_use = "dropping the group leaves failures to the next `quiet`"]
pub struct Group<B: Send + 'static = ()> {
    node: Node,
    events: Vec<Event<B>>,
    /// So many of them, from the first on, have been seen to have ended.
    settled: usize,
}

impl Node {
    /// An empty group, whose waits wait as long as those by this handle.
    pub fn group<B: Send + 'static>(&self) -> Group<B> {
        Group { node: self.clone(), events: Vec::new(), settled: 0 }
    }
}

impl<B: Send + 'static> Group<B> {
    /// Takes an operation of this node in. One that has ended already, or could not even start, costs a wait
    /// nothing. It also waits for operations that other nodes of this process have under way, but somebody
    /// else must make progress for them.
    ///
    /// # Panics
    /// When the event has been awaited to its end: it has given its buffer away.
    pub fn add(&mut self, event: Event<B>) {
        assert!(event.has_buffer(), "an event that has been awaited to its end is nothing to wait for");
        self.events.push(event);
    }

    /// How many operations were taken in.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none was taken in.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// How many operations have not ended yet; makes progress once if there are any. Never waits.
    pub fn left(&mut self) -> usize {
        if !self.settle() {
            self.node.core.poll_once();
            self.settle();
        }
        let mut left = 0;
        self.settle_each(self.settled, |has_ended| {
            left += usize::from(!has_ended);
            true
        });
        left
    }

    /// Whether all operations have ended, remotely too; makes progress once if not. Never waits.
    pub fn is_complete(&mut self) -> bool {
        self.settle() || {
            self.node.core.poll_once();
            self.settle()
        }
    }

    /// The failure of the operation that was taken in first of those that are known to have failed so far.
    /// Makes no progress, and takes nothing away from what [`Group::wait`] tells.
    pub fn failure(&self) -> Option<&Error> {
        self.events.iter().find_map(Event::failure)
    }

    /// Waits at most `time` for all operations to end, and says whether they have; they go on if they have
    /// not.
    ///
    /// # Errors
    /// [`Error::InHandler`] in a handler, if they have not ended yet.
    pub fn wait_at_most(&mut self, time: Duration) -> Result<bool, Error> {
        if !self.settle() {
            self.node.may_wait("waiting for a group")?;
            let node = self.node.clone();
            node.wait(Some(time), || self.settle().then_some(()));
        }
        Ok(self.settle())
    }

    /// Waits until all operations have ended at their targets too, and gives the buffers back in the order in
    /// which they came in. The failure, if any, is that of the operation that came in first of those that
    /// failed. When the node's timeout passes first, the rest are ended with [`Error::Timeout`] and touch
    /// their buffers no more. In a handler they are ended at once, with [`Error::InHandler`] where nothing
    /// else has failed before them.
    pub fn wait(mut self) -> (Result<(), Error>, Vec<B>) {
        if !self.settle() {
            let forbidden = self.node.may_wait("waiting for a group").err();
            if forbidden.is_none() {
                let node = self.node.clone();
                node.wait(node.timeout, || self.settle().then_some(()));
            }
            self.events[self.settled..].iter_mut().for_each(|event| event.give_up(forbidden.as_ref()));
        }
        let mut first = Ok(());
        let taken = self.events.into_iter().map(|mut event| {
            let (result, buffer) = event.take();
            first = std::mem::replace(&mut first, Ok(())).and(result);
            buffer
        });
        let buffers = taken.collect();
        (first, buffers)
    }

    /// Whether all have ended. An operation that was seen to have ended is not looked at again.
    fn settle(&mut self) -> bool {
        let mut settled = self.settled;
        self.settle_each(settled, |has_ended| {
            settled += usize::from(has_ended);
            has_ended
        });
        self.settled = settled;
        settled == self.events.len()
    }

    /// Looks at each operation from that one on, for as long as `goes_on` says so: under one lock of the
    /// engine, those apart that are another node's.
    fn settle_each(&mut self, from: usize, mut goes_on: impl FnMut(bool) -> bool) {
        let core = &self.node.core;
        let is_open = core.may_call("waiting for a group").is_ok();
        let mut held = None;
        for event in &mut self.events[from..] {
            let has_ended = if !event.is_under_way() {
                true
            } else if is_open && Arc::ptr_eq(event.core(), core) {
                event.settle_in(held.get_or_insert_with(|| core.engine()))
            } else {
                held = None;
                event.settle()
            };
            if !goes_on(has_ended) {
                break;
            }
        }
    }
}

/// Puts from borrowed memory, which may be reused at return: what goes by message is copied first. Failures
/// are told by the group, also those that show at once.
impl Group<()> {
    /// Puts a slice anywhere in a peer's memory.
    pub fn put<T: Pod>(&mut self, to: impl Into<Remote>, from: &[T]) {
        let (to, from) = (to.into(), Lent::source(bytemuck::cast_slice(from)));
        self.scatter(std::iter::once((to, from)));
    }

    /// Puts many pieces; those of each run with the same peer that go by message are one operation. As
    /// [`Node::put_list`].
    pub fn put_list(&mut self, pieces: &[PutPiece<'_>]) {
        self.scatter(pieces.iter().map(|piece| (piece.to, Lent::source(piece.from))));
    }

    fn scatter<'a>(&mut self, pieces: impl Iterator<Item = (Remote, Lent<'a>)> + Clone) {
        let Some((first, _)) = pieces.clone().next() else { return };
        let mut started = Vec::new();
        let result = self.node.scatter(engine::Direction::Put, pieces, &mut Rest::Counted(&mut started));
        if started.is_empty() || result.is_err() {
            started.push(Event::new(&self.node, first.peer, result.map(|()| None), ()));
        }
        self.events.append(&mut started);
    }
}

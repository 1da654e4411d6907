//! A message as its handler has it.

use std::cell::Cell;
use std::sync::Arc;

use corosensei::Yielder;

use super::body::Body;
use super::shared::{Counters, Shared};
use super::stream::{Next, Stream};

/// What a handler wants of the call that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// Go on with what has arrived.
    Continue,
    /// Return to the program.
    Quit,
}

/// Finds a message's handler, by its [number](Incoming::handler), and runs it: `None` where there is none.
pub type Dispatch = dyn Fn(&Incoming<'_>) -> Option<Done> + Send + Sync;

/// The message that a handler was started for. It lives as long as the handler runs, on the stack that the
/// handler runs on, and stays where it is; only that handler may use it.
pub struct Incoming<'a> {
    shared: &'a Shared,
    /// Where it waits. `None` of a message that is there as a whole.
    yielder: Option<&'a Yielder<(), ()>>,
    from: u32,
    handler: u32,
    announced: u64,
    /// What is left of the packet that is being received, from which byte on.
    front: Cell<Option<(Body, usize)>>,
    /// The packets after it, if the message has several.
    rest: Option<Arc<Stream>>,
}

/// A message that begins.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) from: u32,
    pub(crate) handler: u32,
    pub(crate) announced: u64,
    pub(crate) body: Body,
    pub(crate) rest: Option<Arc<Stream>>,
}

impl<'a> Incoming<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        yielder: Option<&'a Yielder<(), ()>>,
        begins: Beginning,
    ) -> Incoming<'a> {
        let Beginning { from, handler, announced, body, rest } = begins;
        let incoming = Incoming { shared, yielder, from, handler, announced, front: Cell::new(None), rest };
        incoming.put_back(body, 0);
        incoming
    }

    /// The node that sent it.
    pub fn sender(&self) -> u32 {
        self.from
    }

    /// The number of the handler that it is for.
    pub fn handler(&self) -> u32 {
        self.handler
    }

    /// The length in bytes that its sender announced: it has at most so many.
    pub fn announced(&self) -> u64 {
        self.announced
    }

    /// Receives the next bytes into `into`: how many, which is fewer only where the message has no more.
    ///
    /// Where they have not arrived, the handler waits here while the call that runs it goes on with other
    /// messages. Where they never will, it does not return.
    pub fn receive(&self, into: &mut [u8]) -> u64 {
        let mut at = 0;
        self.receive_with(into.len() as u64, &mut |bytes| {
            into[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        })
    }

    /// As [`Incoming::receive`], of the next `wanted` bytes: each part is given to `take`, which uses nothing
    /// of this message.
    pub fn receive_with(&self, wanted: u64, take: &mut dyn FnMut(&[u8])) -> u64 {
        let mut got = 0;
        while got < wanted {
            if let Some((body, at)) = self.front.take() {
                let left = &body.bytes()[at..];
                let part = usize::try_from(wanted - got).map_or(left.len(), |most| most.min(left.len()));
                take(&left[..part]);
                got += part as u64;
                self.put_back(body, at + part);
                continue;
            }
            match self.rest.as_ref().map_or(Next::Ended, |rest| rest.next()) {
                Next::Body(body) => self.put_back(body, 0),
                Next::Ended => break,
                Next::NotYet => self.yielder.expect("more is to come of several packets alone").suspend(()),
            }
        }
        Counters::bump(&self.shared.counters.copied_received, got);
        got
    }

    /// Keeps a packet, received up to `at`, if anything of it is left.
    #[inline]
    fn put_back(&self, body: Body, at: usize) {
        if at < body.bytes().len() {
            self.front.set(Some((body, at)));
        } else {
            drop(body);
            self.shared.consumed(self.from);
        }
    }
}

/// What the handler has not received is thrown away.
impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let front = usize::from(self.front.take().is_some());
        let rest = self.rest.as_ref().map_or(0, |rest| rest.discard());
        (0..front + rest).for_each(|_| self.shared.consumed(self.from));
    }
}

impl std::fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Incoming");
        shown.field("sender", &self.from).field("handler", &self.handler);
        shown.field("announced", &self.announced).finish_non_exhaustive()
    }
}

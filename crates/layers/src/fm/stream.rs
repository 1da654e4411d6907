//! A message of several packets, on its way from the packets to its handler.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::body::Body;
use super::lock::lock;

/// Shared by its handler, the thread that suspended it, and whoever extracts its packets.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The number of its handler's run.
    pub(crate) run: u64,
    /// The [token](super::runner) of the thread that its handler runs on.
    pub(crate) thread: u64,
    /// The node that sends it.
    pub(crate) from: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bodies: VecDeque<Body>,
    is_ended: bool,
    is_cut: bool,
    /// Nobody will receive from it any more.
    is_discarded: bool,
}

/// What a handler finds that wants more.
#[derive(Debug)]
pub(crate) enum Next {
    Body(Body),
    /// There is no more.
    Ended,
    /// It has not come yet.
    NotYet,
}

impl Stream {
    pub(crate) fn new(run: u64, thread: u64, from: u32) -> Stream {
        Stream { run, thread, from, state: Mutex::default() }
    }

    /// Adds a packet's bytes: `false` where nobody wants them.
    pub(crate) fn push(&self, body: Body, is_last: bool) -> bool {
        let mut state = lock(&self.state);
        state.is_ended |= is_last;
        if !state.is_discarded {
            state.bodies.push_back(body);
        }
        !state.is_discarded
    }

    pub(crate) fn next(&self) -> Next {
        let mut state = lock(&self.state);
        match state.bodies.pop_front() {
            Some(body) => Next::Body(body),
            None if state.is_ended => Next::Ended,
            None => Next::NotYet,
        }
    }

    /// Notes that the rest never comes.
    pub(crate) fn cut(&self) {
        lock(&self.state).is_cut = true;
    }

    pub(crate) fn is_cut(&self) -> bool {
        lock(&self.state).is_cut
    }

    /// Throws away what is there and what comes; how many packets were there.
    pub(crate) fn discard(&self) -> usize {
        let mut state = lock(&self.state);
        state.is_discarded = true;
        let bodies = std::mem::take(&mut state.bodies);
        drop(state);
        bodies.len()
    }
}

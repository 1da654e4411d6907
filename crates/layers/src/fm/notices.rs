//! Notices of the layer where its interface has no way to give them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lock::lock;

/// An error that the layer has gone on after. Each is told once for the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Notice {
    /// A node is lost: messages to it are thrown away.
    Lost {
        /// Which.
        node: u32,
    },
    /// A message named a handler that is not registered here, and was thrown away.
    NoHandler {
        /// The handler's number.
        handler: u32,
        /// The sender of the message.
        from: u32,
    },
    /// A handler's message will never be complete, as its sender is lost, or was itself cut short. The
    /// handler stays where it waits, and its stack is set aside.
    SetAside {
        /// The sender of the message.
        from: u32,
    },
    /// A node sent what no process of this layer sends. It was refused.
    Refused {
        /// Its sender.
        from: u32,
    },
    /// A message that a handler wants to send needs more packets than a handler can ever have at once.
    TooLong {
        /// The packets that it needs.
        packets: u64,
        /// The most that there can be.
        most: u32,
    },
    /// The layer ended before the program had ended a message: it was thrown away.
    NotEnded {
        /// Whom it was for.
        node: u32,
        /// The bytes that were given to it.
        given: u64,
        /// The bytes that were announced.
        announced: u64,
    },
    /// The system gives no memory for a handler's stack. Messages stay until there is some.
    NoStack,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Lost { node } => write!(f, "node {node} is lost: messages to it are thrown away"),
            Notice::NoHandler { handler, from } => write!(
                f,
                "node {from} sent a message to handler {handler}, which is not registered here: it is thrown \
                 away; register all handlers, in the same order everywhere, before the first FM_extract"
            ),
            Notice::SetAside { from } => write!(
                f,
                "a message of node {from} will never be complete: its handler is not gone on with, and its \
                 stack is set aside"
            ),
            Notice::Refused { from } => write!(f, "node {from} sent what FM does not send: it is refused"),
            Notice::TooLong { packets, most } => write!(
                f,
                "a message of {packets} packets cannot be sent by a handler, where {most} are the most: \
                 FM_begin_message gives NULL for ever; send it when the handler has returned"
            ),
            Notice::NotEnded { node, given, announced } => write!(
                f,
                "a message to node {node} was not ended, with {given} of {announced} bytes: it is thrown away; \
                 call FM_end_message first"
            ),
            Notice::NoStack => write!(f, "the system gives no memory for the stack of a handler"),
        }
    }
}

/// Different notices that are kept; what comes after is only counted.
const NOTICES_MAX: usize = 256;

/// The notices of a process.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    has_new: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: BTreeSet<Notice>,
    new: Vec<Notice>,
}

impl Notices {
    pub(crate) fn add(&self, notice: Notice) {
        let mut state = lock(&self.state);
        if state.told.len() < NOTICES_MAX && state.told.insert(notice) {
            state.new.push(notice);
            self.has_new.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn take(&self) -> Vec<Notice> {
        if !self.has_new.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.has_new.store(false, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.state).new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_told_once_and_only_so_many_are() {
        let notices = Notices::default();
        let lost = Notice::Lost { node: 3 };
        assert!(notices.take().is_empty());
        (0..2).for_each(|_| notices.add(lost));
        assert_eq!(notices.take(), [lost]);
        notices.add(lost);
        assert!(notices.take().is_empty());
        (0..1000).for_each(|from| notices.add(Notice::Refused { from }));
        assert_eq!(notices.take().len(), NOTICES_MAX - 1);
    }
}

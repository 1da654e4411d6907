//! Closing a node within a time, whoever has handles on it.

use std::time::{Duration, Instant};

use crate::api::node::Node;
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::Error;
use crate::runtime::core::Progress;
use crate::runtime::shared::Left;

/// How often closing looks whether a handler still runs.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Of the time that closing may take, this much is left at most for telling peers of other hosts.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Messages that closing handles, at most.
const LAST_MAX: u32 = 1 << 16;

debug_is_display!(CloseError);

/// The part of closing that failed, or was late. But for the first, the node has closed all the same.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// Nothing was done: closing waits, and a handler must not; or the node was closed before, or is the
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
        /// The caller: a handler, or others.
        what: &'static str,
    },
}

impl CloseError {
    /// The kind of error: a number and a name that do not change.
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
        !matches!(self, CloseError::Refused(error) if !matches!(error, Error::Closed { .. }))
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
    /// Handlers of the messages that have come by then run first, as far as the time allows: those of a peer
    /// of this host that sent them before a [barrier](Node::barrier) have come.
    ///
    /// A client that [shares](Node::shared) the node with others closes alone, and the node goes on. Its
    /// handlers are gone and none of them runs when this returns. Its handles end their calls with
    /// [`Error::Closed`].
    ///
    /// Without this, the node closes when its last handle is dropped, which waits 2 s for the network, and
    /// for the library's threads as long as it takes. It does not wait for what was given up and may still
    /// write at its target, as [`Node::quiet`] does.
    ///
    /// # Errors
    /// See [`CloseError`]. Not in handlers.
    pub fn close(self, within: Duration) -> Result<(), CloseError> {
        self.may_wait("closing the node").map_err(CloseError::Refused)?;
        // Handles that a handler has kept of its call do not keep a node alive.
        let kept = Error::InHandler { call: "closing the node by a handler's handle" };
        let share = self.own_share().ok_or(CloseError::Refused(kept))?;
        let begun = Instant::now();
        let left = || within.saturating_sub(begun.elapsed());
        // Peers of other hosts are to learn of it, too, where something does not end.
        let for_leave = (within / 10).min(LEAVE_MAX);
        let done = self.within(within - for_leave).quiet().map_err(CloseError::Undone);
        self.handle_what_has_come(|| left().saturating_sub(for_leave));
        // Of two threads that close at once, the second one waits for nothing more.
        if !share.may_end() {
            return Err(CloseError::Refused(Error::Closed { call: "closing the node" }));
        }
        let unfinished = |what| CloseError::Unfinished { waited: begun.elapsed(), what };
        // While it is kept, nobody opens the node again.
        let _closing = match share.leave() {
            Left::Others => {
                return done.and(if self.rests_within(left) {
                    Ok(())
                } else {
                    Err(unfinished("a handler that runs"))
                });
            }
            Left::Nobody(closing) => closing,
        };
        self.core.peers.clients.begin_to_leave();
        let told = self.core.take_leave(left());
        let told = if told { Ok(()) } else { Err(CloseError::Unsent { waited: begun.elapsed() }) };
        // A thread that drops the last handle meanwhile finds it ended.
        share.life().may_end();
        self.core.peers.close();
        // A handler that a thread of the program's runs is waited for here.
        self.rests_within(left);
        let finished = share.life().finish(left()).map_err(unfinished);
        done.and(told).and(finished)
    }

    /// Runs the handlers of what has come. Peers may send without end: so no more than so many.
    fn handle_what_has_come(&self, left: impl Fn() -> Duration) {
        let mut handled = 0;
        while handled < LAST_MAX && !left().is_zero() {
            match self.core.progress(1) {
                Progress::Moved => handled += 1,
                // Another thread is at it.
                Progress::Taken => std::thread::sleep(LOOK_AGAIN),
                Progress::Idle => break,
            }
        }
    }

    /// Waits until no handler runs, for what is left of the time. Whether none does.
    fn rests_within(&self, left: impl Fn() -> Duration) -> bool {
        while !self.core.rests() {
            if left().is_zero() {
                return false;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        true
    }
}

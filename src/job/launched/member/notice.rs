//! Notices that a member is told without asking.

use crate::job::launched::wire::How;

/// A notice that a member is told without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// `rank` is gone and does not come back. Told once for each rank, also when the rank went before this
    /// member joined.
    Lost {
        /// The rank that is gone.
        rank: u32,
        /// How it went.
        how: How,
    },
    /// Some peer reaches this process's private memory by messages only, so that it depends on this process's
    /// progress. Told at most once.
    Serve,
    /// Somebody looks at the job from outside: this process's counters are to be shown as they are now.
    Look,
    /// The launcher or the broker is gone: no peer can be connected to and no further loss will be told.
    BrokerGone,
}

/// Handles a notice. Runs on the thread `standpipe-watch`, one notice at a time, perhaps before
/// [`Membership::join`](super::Membership::join) has returned; it must not call
/// [`Membership::connect`](super::Membership::connect), whose answer it would keep from being read.
pub type OnNotice = Box<dyn Fn(Notice) + Send>;

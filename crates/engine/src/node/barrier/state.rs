//! How far a rank has come with barriers, and what it has still to tell of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::Message;
use crate::{OpError, Rank};

/// The rank that keeps the barrier's counter.
pub const KEEPER: Rank = 0;

/// What is to be told about the barrier and could not be sent, though the peers are not lost: those would
/// wait for ever. One message a peer: that the last barrier is open, as nobody waits for an earlier one any
/// more, or that none will open again, which makes the peer look itself whether the last one is.
#[derive(Default)]
pub(in crate::node) struct UnsentNotices {
    pub(in crate::node) by_peer: BTreeMap<Rank, Message>,
    /// Polls until they are tried again.
    pub(in crate::node) polls_left: u32,
    /// What `polls_left` started from: it doubles with each trial in vain.
    pub(in crate::node) pause: u32,
}

impl UnsentNotices {
    /// Keeps the notice for `peer` in place of an older one, to be tried at the next poll.
    pub(in crate::node) fn keep(&mut self, peer: Rank, notice: Message) {
        let kept = self.by_peer.entry(peer).or_insert(notice);
        if !matches!(kept, Message::BarrierBroken { .. }) {
            *kept = notice;
        }
        (self.polls_left, self.pause) = (0, 0);
    }
}

/// How far this rank has come with barriers.
#[derive(Default)]
pub(in crate::node) struct Barrier {
    /// Barriers that this rank has arrived at.
    pub(in crate::node) arrived: u64,
    /// The last barrier known to be open.
    pub(in crate::node) opened: u64,
    /// Barriers whose opening this rank's caller has been told of. A barrier may open after a wait for it
    /// timed out; the next call is then still about that one.
    pub(in crate::node) passed: u64,
    /// Why this rank could not be counted in: no later barrier can work either.
    pub(in crate::node) broken: Option<OpError>,
    /// Ranks whose first process is lost. Others may have their ranks by now; the barrier is not theirs.
    pub(in crate::node) lost: BTreeSet<Rank>,
}

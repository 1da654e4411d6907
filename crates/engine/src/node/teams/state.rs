//! The teams of a node.

use slotmap::SecondaryMap;

use super::roster::Roster;
use super::run::CollectiveRun;
use super::small::state::{SmallCollective, SmallPolled};
use super::wants::{Wanted, Wants};
use crate::Transport;
use crate::node::core::Core;
use crate::op_id::{OpId, OpKey};

/// The teams of a node, and their collectives under way.
///
/// It is told what callers and members do, and says what follows by [`Teams::next_wanted`], which the loop
/// does. Transfers that get what members offer are operations of their own, parts of their collectives, and
/// their ends come to [`Teams::on_read`]. A poll that finds nothing calls [`Teams::retry`], and whoever has
/// looked at the clock [`Teams::ask_the_awaited`]. The loss of a peer ends the teams that it is in:
/// [`Teams::break_teams_of`].
pub(in crate::node) struct Teams {
    pub(super) roster: Roster,
    /// The collectives under way, and those that have ended well and whose outcome has not been taken.
    pub(super) runs: SecondaryMap<OpKey, Box<CollectiveRun>>,
    /// A collective by rounds, for whoever polls for it just now.
    pub(super) small: SmallCollective,
    pub(super) wants: Wants,
}

impl Teams {
    /// With the team of all ranks.
    pub(in crate::node) fn new(size: u32) -> Teams {
        let (runs, small) = (SecondaryMap::new(), SmallCollective::default());
        Teams { roster: Roster::new(size), runs, small, wants: Wants::default() }
    }

    /// The result of the small collective that its caller has begun.
    #[inline(always)]
    pub(in crate::node) fn poll_small<T: Transport>(&mut self, core: &mut Core<T>) -> SmallPolled {
        self.small.poll(core)
    }

    /// The next thing that the loop is to do.
    #[inline]
    pub(in crate::node) fn next_wanted(&mut self) -> Option<Wanted> {
        self.wants.now.pop_front()
    }

    /// Whether nothing is to be done.
    pub(in crate::node) fn want_nothing(&self) -> bool {
        self.wants.now.is_empty()
    }

    /// Whether something could not be sent.
    #[inline(always)]
    pub(in crate::node) fn has_unsent(&self) -> bool {
        !self.wants.unsent.is_empty()
    }

    /// Whether a collective waits for a step in own memory, which whoever polls is to be told of.
    #[inline(always)]
    pub(in crate::node) fn has_local(&self) -> bool {
        !self.wants.local.is_empty()
    }

    /// A collective whose step in own memory whoever polls is to do.
    #[inline]
    pub(in crate::node) fn next_local(&mut self) -> Option<OpId> {
        self.wants.local.pop_front().map(OpId::of)
    }

    /// The outcome of one has been taken, and with it all that was kept for its caller.
    pub(in crate::node) fn forget_run(&mut self, key: OpKey) {
        self.runs.remove(key);
    }
}

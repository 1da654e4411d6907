//! Notices of rights that their owner wants back before they have come here.
//!
//! An answer and the notice that something of it is revoked go by different lanes, and the notice may be
//! first. It is kept until the right has come, to be given back at once, or can come no more: when all moves
//! are answered that were under way at the notice.
//!
//! Nobody can make this grow as it likes. An owner gives at most one right for each bucket that it is asked
//! for, and revokes each right once. So one that has revoked more rights than it was ever asked for buckets
//! breaks the rules. That bound counts since the peer was met: what it was asked for long ago may be revoked
//! now, and notices may be late.

use std::collections::BTreeMap;

use crate::Rank;
use crate::registration::Run;
use crate::registration::table::HolderId;

/// The notices of one peer.
#[derive(Default)]
struct Owner {
    /// Rights that it may yet revoke, at most.
    revocable: u64,
    /// Rights by their names, and the newest move that was under way at the notice.
    notices: BTreeMap<u32, u32>,
}

/// Rights that were asked of peers, and those that they revoked too early.
#[derive(Default)]
pub(in crate::node) struct EarlyRevocations(BTreeMap<Rank, Owner>);

impl EarlyRevocations {
    /// A peer is asked for these buckets.
    pub(in crate::node) fn asked(&mut self, peer: Rank, runs: &[Run]) {
        let buckets: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        self.0.entry(peer).or_default().revocable += buckets;
    }

    /// A peer is asked for the key of a grant.
    pub(in crate::node) fn asked_for_key(&mut self, peer: Rank) {
        self.0.entry(peer).or_default().revocable += 1;
    }

    /// A peer revokes a right. `false`: it has given none that it could.
    pub(in crate::node) fn revoked(&mut self, peer: Rank) -> bool {
        let owner = self.0.get_mut(&peer).filter(|owner| owner.revocable > 0);
        owner.map(|owner| owner.revocable -= 1).is_some()
    }

    /// Keeps the notice of a right that may come with the answer to a move up to this one.
    pub(in crate::node) fn keep(&mut self, peer: Rank, holder: HolderId, newest: u32) {
        self.0.entry(peer).or_default().notices.entry(holder.0).or_insert(newest);
    }

    /// Whether there was notice of a right, which has come now.
    pub(in crate::node) fn take(&mut self, peer: Rank, holder: HolderId) -> bool {
        self.0.get_mut(&peer).is_some_and(|owner| owner.notices.remove(&holder.0).is_some())
    }

    /// Whether there is notice of a peer's rights.
    pub(in crate::node) fn has(&self, peer: Rank) -> bool {
        self.0.get(&peer).is_some_and(|owner| !owner.notices.is_empty())
    }

    /// The rights of a peer's that can come no more: of the moves to it that are under way this is the
    /// oldest.
    pub(in crate::node) fn over(&mut self, peer: Rank, oldest: Option<u32>) -> Vec<HolderId> {
        let Some(owner) = self.0.get_mut(&peer) else { return Vec::new() };
        // After the largest number comes 0.
        let is_over = |newest: u32| oldest.is_none_or(|oldest| (newest.wrapping_sub(oldest) as i32) < 0);
        let over: Vec<HolderId> = owner
            .notices
            .iter()
            .filter(|(_, newest)| is_over(**newest))
            .map(|(name, _)| HolderId(*name))
            .collect();
        over.iter().for_each(|holder| _ = owner.notices.remove(&holder.0));
        over
    }

    /// Forgets a peer that is gone.
    pub(in crate::node) fn forget(&mut self, peer: Rank) {
        self.0.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_waits_for_the_moves_of_its_time_and_no_others() {
        let mut early = EarlyRevocations::default();
        early.keep(1, HolderId(7), u32::MAX);
        early.keep(1, HolderId(8), 1);
        assert_eq!(early.over(1, Some(u32::MAX)), []);
        assert_eq!(early.over(1, Some(0)), [HolderId(7)], "numbers begin again");
        assert!(early.has(1) && !early.has(2) && !early.take(1, HolderId(7)) && early.take(1, HolderId(8)));
        early.keep(1, HolderId(9), 5);
        assert_eq!(early.over(1, None), [HolderId(9)]);
    }

    #[test]
    fn a_peer_revokes_no_more_than_it_was_asked_for() {
        let mut early = EarlyRevocations::default();
        assert!(!early.revoked(1));
        early.asked(1, &[Run { first: 0, count: 2 }, Run { first: 9, count: 1 }]);
        assert_eq!(
            [early.revoked(1), early.revoked(1), early.revoked(1), early.revoked(1)],
            [true, true, true, false]
        );
        assert!(!early.revoked(2));
    }
}

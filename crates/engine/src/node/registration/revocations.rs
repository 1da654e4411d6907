//! Rights that were revoked, and whose holders have not answered.

use std::collections::{BTreeMap, BTreeSet};

use crate::registration::table::HolderId;
use crate::{Nanos, Rank};

/// The time that a holder is given, besides what all are, for each right that was revoked. A program may free
/// very much at once, and each right is a message there and one back.
pub(in crate::node) const TIME_PER_RIGHT: Nanos = 100_000;

/// A holder answers exactly once for each; the name means this right and no other until then.
#[derive(Default)]
pub(in crate::node) struct Revocations {
    /// By holders, and the rights' names.
    rights: BTreeMap<(Rank, u32), Right>,
    /// Rights that a holder has and may use.
    out: BTreeMap<u64, Rank>,
    holders: BTreeMap<Rank, Owing>,
    /// Rights that nobody has looked at the clock for.
    untimed: Vec<(Rank, u64)>,
    /// How many there ever were.
    count: u64,
}

struct Right {
    /// How many were revoked before.
    number: u64,
    /// The holder gave it up by itself, before it heard.
    given_up: bool,
}

/// The rights that a holder has not answered for, by their numbers: since when each is waited for, once
/// anybody has looked, and how many there were then.
type Owing = BTreeMap<u64, (Option<Nanos>, u64)>;

impl Revocations {
    /// How many rights have been revoked so far.
    pub(in crate::node) fn count(&self) -> u64 {
        self.count
    }

    /// Whether no holder is to answer.
    #[inline]
    pub(in crate::node) fn is_empty(&self) -> bool {
        self.rights.is_empty()
    }

    /// Whether any may still be used.
    #[inline]
    pub(in crate::node) fn are_out(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether none of the first so many may still be used.
    pub(in crate::node) fn are_given_back(&self, count: u64) -> bool {
        self.out.first_key_value().is_none_or(|(oldest, _)| *oldest >= count)
    }

    /// A right is revoked.
    pub(in crate::node) fn add(&mut self, peer: Rank, holder: HolderId) {
        let number = self.count;
        self.count += 1;
        self.rights.insert((peer, holder.0), Right { number, given_up: false });
        self.out.insert(number, peer);
        let owing = self.holders.entry(peer).or_default();
        owing.insert(number, (None, 0));
        self.untimed.push((peer, number));
    }

    /// The holder gives one up by itself. `false`: this one was not revoked.
    pub(in crate::node) fn give_up(&mut self, peer: Rank, holder: HolderId) -> bool {
        let Some(right) = self.rights.get_mut(&(peer, holder.0)) else { return false };
        right.given_up = true;
        let number = right.number;
        self.settle(number);
        true
    }

    /// The holder answers. Whether it had given the right up before; `None`: this one was not revoked.
    pub(in crate::node) fn answered(&mut self, peer: Rank, holder: HolderId) -> Option<bool> {
        let right = self.rights.remove(&(peer, holder.0))?;
        self.settle(right.number);
        Some(right.given_up)
    }

    /// A right is used no more.
    fn settle(&mut self, number: u64) {
        let Some(peer) = self.out.remove(&number) else { return };
        if let Some(owing) = self.holders.get_mut(&peer) {
            owing.remove(&number);
            if owing.is_empty() {
                self.holders.remove(&peer);
            }
        }
    }

    /// Forgets what a peer was to answer. Returns the names of the rights that it had given up.
    pub(in crate::node) fn drop_holder(&mut self, peer: Rank) -> Vec<HolderId> {
        let mut theirs = self.rights.split_off(&(peer, 0));
        if let Some(next) = peer.checked_add(1) {
            self.rights.append(&mut theirs.split_off(&(next, 0)));
        }
        for right in theirs.values() {
            self.settle(right.number);
        }
        theirs.into_iter().filter(|(_, right)| right.given_up).map(|((_, name), _)| HolderId(name)).collect()
    }

    /// The holders that may still use any.
    pub(in crate::node) fn owing(&self) -> BTreeSet<Rank> {
        self.holders.keys().copied().collect()
    }

    /// Begins to wait for what is not waited for yet, and says when the time of each holder ends for the
    /// oldest right that it has not answered.
    pub(in crate::node) fn ends(&mut self, now: Nanos, within: Nanos) -> impl Iterator<Item = (Rank, Nanos)> {
        for (peer, number) in self.untimed.drain(..) {
            let Some(owing) = self.holders.get_mut(&peer) else { continue };
            let rights = owing.len() as u64;
            if let Some(time) = owing.get_mut(&number) {
                *time = (Some(now), rights);
            }
        }
        self.holders.iter().filter_map(move |(peer, owing)| {
            let (_, (since, rights)) = owing.first_key_value()?;
            let time = within.saturating_add(rights.saturating_mul(TIME_PER_RIGHT));
            Some((*peer, since.unwrap_or(now).saturating_add(time)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_has_time_for_what_it_holds() {
        let mut revoked = Revocations::default();
        for name in 0..1000 {
            revoked.add(7, HolderId(name));
        }
        revoked.add(8, HolderId(1000));
        let ends = |revoked: &mut Revocations, now| revoked.ends(now, 10).collect::<Vec<_>>();
        assert_eq!(ends(&mut revoked, 5), [(7, 15 + 1000 * TIME_PER_RIGHT), (8, 15 + TIME_PER_RIGHT)]);
        for name in 0..999 {
            assert_eq!(revoked.answered(7, HolderId(name)), Some(false));
        }
        assert_eq!(
            ends(&mut revoked, 50),
            [(7, 15 + 1000 * TIME_PER_RIGHT), (8, 15 + TIME_PER_RIGHT)],
            "none is hurried"
        );
        assert!(!revoked.are_given_back(1000) && revoked.are_given_back(999));
        assert_eq!((revoked.answered(7, HolderId(3)), revoked.answered(8, HolderId(999))), (None, None));
        assert!(revoked.give_up(7, HolderId(999)) && !revoked.give_up(7, HolderId(4)));
        assert_eq!(revoked.owing(), [8].into());
        assert!(revoked.are_given_back(1000) && !revoked.is_empty(), "it is still to answer");
        assert_eq!(revoked.drop_holder(8), []);
        assert!(!revoked.are_out() && revoked.count() == 1001);
        assert_eq!(revoked.answered(7, HolderId(999)), Some(true));
        assert!(revoked.is_empty());
    }

    #[test]
    fn who_answers_all_that_it_is_asked_has_time_without_end() {
        let mut revoked = Revocations::default();
        for round in 0..100 {
            revoked.add(7, HolderId(round));
            // There is always one that it has not answered yet.
            if round > 0 {
                assert_eq!(revoked.answered(7, HolderId(round - 1)), Some(false));
            }
            let now = u64::from(round) * 5;
            assert!(revoked.ends(now, 10).eq([(7, now + 10 + TIME_PER_RIGHT)]));
        }
    }

    #[test]
    fn names_that_a_lost_holder_had_given_up_are_free() {
        let mut revoked = Revocations::default();
        for name in 0..4 {
            revoked.add(name % 2, HolderId(name));
        }
        assert!(revoked.give_up(1, HolderId(3)));
        assert_eq!(revoked.drop_holder(1), [HolderId(3)]);
        assert_eq!((revoked.owing(), revoked.answered(1, HolderId(1))), ([0].into(), None));
    }
}

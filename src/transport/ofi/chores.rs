//! The work of a poll besides asking the provider.

use std::collections::VecDeque;

use engine::Rank;

/// Something that is to be done for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    /// To try again what the provider had no room for.
    Stuck,
    /// To give back many credits.
    Owing,
    /// To send messages that gather.
    Gathering,
}

/// Peers by what is to be done for them, in turn.
#[derive(Default)]
pub(super) struct Chores {
    lists: [VecDeque<Rank>; 3],
    /// How many stand in all lists: a poll looks at this alone.
    all: usize,
}

impl Chores {
    /// How many there are of all kinds.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.all
    }

    /// How many peers there are to do this for.
    #[inline]
    pub(super) fn len_of(&self, chore: Chore) -> usize {
        self.lists[chore as usize].len()
    }

    /// Whether this is to be done for anybody.
    #[inline]
    pub(super) fn has(&self, chore: Chore) -> bool {
        self.len_of(chore) > 0
    }

    pub(super) fn push(&mut self, chore: Chore, rank: Rank) {
        self.lists[chore as usize].push_back(rank);
        self.all += 1;
    }

    pub(super) fn pop(&mut self, chore: Chore) -> Option<Rank> {
        let rank = self.lists[chore as usize].pop_front()?;
        self.all -= 1;
        Some(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_turns_and_all_are_counted() {
        let mut chores = Chores::default();
        for (chore, rank) in [(Chore::Owing, 5), (Chore::Stuck, 1), (Chore::Owing, 2)] {
            chores.push(chore, rank);
        }
        assert_eq!((chores.len(), chores.len_of(Chore::Owing)), (3, 2));
        assert_eq!(chores.pop(Chore::Gathering), None);
        assert_eq!((chores.pop(Chore::Owing), chores.pop(Chore::Owing)), (Some(5), Some(2)));
        assert!(!chores.has(Chore::Owing) && chores.has(Chore::Stuck) && chores.len() == 1);
    }
}

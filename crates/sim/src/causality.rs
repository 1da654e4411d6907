//! Who may have heard of whose changes to memory.
//!
//! An operation that starts after memory has changed may go by an old registration only while its initiator
//! cannot know of the change. It can know by what programs tell each other: Active Messages, barriers, and
//! words that both use atomics on. What is put somewhere and looked at there is not followed.

use engine::wire::Kind;
use engine::{Header, Rank};

/// A change of some rank's memory: they are numbered from 1 on.
pub(crate) type Change = u64;

/// For each rank that ever changed its memory, the last change that was heard of. Empty where nothing was.
#[derive(Clone, Debug, Default)]
pub(crate) struct CausalHistory(Vec<(Rank, Change)>);

impl CausalHistory {
    /// Whether nothing was heard of anybody.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last change of `owner` that was heard of; 0 for none.
    pub(crate) fn of(&self, owner: Rank) -> Change {
        self.0.iter().find(|(rank, _)| *rank == owner).map_or(0, |(_, last)| *last)
    }

    /// Notes that a change of `owner`'s was heard of, and with it all before.
    pub(crate) fn note(&mut self, owner: Rank, change: Change) {
        match self.0.iter_mut().find(|(rank, _)| *rank == owner) {
            Some((_, last)) => *last = change.max(*last),
            None => self.0.push((owner, change)),
        }
    }

    /// Adds what others have heard.
    pub(crate) fn merge(&mut self, others: &CausalHistory) {
        others.0.iter().for_each(|(owner, change)| self.note(*owner, *change));
    }
}

/// Whether a program learns anything from this message: most are the engine's own.
pub(crate) fn tells(header: &[u64; Header::WORDS], payload: usize) -> bool {
    let kind = Header::decode(header, payload).map(|header| header.kind);
    matches!(kind, Ok(Kind::AmShort | Kind::AmMedium | Kind::AmLong | Kind::BarrierOpen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heard_only_grows() {
        let (mut owner, mut other) = (CausalHistory::default(), CausalHistory::default());
        other.merge(&owner);
        assert!(other.is_empty());
        owner.note(0, 10);
        other.note(0, 20);
        other.merge(&owner);
        assert_eq!((owner.of(0), other.of(0), other.of(1)), (10, 20, 0));
        owner.merge(&other);
        assert_eq!(owner.of(0), 20);
    }

    #[test]
    fn programs_learn_from_each_other_and_not_from_the_engine() {
        assert!(tells(&Header::new(Kind::AmShort).encode(), 0));
        assert!(tells(&Header::new(Kind::BarrierOpen).encode(), 0));
        assert!(!tells(&Header::new(Kind::PutDone).encode(), 0));
        assert!(!tells(&[u64::MAX; Header::WORDS], 0));
    }
}

//! What all ranks of a run agree on, and what each tells of it.

use serde::{Deserialize, Serialize};

/// Updates that a process may have looked at and not yet made, as the HPC Challenge has it.
pub(super) const LOOKAHEAD: usize = 1024;

/// How a word of another process's share is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// The number is put over the word. What was there is lost, so this is less than the others do.
    Put,
    /// The owner's word is combined with the number by an atomic exclusive or.
    Atomic,
    /// One Active Message for each number; its handler does the exclusive or.
    Message,
    /// One Active Message for all numbers of a batch that go to the same process.
    Batches,
}

impl Way {
    pub(super) const ALL: [Way; 4] = [Way::Put, Way::Atomic, Way::Message, Way::Batches];

    /// What JSON and lines of figures call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Put => "put",
            Way::Atomic => "atomic",
            Way::Message => "message",
            Way::Batches => "batches",
        }
    }

    /// The same for people.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Way::Put => "put",
            Way::Atomic => "atomic exclusive or",
            Way::Message => "an Active Message each",
            Way::Batches => "Active Messages of batches",
        }
    }
}

/// The run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Words of the tables, of which each is a power of two, from the smallest on.
    pub(super) tables: Vec<u64>,
    /// Updates of all processes together, of the largest table by most ways: see [`Plan::updates_of`].
    pub(super) updates: u64,
    /// How often each way has its turn.
    pub(super) rounds: u32,
    /// Whether rank 0 makes one update too few.
    pub(super) spoil: bool,
    /// Whether all share memory: then each maps all of the table before the first turn.
    pub(super) is_shared: bool,
}

impl Plan {
    /// Words of the largest table.
    pub(super) fn words_max(&self) -> u64 {
        self.tables.last().copied().unwrap_or(0)
    }

    /// Updates of a table of so many words. Smaller tables have fewer by as much as they are smaller; and so
    /// that a message for each of them does not take most of the time, there are fewer of those.
    pub(super) fn updates_of(&self, words: u64, way: Way) -> u64 {
        let fewer = if way == Way::Message { 16 } else { 1 };
        (u128::from(self.updates) * u128::from(words) / u128::from(self.words_max()) / fewer).max(1) as u64
    }

    /// All that is to be done, in its order: ways take turns, so that what disturbs the machine disturbs all
    /// alike.
    pub(super) fn turns(&self) -> impl Iterator<Item = (u64, Way)> + '_ {
        let ways = |words: u64| Way::ALL.into_iter().map(move |way| (words, way));
        (0..self.rounds).flat_map(move |_| self.tables.iter().copied().flat_map(ways))
    }
}

/// One line of a rank: what one turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// Words of the table.
    pub(super) words: u64,
    /// How it was updated.
    pub(super) way: Way,
    /// From the barrier before the first update to that after the last, in nanoseconds.
    pub(super) took_ns: u64,
    /// Words of this rank's share that are not what they must be.
    pub(super) wrong: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives() {
        crate::survival::survive(vec![Turn { words: 1 << 40, way: Way::Batches, took_ns: 1, wrong: 2 }]);
    }

    #[test]
    fn smaller_tables_have_fewer_updates_and_ways_take_turns() {
        let plan = Plan {
            tables: vec![1 << 10, 1 << 12],
            updates: 1 << 14,
            rounds: 2,
            spoil: false,
            is_shared: true,
        };
        let updates = |words| Way::ALL.map(|way| plan.updates_of(words, way));
        assert_eq!(updates(1 << 12), [1 << 14, 1 << 14, 1 << 10, 1 << 14]);
        assert_eq!(updates(1 << 10), [1 << 12, 1 << 12, 1 << 8, 1 << 12]);
        let turns: Vec<(u64, Way)> = plan.turns().collect();
        assert_eq!((turns.len(), turns[3], turns[4]), (16, (1 << 10, Way::Batches), (1 << 12, Way::Put)));
    }
}

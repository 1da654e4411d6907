//! What all ranks of a job agree on, and what each tells of it.

use serde::{Deserialize, Serialize};

/// Different keys that fall to one process: as many to each, however many there are (ISx's weak scaling with
/// buckets of one width).
pub(super) const WIDTH: u32 = 1 << 20;

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Keys that each process draws.
    pub(super) keys: u64,
    /// Sorts, each of other keys.
    pub(super) rounds: u32,
    /// Decides the keys.
    pub(super) seed: u64,
    /// Whether rank 0 sends a wrong key.
    pub(super) spoil: bool,
}

impl Plan {
    /// Keys that a process has room for. What falls to it is the draw of chance: about the square root of
    /// `keys` more or less.
    pub(super) fn room(&self) -> u64 {
        self.keys + self.keys / 4 + 4096
    }
}

/// One line of a rank: what one sort came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    /// Putting own keys in order by whom they fall to, in nanoseconds.
    pub(super) bucket_ns: u64,
    /// Sending them and waiting for those of all others.
    pub(super) exchange_ns: u64,
    /// Sorting what has come.
    pub(super) sort_ns: u64,
    /// All of it, from the barrier before to that after.
    pub(super) took_ns: u64,
    /// Keys that are here in the end.
    pub(super) keys: u64,
    /// Those among them that belong elsewhere, or are smaller than the one before.
    pub(super) misplaced: u64,
    /// Sums over hashes of the keys that were drawn here, and of those that are here in the end: of all
    /// processes they are equal if no key has changed.
    pub(super) hash_before: u64,
    pub(super) hash_after: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives() {
        crate::survival::survive(vec![Round { keys: 3, hash_after: u64::MAX, ..Round::default() }]);
    }
}

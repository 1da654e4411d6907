//! What a rank tells the command that started it: its lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sim::recording::Array;

use super::{keys::Block, product::Verdict};

/// One line of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// So many puts were made until now.
    Puts(u64),
    /// The rank's part is done.
    Done(Box<Done>),
}

/// What a rank did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Puts made.
    pub puts: u64,
    /// Bytes put.
    pub bytes: u64,
    /// Time that the puts took, in nanoseconds.
    pub put_ns: u64,
    /// Time from the first barrier to the last, in nanoseconds.
    pub run_ns: u64,
    /// Bytes put into private memory, by mechanism.
    pub mechanisms: BTreeMap<String, u64>,
    /// What the rank says of its part of the result.
    pub result: RankResult,
    /// The memory that puts named here.
    pub arrays: Vec<Array>,
    /// Steps recorded; 0 unless told to record.
    pub steps: u64,
}

/// What a rank says of its part of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RankResult {
    /// Its block of the product, judged.
    Product(Verdict),
    /// Its block of the sorted keys of each round, to be judged beside the others'.
    Sorted(Vec<Block>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survival::survive;

    #[test]
    fn what_is_said_arrives() {
        let block =
            Block { keys: 2, first: 1, last: u64::MAX, in_order: true, hash_before: 7, hash_after: u64::MAX };
        let done = Done {
            puts: 3,
            bytes: 24,
            put_ns: 5,
            run_ns: 6,
            mechanisms: [("cma".to_owned(), 24)].into(),
            result: RankResult::Sorted(vec![block, block]),
            arrays: vec![Array { name: "keys".to_owned(), addr: u64::MAX - 8, len: 8 }],
            steps: 4,
        };
        survive(vec![Line::Puts(9), Line::Done(Box::new(done))]);
    }
}

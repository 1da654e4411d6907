//! What ranks have given up.

use engine::Rank;
use engine::node::Started;

use super::shadow::Words;

/// A put that has failed and may still write, and what its rank waits for before it takes the target block
/// for something else.
#[derive(Debug)]
pub(super) struct GivenUp {
    pub(super) put: u32,
    pub(super) peer: Rank,
    pub(super) words: Vec<Words>,
    /// What was under way or settling then: with that peer, or with all.
    pub(super) started: Started,
}

//! How a worker's blocks are, and what making one costs.

use std::time::Duration;

/// What all workers of a run agree on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Pieces of a block.
    pub layers: usize,
    /// Bytes of a piece.
    pub piece_bytes: usize,
    /// Bytes of blocks that a worker holds at most.
    pub cap_bytes: usize,
    /// Processor time that computing one block takes.
    pub compute: Duration,
    /// Whether a worker keeps what it pulled, so that there are several copies of a block.
    pub keep_copies: bool,
    /// Whether a worker pulls: without, it makes what it does not hold.
    pub pulls: bool,
    /// Whether workers measure single pulls before the replay, and compare each byte that they pulled. A pass
    /// that is compared with another does neither: what the study costs is not what pulling costs.
    pub examines: bool,
}

impl Plan {
    /// Blocks that a worker can hold.
    #[must_use]
    pub(crate) fn slots(&self) -> usize {
        self.cap_bytes / self.block_bytes()
    }

    /// Bytes of a block.
    #[must_use]
    pub(crate) fn block_bytes(&self) -> usize {
        self.layers * self.piece_bytes
    }
}

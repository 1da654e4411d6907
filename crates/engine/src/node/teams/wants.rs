//! The wishes of collectives.

use std::collections::VecDeque;

use crate::op_id::OpKey;
use crate::{OpError, Piece, Rank};

/// Wishes, by when they are fulfilled.
#[derive(Default)]
pub(super) struct Wants {
    /// Collectives that have something to send and found no room.
    pub(super) unsent: Vec<OpKey>,
    /// Collectives that have come to a step in this process's own memory, where whoever polls is to be told.
    pub(super) local: VecDeque<OpKey>,
    /// By the loop, at once.
    pub(super) now: VecDeque<Wanted>,
}

/// A wish that the loop fulfils at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::node) enum Wanted {
    /// Start the transfer that gets what a member offers: this operation's, which is there.
    Get(OpKey, Rank, Piece),
    /// Give such a transfer up.
    GiveUp(OpKey, OpError),
}

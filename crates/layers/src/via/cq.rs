//! Completion queues: which queue of which VI has an ended descriptor.

use std::collections::VecDeque;

use super::vi::Side;

/// Entries that a completion queue may have.
pub const ENTRIES_MAX: usize = 1 << 16;

/// A program's handler for one entry: it is called with the VI, and which of its queues it is.
pub type CqNotify = Box<dyn FnOnce(u32, Side) + Send>;

/// A completion queue.
pub(super) struct Cq {
    pub(super) nic: u32,
    pub(super) capacity: usize,
    pub(super) entries: VecDeque<(u32, Side)>,
    pub(super) notifies: VecDeque<CqNotify>,
    /// Queues of VIs that it is told of.
    pub(super) users: usize,
}

impl Cq {
    pub(super) fn new(nic: u32, capacity: usize) -> Cq {
        Cq { nic, capacity, entries: VecDeque::new(), notifies: VecDeque::new(), users: 0 }
    }

    /// Adds an entry; whether there was room.
    pub(super) fn push(&mut self, vi: u32, side: Side) -> bool {
        let has_room = self.entries.len() < self.capacity;
        if has_room {
            self.entries.push_back((vi, side));
        }
        has_room
    }
}

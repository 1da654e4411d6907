//! A work queue: descriptors in the order in which they were posted, and how far each is.

use std::collections::VecDeque;

use standpipe::{Foreign, Grant};

use super::descriptor::{Descriptor, Operation};

/// Descriptors that a queue may have at a time.
pub const DESCRIPTORS_MAX: usize = 4096;

/// How far a descriptor is.
pub(super) enum Stage {
    Waiting,
    /// Its message is on its way, and will be answered. The grants are what its receiver fetches.
    Sent {
        _offered: Vec<Grant<Foreign<()>>>,
    },
    /// Its memory at the other end is being asked for.
    Finding,
    /// Bytes are being moved.
    Moving,
    /// It has ended; whether well.
    Done {
        is_well: bool,
    },
}

/// A descriptor that was posted.
pub(super) struct Work {
    /// Its address.
    pub(super) at: u64,
    /// The handle of the memory that it lies in.
    pub(super) handle: u32,
    pub(super) descriptor: Descriptor,
    pub(super) stage: Stage,
    /// Whether a name of remote memory was found to be old, and was asked for again.
    pub(super) was_old: bool,
}

impl Work {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done { .. })
    }
}

/// A queue of descriptors.
#[derive(Default)]
pub(super) struct WorkQueue {
    works: VecDeque<Work>,
    /// The ticket of the first.
    first: u32,
    /// Of these, counted from the first, the completion queue or the program's handler was told.
    told: usize,
    /// So many, counted from the first, are not waiting any more.
    begun: usize,
}

impl WorkQueue {
    pub(super) fn is_full(&self) -> bool {
        self.works.len() >= DESCRIPTORS_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Appends a descriptor, and gives its ticket.
    pub(super) fn push(&mut self, work: Work) -> u32 {
        self.works.push_back(work);
        self.first.wrapping_add(self.works.len() as u32 - 1)
    }

    fn place(&self, ticket: u32) -> usize {
        ticket.wrapping_sub(self.first) as usize
    }

    pub(super) fn get(&self, ticket: u32) -> Option<&Work> {
        self.works.get(self.place(ticket))
    }

    pub(super) fn get_mut(&mut self, ticket: u32) -> Option<&mut Work> {
        let place = self.place(ticket);
        self.works.get_mut(place)
    }

    /// The ticket of the first that nothing was done about.
    pub(super) fn next(&mut self) -> Option<u32> {
        while self.works.get(self.begun).is_some_and(|work| !matches!(work.stage, Stage::Waiting)) {
            self.begun += 1;
        }
        (self.begun < self.works.len()).then(|| self.first.wrapping_add(self.begun as u32))
    }

    /// Has one be begun anew.
    pub(super) fn again(&mut self, ticket: u32) {
        let place = self.place(ticket);
        if let Some(work) = self.works.get_mut(place) {
            work.stage = Stage::Waiting;
            self.begun = self.begun.min(place);
        }
    }

    /// The tickets of those that have not ended.
    pub(super) fn open(&self) -> Vec<u32> {
        let open = self.works.iter().enumerate().filter(|(_, work)| !work.is_done());
        open.map(|(place, _)| self.first.wrapping_add(place as u32)).collect()
    }

    /// Whether any before that one has not ended.
    pub(super) fn has_open_before(&self, ticket: u32) -> bool {
        self.works.iter().take(self.place(ticket)).any(|work| !work.is_done())
    }

    /// Whether any that has not ended is a remote operation under way.
    pub(super) fn has_moving_before(&self, ticket: u32) -> bool {
        let before = self.works.iter().take(self.place(ticket));
        before.into_iter().any(|work| !work.is_done() && work.descriptor.remote.is_some())
    }

    /// Whether bytes of a remote write are being moved.
    pub(super) fn is_writing(&self) -> bool {
        let is_write = |work: &Work| work.descriptor.operation == Operation::Write;
        self.works.iter().any(|work| matches!(work.stage, Stage::Moving) && is_write(work))
    }

    /// Whether one has ended of which nobody was told yet; it counts as told then.
    pub(super) fn tell(&mut self) -> bool {
        let has_ended = self.works.get(self.told).is_some_and(Work::is_done);
        self.told += usize::from(has_ended);
        has_ended
    }

    /// Takes the first, if it has ended: its address, and whether it has ended well.
    pub(super) fn take(&mut self) -> Option<(u64, bool)> {
        let Stage::Done { is_well } = self.works.front()?.stage else { return None };
        let work = self.works.pop_front()?;
        self.first = self.first.wrapping_add(1);
        self.told = self.told.saturating_sub(1);
        self.begun = self.begun.saturating_sub(1);
        Some((work.at, is_well))
    }
}

//! One process's memory.

use std::collections::BTreeMap;

use engine::{Atomic, MemId, Place};

/// What may be done with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    None,
    Read,
    Full,
}

struct Range {
    access: Access,
    bytes: Vec<u8>,
}

/// The ranges of each memory of a process, by start, with unmapped space between them.
#[derive(Default)]
pub(super) struct Space {
    ranges: BTreeMap<(u64, u64), Range>,
    next: u64,
}

impl Space {
    /// The memory of a process that only has its control words.
    pub(super) fn new() -> Space {
        let mut space = Space::default();
        let control = Range { access: Access::Full, bytes: vec![0; 64] };
        space.ranges.insert((MemId::Control.to_wire(), 0), control);
        space.next = 0x1_0000;
        space
    }

    pub(super) fn map(&mut self, mem: MemId, len: usize, access: Access) -> Place {
        let place = Place::new(mem, self.next);
        self.next = (self.next + len as u64).next_multiple_of(4096) + 4096;
        self.ranges.insert((mem.to_wire(), place.offset), Range { access, bytes: vec![0; len] });
        place
    }

    fn find(&mut self, at: Place, len: usize, access: Access) -> Option<&mut [u8]> {
        let mem = at.mem.to_wire();
        let ((_, start), range) = self.ranges.range_mut((mem, 0)..=(mem, at.offset)).next_back()?;
        let from = usize::try_from(at.offset - start).ok()?;
        if range.access < access {
            return None;
        }
        range.bytes.get_mut(from..from.checked_add(len)?)
    }

    pub(super) fn readable(&mut self, at: Place, len: usize) -> Option<&[u8]> {
        self.find(at, len, Access::Read).map(|bytes| &*bytes)
    }

    pub(super) fn writable(&mut self, at: Place, len: usize) -> Option<&mut [u8]> {
        self.find(at, len, Access::Full)
    }

    /// Applies an atomic to a word and returns what was there.
    pub(super) fn apply(&mut self, word: Place, atomic: Atomic) -> Option<u64> {
        if word.mem == MemId::Space || !word.offset.is_multiple_of(atomic.size()) {
            return None;
        }
        atomic.apply_to(self.writable(word, atomic.size() as usize)?)
    }
}

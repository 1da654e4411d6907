//! Which freed parts of a heap are in no core dump.

use std::collections::BTreeMap;
use std::ops::Range;

use vm::{HeapAllocator, SharedMemory};

/// Parts are of whole steps of this size, so that they are few: each is a mapping of its own to the kernel.
const STEP_BYTES: u64 = 2 << 20;

/// Bytes that are freed before anybody looks what could be left out: a program that allocates and frees makes
/// few calls of the kernel for it.
const FREED_BYTES: u64 = 32 << 20;

/// How many parts there are at most: a process may have about 65,000 mappings.
const PARTS_MAX: usize = 1024;

/// The parts of the open heap that core dumps leave out, as no block lies there any more.
///
/// A dump reads every page of what it contains, and the system gives memory to those that have none: freed
/// memory would be there again, in the dump and in the heap.
#[derive(Debug, Default)]
pub(crate) struct Undumped {
    /// End of each part, by its start. No two touch.
    parts: BTreeMap<u64, u64>,
    /// Bytes freed since somebody looked.
    freed: u64,
}

impl Undumped {
    /// A block was taken: it is in dumps again.
    #[inline]
    pub(crate) fn on_taken(&mut self, heap: &SharedMemory, block: Range<u64>) {
        if !self.parts.is_empty() {
            self.dump(heap, block);
        }
    }

    #[cold]
    fn dump(&mut self, heap: &SharedMemory, block: Range<u64>) {
        let whole = block.start / STEP_BYTES * STEP_BYTES..block.end.next_multiple_of(STEP_BYTES);
        let touched = self.parts.range(..whole.end).rev().take_while(|(_, end)| **end > whole.start);
        let touched: Vec<Range<u64>> = touched.map(|(start, end)| *start..*end).collect();
        for part in touched {
            let dumped = part.start.max(whole.start)..part.end.min(whole.end);
            if !heap.set_dumped(dumped.clone(), true) {
                tracing::debug!(?dumped, "core dumps lack memory in use: the kernel allows no more mappings");
            }
            self.parts.remove(&part.start);
            for rest in [part.start..dumped.start, dumped.end..part.end] {
                if !rest.is_empty() {
                    self.parts.insert(rest.start, rest.end);
                }
            }
        }
    }

    /// So many bytes were freed: once that is much, dumps leave out what is free.
    #[inline]
    pub(crate) fn on_freed(&mut self, heap: &SharedMemory, allocator: &HeapAllocator, bytes: u64) {
        self.freed += bytes;
        if self.freed >= FREED_BYTES {
            self.freed = 0;
            self.leave_out(heap, allocator);
        }
    }

    #[cold]
    fn leave_out(&mut self, heap: &SharedMemory, allocator: &HeapAllocator) {
        // Beyond is nothing that dumps contain. The part that is rounded away is less than a step.
        let open = heap.open_bytes();
        for free in allocator.largest_free(STEP_BYTES).take(PARTS_MAX) {
            let part = free.start.next_multiple_of(STEP_BYTES)..free.end.min(open) / STEP_BYTES * STEP_BYTES;
            if part.is_empty() || self.parts.len() >= PARTS_MAX {
                continue;
            }
            let inside = self.parts.range(part.clone()).map(|(start, end)| *start..*end).collect::<Vec<_>>();
            if inside.first() == Some(&part) || !heap.set_dumped(part.clone(), false) {
                continue;
            }
            // Parts lie in free ranges, each in one, and never reach beyond it.
            for old in inside {
                self.parts.remove(&old.start);
            }
            self.parts.insert(part.start, part.end);
        }
    }
}

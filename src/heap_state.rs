//! Who has which part of a node's heap.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use vm::heap::{HeapAllocator, HeapFull, PageRun};
use vm::segment::PAGE_BYTES;
use vm::{Segment, SharedMemory};

use crate::sync::lock;
use crate::transport::shm::Control;

/// Blocks start at multiples of this, one cache line.
pub(crate) const ALIGN: u64 = 64;

/// A block of a heap, freed when dropped.
pub(crate) struct Block {
    heap: Arc<HeapState>,
    pub(crate) offset: u64,
}

impl Block {
    /// The memory of the heap that the block is part of.
    #[inline]
    pub(crate) fn memory(&self) -> &SharedMemory {
        self.heap.segment.memory()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.heap.free(self.offset);
    }
}

/// A node's heap: its memory, and who has which part of it.
pub(crate) struct HeapState {
    segment: Segment,
    control: Control,
    /// Bytes of it that its program's allocator divides.
    allocated: u64,
    /// The process whose heap it is.
    pid: u32,
    pages: Mutex<Pages>,
}

/// Which pages are whose.
struct Pages {
    allocator: HeapAllocator,
    /// By how many registrations each page is held, by its number: who has its key must find the page that is mapped, so
    /// that such pages stay until they are let go of, whoever frees the blocks on them.
    held: BTreeMap<u64, u32>,
}

impl HeapState {
    /// A heap of which its program's allocator has the first bytes, so many, and `allocator` divides the others.
    pub(crate) fn new(
        segment: Segment,
        control: Control,
        allocator: HeapAllocator,
        allocated: u64,
    ) -> HeapState {
        HeapState {
            segment,
            control,
            allocated,
            pid: std::process::id(),
            pages: Mutex::new(Pages { allocator, held: BTreeMap::new() }),
        }
    }

    /// Bytes that its blocks may take in all.
    pub(crate) fn len(&self) -> u64 {
        self.segment.len() - self.allocated
    }

    /// Takes a block of `len` bytes, and makes sure that peers may access it.
    pub(crate) fn alloc(self: &Arc<Self>, len: u64) -> Result<Block, HeapFull> {
        let mut pages = lock(&self.pages);
        let offset = pages.allocator.alloc(len.max(1), ALIGN)?;
        self.control.live().store(pages.allocator.high_water(), Ordering::Release);
        Ok(Block { heap: Arc::clone(self), offset })
    }

    /// Gives a block back, and the pages that nothing else uses to the system.
    fn free(&self, offset: u64) {
        let mut pages = lock(&self.pages);
        let empty = pages.allocator.free(offset).expect("only the owner of a block frees it, once");
        for run in empty.map(|run| pages.not_held(run)).unwrap_or_default() {
            self.punch(&pages, run);
        }
    }

    /// Keeps the pages of a registration that lies between these offsets, until they are [let go](HeapState::let_go) of as
    /// often: whatever is freed, they are not taken away.
    pub(crate) fn hold(&self, range: Range<u64>) {
        let mut pages = lock(&self.pages);
        for page in pages_of(&range) {
            *pages.held.entry(page).or_default() += 1;
        }
    }

    /// Gives pages that were held back to the system, if nothing else uses them.
    pub(crate) fn let_go(&self, range: Range<u64>) {
        let mut pages = lock(&self.pages);
        for page in pages_of(&range) {
            let Some(times) = pages.held.get_mut(&page) else { continue };
            *times -= 1;
            if *times == 0 {
                pages.held.remove(&page);
            }
        }
        let (start, end) = (range.start / PAGE_BYTES * PAGE_BYTES, range.end.next_multiple_of(PAGE_BYTES));
        for run in pages.allocator.empty_pages(start, end) {
            for run in pages.not_held(run) {
                self.punch(&pages, run);
            }
        }
    }

    /// Gives pages to the system, with the lock held: no page is punched after it was given out again.
    fn punch(&self, _pages: &Pages, run: PageRun) {
        if std::process::id() != self.pid {
            // A child that was forked drops its copy of what is the parent's still.
            return;
        }
        if let Err(error) = self.segment.punch(run.offset, run.len) {
            tracing::warn!(%error, "freed pages of the heap stay in memory");
        }
    }

    /// The heap's memory.
    #[inline]
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl Pages {
    /// The parts of a run that no registration holds.
    fn not_held(&self, run: PageRun) -> Vec<PageRun> {
        let pages = pages_of(&(run.offset..run.offset + run.len));
        let (mut parts, mut first) = (Vec::new(), pages.start);
        let held = self.held.range(pages.clone()).map(|(page, _)| *page);
        for page in held.chain([pages.end]) {
            if first < page {
                parts.push(PageRun { offset: first * PAGE_BYTES, len: (page - first) * PAGE_BYTES });
            }
            first = page + 1;
        }
        parts
    }
}

/// The numbers of the pages that a range touches.
fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

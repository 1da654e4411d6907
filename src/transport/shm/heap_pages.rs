//! The owners of the parts of a node's heap.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use vm::heap::{HeapAllocator, PageRun};
use vm::segment::PAGE_BYTES;
use vm::{Segment, SharedMemory};

use crate::base::lock::lock;
use crate::transport::shm::Control;
use crate::transport::shm::undumped::Undumped;

/// Blocks start at multiples of this, one cache line.
pub(crate) const ALIGN: u64 = 64;

/// A block of a heap, freed when dropped.
pub(crate) struct Block {
    heap: Arc<HeapState>,
    pub(crate) offset: u64,
    /// Whether it is freed by its place, and not when this is dropped.
    is_by_place: bool,
}

impl Block {
    /// The memory of the heap that the block is part of.
    #[inline]
    pub(crate) fn memory(&self) -> &SharedMemory {
        self.heap.segment.memory()
    }

    /// From now on the block is [freed](HeapState::free_at) by its place, which this gives.
    pub(crate) fn into_place(mut self) -> u64 {
        if !self.heap.is_forked() {
            lock(&self.heap.pages).by_place.insert(self.offset);
        }
        self.is_by_place = true;
        self.offset
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // In a child made by `fork` it is a copy of what is still the parent's, who may have held the lock.
        if !self.is_by_place && !self.heap.is_forked() {
            self.heap.free(self.offset);
        }
    }
}

/// A node's heap: its memory, and who has which part of it.
pub(crate) struct HeapState {
    segment: Segment,
    control: Control,
    /// Bytes of it that its program's allocator divides.
    allocated: u64,
    /// Of the process whose heap it is: children made by `fork` have others.
    generation: u32,
    /// Whether memory is taken for each block when it is given out, as where the system promises none.
    /// Otherwise a touch of memory that is not there would end the process that touches it, and that may be a
    /// peer.
    reserves: bool,
    pages: Mutex<Pages>,
}

/// There is no block of as many bytes.
#[derive(Debug)]
pub(crate) struct NoRoom {
    /// Bytes free, perhaps not in one piece.
    pub(crate) free: u64,
    /// Whether the heap has room, and the system no memory for it.
    pub(crate) refused: bool,
}

/// Which pages are whose.
struct Pages {
    allocator: HeapAllocator,
    /// Bytes from the beginning that are open. Peers are told by a word that they may overwrite, so that it
    /// is not believed here.
    live: u64,
    /// By how many registrations each page is held, by its number. A holder of its key must find the page
    /// that is mapped, so such pages stay until they are let go of, whoever frees the blocks on them.
    held: BTreeMap<u64, u32>,
    /// The blocks that are freed by their places.
    by_place: HashSet<u64>,
    undumped: Undumped,
}

impl HeapState {
    /// A heap of which its program's allocator has the first bytes, so many, and `allocator` divides the
    /// others.
    pub(crate) fn new(
        segment: Segment,
        control: Control,
        allocator: HeapAllocator,
        allocated: u64,
        reserves: bool,
    ) -> HeapState {
        let in_use = allocated..allocator.high_water().max(allocated);
        if reserves && let Err(error) = segment.reserve(in_use.start, in_use.end - in_use.start) {
            tracing::warn!(%error, "no memory for what the heap begins with");
        }
        HeapState {
            segment,
            control,
            allocated,
            generation: vm::forks::generation(),
            reserves,
            pages: Mutex::new(Pages {
                live: allocator.high_water(),
                allocator,
                held: BTreeMap::new(),
                by_place: HashSet::new(),
                undumped: Undumped::default(),
            }),
        }
    }

    /// Whether this is the copy that a child made by `fork` has.
    fn is_forked(&self) -> bool {
        self.generation != vm::forks::known_generation()
    }

    /// Bytes that its blocks may take in all.
    pub(crate) fn len(&self) -> u64 {
        self.segment.len() - self.allocated
    }

    /// Takes a block of `len` bytes at a multiple of `align`, a power of two, and makes sure that peers may
    /// access it.
    pub(crate) fn alloc(self: &Arc<Self>, len: u64, align: u64) -> Result<Block, NoRoom> {
        let mut pages = lock(&self.pages);
        let len = len.max(1);
        let offset =
            pages.allocator.alloc(len, align).map_err(|full| NoRoom { free: full.free, refused: false })?;
        let memory = self.segment.memory();
        // Not up to the highest block that there has ever been: that one may have been refused.
        let live = pages.live.max(offset + len);
        if let Err(error) = memory.open_to(live) {
            tracing::warn!(%error, len, "a block of the heap cannot be made accessible");
            pages.allocator.free(offset).expect("it was taken just now");
            return Err(NoRoom { free: pages.allocator.free_bytes(), refused: true });
        }
        pages.undumped.on_taken(memory, offset..offset + len);
        pages.live = live;
        self.control.live().store(live, Ordering::Release);
        drop(pages);
        let block = Block { heap: Arc::clone(self), offset, is_by_place: false };
        if self.reserves
            && let Err(error) = self.segment.reserve(offset, len)
        {
            tracing::debug!(%error, len, "no memory for a block of the heap");
            drop(block);
            return Err(NoRoom { free: lock(&self.pages).allocator.free_bytes(), refused: true });
        }
        Ok(block)
    }

    /// Frees a block by its [place](Block::into_place). `false`: there is none of those that are freed so.
    pub(crate) fn free_at(&self, offset: u64) -> bool {
        let is_known = lock(&self.pages).by_place.remove(&offset);
        if is_known {
            self.free(offset);
        }
        is_known
    }

    /// The most that blocks can be aligned to, by their addresses, here and at peers.
    pub(crate) fn align_max(&self) -> u64 {
        self.segment.align().min(1 << self.segment.memory().base_addr().trailing_zeros())
    }

    /// Gives a block back, and the pages that nothing else uses to the system.
    fn free(&self, offset: u64) {
        let mut pages = lock(&self.pages);
        let empty = pages.allocator.free(offset).expect("only the owner of a block frees it, once");
        for run in empty.map(|run| pages.not_held(run)).unwrap_or_default() {
            self.punch(&pages, run);
        }
        let Pages { allocator, undumped, .. } = &mut *pages;
        undumped.on_freed(self.segment.memory(), allocator, empty.map_or(0, |run| run.len));
    }

    /// Keeps the pages of a registration that lies between these offsets, until they are [let
    /// go](HeapState::let_go) of as often: whatever is freed, they are not taken away.
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
            assert!(*times > 0, "a page is let go as often as it is held");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::control::{Identity, Mapping};

    fn heap(reserves: bool) -> Arc<HeapState> {
        heap_of(64 << 20, reserves)
    }

    fn heap_of(bytes: u64, reserves: bool) -> Arc<HeapState> {
        let segment = Segment::create_closed("standpipe-heap", bytes).expect("address space");
        let identity = Identity {
            rank: 0,
            size: 1,
            nonce: 0,
            nonce_addr: 0,
            fences_asymmetric: false,
            ranges_only: false,
            unattended: false,
            directory: 0,
            allocated: Mapping::default(),
            heap: Mapping::of(segment.memory()),
        };
        let (control, _) = Control::create(1, &identity).expect("memory");
        Arc::new(HeapState::new(segment, control, HeapAllocator::new(bytes), 0, reserves))
    }

    #[test]
    fn where_the_system_promises_nothing_a_block_has_its_memory_when_it_is_given_out() {
        for reserves in [false, true] {
            let heap = heap(reserves);
            let resident = || heap.segment().resident_bytes().expect("it tells");
            let before = resident();
            let block = heap.alloc(8 << 20, ALIGN).expect("room");
            assert_eq!(resident() - before >= 8 << 20, reserves);
            drop(block);
            assert_eq!(resident(), before, "it is given back");
        }
    }

    /// What core dumps have of a heap.
    fn dumped(heap: &HeapState) -> Vec<Range<u64>> {
        let (base, len) = (heap.segment().memory().base_addr(), heap.segment().len());
        let maps = testbed::mapped("standpipe-heap").into_iter().filter(|map| map.is_dumped);
        let inside = maps.filter(|map| map.range.start >= base && map.range.end <= base + len);
        inside.map(|map| map.range.start - base..map.range.end - base).collect()
    }

    #[test]
    fn whatever_is_taken_and_freed_dumps_have_all_blocks_and_little_else() {
        const MIB: u64 = 1 << 20;
        let heap = heap_of(1024 * MIB, false);
        let mut blocks: Vec<(Block, u64)> = Vec::new();
        let mut state = 41_u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        let turns = if testbed::has_time_for("400 turns instead of 100") { 400 } else { 100 };
        for turn in 0..turns {
            if turn % 100 < 50 || blocks.is_empty() {
                let len = 1 + (below(12 * MIB) >> below(12));
                blocks.push((heap.alloc(len, ALIGN).expect("room"), len));
            } else {
                blocks.swap_remove(below(blocks.len() as u64) as usize);
            }
            let dumped = dumped(&heap);
            let has = |at: u64| dumped.iter().any(|part| part.contains(&at));
            for (block, len) in &blocks {
                assert!(has(block.offset) && has(block.offset + len - 1), "{turn}: {dumped:?}");
            }
        }
        blocks.clear();
        let left: u64 = dumped(&heap).iter().map(|part| part.end - part.start).sum();
        assert!(left <= 64 * MIB, "{left} bytes of a heap that nobody uses");
    }

    #[test]
    fn what_comes_and_goes_changes_dumps_once_in_32_mib() {
        if !testbed::has_time_for("reading the process's mappings 640 times") {
            return;
        }
        let heap = heap_of(1 << 30, false);
        drop(heap.alloc(8 << 20, ALIGN).expect("room"));
        let (mut before, mut changes) = (dumped(&heap), 0);
        for _ in 0..320 {
            let block = heap.alloc(1 << 20, ALIGN).expect("room");
            let while_taken = dumped(&heap);
            drop(block);
            let after = dumped(&heap);
            changes += usize::from(while_taken != before) + usize::from(after != while_taken);
            before = after;
        }
        assert!(changes <= 20, "{changes} changes for 320 blocks");
    }
}

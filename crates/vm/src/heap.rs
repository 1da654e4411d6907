//! Which bytes of a heap segment are in use, and which of its pages nobody needs.
//!
//! The bookkeeping lies in ordinary memory, out of the peers' reach. Blocks are runs of 64-byte granules, so
//! that two never share a cache line; the smallest free range that fits is taken, the lowest of equals.
//! Adjacent free ranges are always one.
//!
//! Existing allocators of offsets did not fit. They count in 32 bits, know no alignment, reserve bookkeeping
//! for as many blocks as there may ever be, or refuse a request that would fit because sizes are rounded to
//! classes.
//!
//! To know the pages that a freed block leaves empty, only the pages that some block covers in part are
//! counted. A block has at most two of them, and every other page it touches is its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use crate::segment::PAGE_BYTES;

/// Blocks start and end at multiples of this many bytes.
pub const GRANULE_BYTES: u64 = 64;

/// The allocator of one heap: offsets in, offsets out; it never touches the memory. One thread at a time.
#[derive(Debug)]
pub struct HeapAllocator {
    size: u64,
    used: u64,
    high_water: u64,
    /// Length of each block in use, by offset.
    blocks: HashMap<u64, u64>,
    /// Length of each free range, by offset; and the same by length.
    free: BTreeMap<u64, u64>,
    free_by_len: BTreeSet<(u64, u64)>,
    /// For pages that are covered in part: by how many blocks.
    shared_pages: HashMap<u64, u32>,
}

/// A run of whole pages of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// Where it starts, in bytes: a multiple of the page size.
    pub offset: u64,
    /// Its length in bytes: likewise, and not zero.
    pub len: u64,
}

/// No free range can hold a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for {wanted} bytes aligned to {align}: {free} are free, {largest} of them together")]
pub struct HeapFull {
    /// The block's length in bytes.
    pub wanted: u64,
    /// The alignment asked for, in bytes.
    pub align: u64,
    /// Bytes free in all.
    pub free: u64,
    /// Bytes in the largest free range.
    pub largest: u64,
}

/// No block in use starts at this offset: it was freed before, or never allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no block of the heap starts at offset {offset}")]
pub struct BadFree {
    /// The offset given.
    pub offset: u64,
}

impl HeapAllocator {
    /// An allocator of `size` bytes, all free. The rest of the last granule is not used.
    pub fn new(size: u64) -> HeapAllocator {
        let size = size - size % GRANULE_BYTES;
        let mut heap = HeapAllocator {
            size,
            used: 0,
            high_water: 0,
            blocks: HashMap::new(),
            free: BTreeMap::new(),
            free_by_len: BTreeSet::new(),
            shared_pages: HashMap::new(),
        };
        heap.add_free(0, size);
        heap
    }

    /// Takes a block of `len` bytes at a multiple of `align` (a power of two) and gives its offset. An empty
    /// block takes a granule, so that no two blocks have the same offset.
    ///
    /// # Errors
    /// [`HeapFull`] if no free range can hold it, or `align` is no power of two.
    pub fn alloc(&mut self, len: u64, align: u64) -> Result<u64, HeapFull> {
        let (offset, len, range) = self.find(len, align).ok_or_else(|| self.full(len, align))?;
        let (start, end) = (range.0, range.0 + range.1);
        self.remove_free(start, range.1);
        self.add_free(start, offset - start);
        self.add_free(offset + len, end - (offset + len));
        self.blocks.insert(offset, len);
        for page in part_pages(offset, len) {
            *self.shared_pages.entry(page).or_default() += 1;
        }
        self.used += len;
        self.high_water = self.high_water.max(offset + len);
        Ok(offset)
    }

    /// Gives the block at `offset` back, and says which pages hold no block any more because of it: theirs is
    /// the memory to [`punch`](crate::Segment::punch) out. A caller that does so must allow no
    /// [`alloc`](HeapAllocator::alloc) in between.
    ///
    /// # Errors
    /// [`BadFree`] if no block in use starts there; then nothing has changed.
    pub fn free(&mut self, offset: u64) -> Result<Option<PageRun>, BadFree> {
        let len = self.blocks.remove(&offset).ok_or(BadFree { offset })?;
        self.used -= len;
        self.merge_free(offset, len);
        // Whole pages of the block first, then those at the ends that it has shared with nobody left.
        let mut first = offset.next_multiple_of(PAGE_BYTES);
        let mut end = (offset + len) / PAGE_BYTES * PAGE_BYTES;
        for page in part_pages(offset, len) {
            if self.leave_page(page) {
                let start = page * PAGE_BYTES;
                first = first.min(start);
                end = end.max(start + PAGE_BYTES);
            }
        }
        Ok((first < end).then(|| PageRun { offset: first, len: end - first }))
    }

    /// The whole pages between two offsets that hold no block.
    pub fn empty_pages(&self, start: u64, end: u64) -> Vec<PageRun> {
        let before = self.free.range(..start).next_back();
        let ranges = before.into_iter().chain(self.free.range(start..end.max(start)));
        let runs = ranges.map(|(offset, len)| {
            let first = start.max(*offset).next_multiple_of(PAGE_BYTES);
            (first, end.min(offset + len) / PAGE_BYTES * PAGE_BYTES)
        });
        let runs = runs.filter(|(first, end)| first < end);
        runs.map(|(first, end)| PageRun { offset: first, len: end - first }).collect()
    }

    /// The free ranges of at least so many bytes, the largest first.
    pub fn largest_free(&self, least: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let ranges = self.free_by_len.range((least, 0)..).rev();
        ranges.map(|(len, offset)| *offset..offset + len)
    }

    /// Bytes in use, in whole granules.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// Bytes free, in ranges of any size.
    pub fn free_bytes(&self) -> u64 {
        self.size - self.used
    }

    /// Blocks in use.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The length in whole granules of the block in use that starts at `offset`.
    pub fn block_bytes(&self, offset: u64) -> Option<u64> {
        self.blocks.get(&offset).copied()
    }

    /// The end of the highest block there ever was: nothing beyond was ever used.
    pub fn high_water(&self) -> u64 {
        self.high_water
    }

    /// The place for a block, its length in whole granules, and the free range (offset, length) it lies in.
    fn find(&self, len: u64, align: u64) -> Option<(u64, u64, (u64, u64))> {
        if !align.is_power_of_two() {
            return None;
        }
        let len = len.max(1).checked_next_multiple_of(GRANULE_BYTES)?;
        self.free_by_len.range((len, 0)..).find_map(|&(room, start)| {
            let offset = start.checked_next_multiple_of(align.max(GRANULE_BYTES))?;
            let fits = offset.checked_add(len)? <= start + room;
            fits.then_some((offset, len, (start, room)))
        })
    }

    fn full(&self, wanted: u64, align: u64) -> HeapFull {
        let largest = self.free_by_len.last().map_or(0, |(len, _)| *len);
        HeapFull { wanted, align, free: self.free_bytes(), largest }
    }

    fn add_free(&mut self, offset: u64, len: u64) {
        if len > 0 {
            self.free.insert(offset, len);
            self.free_by_len.insert((len, offset));
        }
    }

    fn remove_free(&mut self, offset: u64, len: u64) {
        self.free.remove(&offset);
        self.free_by_len.remove(&(len, offset));
    }

    /// Adds a free range, as one with those that touch it.
    fn merge_free(&mut self, mut offset: u64, mut len: u64) {
        if let Some(after) = self.free.get(&(offset + len)).copied() {
            self.remove_free(offset + len, after);
            len += after;
        }
        let before = self.free.range(..offset).next_back().map(|(start, len)| (*start, *len));
        if let Some((start, before)) = before.filter(|(start, before)| start + before == offset) {
            self.remove_free(start, before);
            offset = start;
            len += before;
        }
        self.add_free(offset, len);
    }

    /// Takes a block off a page that it covered in part, and says whether it was the last.
    fn leave_page(&mut self, page: u64) -> bool {
        let blocks = self.shared_pages.get_mut(&page).expect("counted when the block was allocated");
        assert!(*blocks > 0, "a block leaves its pages once");
        *blocks -= 1;
        let empty = *blocks == 0;
        if empty {
            self.shared_pages.remove(&page);
        }
        empty
    }
}

/// The pages that a block covers in part: its first, its last, both, one that is both, or none.
fn part_pages(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    let end = offset + len;
    let (first, last) = (offset / PAGE_BYTES, (end - 1) / PAGE_BYTES);
    let starts_inside = !offset.is_multiple_of(PAGE_BYTES);
    let ends_inside = !end.is_multiple_of(PAGE_BYTES);
    let head = (starts_inside || (first == last && ends_inside)).then_some(first);
    let tail = (ends_inside && first != last).then_some(last);
    head.into_iter().chain(tail)
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;

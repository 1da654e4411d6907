//! Who has which part of a node's heap.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use vm::heap::{HeapAllocator, HeapFull};
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
    allocator: Mutex<HeapAllocator>,
}

impl HeapState {
    pub(crate) fn new(segment: Segment, control: Control, allocator: HeapAllocator) -> HeapState {
        HeapState { segment, control, allocator: Mutex::new(allocator) }
    }

    /// Takes a block of `len` bytes, and makes sure that peers may access it.
    pub(crate) fn alloc(self: &Arc<Self>, len: u64) -> Result<Block, HeapFull> {
        let mut allocator = lock(&self.allocator);
        let offset = allocator.alloc(len.max(1), ALIGN)?;
        self.control.live().store(allocator.high_water(), Ordering::Release);
        Ok(Block { heap: Arc::clone(self), offset })
    }

    /// Gives a block back, and the pages that nothing else uses to the system.
    fn free(&self, offset: u64) {
        let mut allocator = lock(&self.allocator);
        let pages = allocator.free(offset).expect("only the owner of a block frees it, once");
        // Under the lock, so that no page is punched after it was given out again.
        if let Some(run) = pages
            && let Err(error) = self.segment.punch(run.offset, run.len)
        {
            tracing::warn!(%error, "freed pages of the heap stay in memory");
        }
    }

    /// The heap's memory.
    #[inline]
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }
}

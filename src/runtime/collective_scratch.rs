//! Scratch memory of collectives in this process's heap, where the members of its host reach it without the
//! kernel's help.

use std::sync::{Arc, Mutex};

use bytemuck::Pod;

use crate::base::lock::lock;
use crate::transport::shm::heap_pages::{ALIGN, Block, HeapState};
use crate::transport::shm::own;

/// Bytes of one, at most; and how many times the heap is as long as all of them together, at least.
const STAGE_MAX: u64 = 16 << 20;
const SHARE: u64 = 16;

/// Bytes of those that are kept for the next collectives, at most: new pages cost a fault each.
const KEPT_MAX: u64 = 16 << 20;

/// A node's stages.
pub(crate) struct ScratchPool {
    heap: Arc<HeapState>,
    stages: Mutex<FreeBlocks>,
}

#[derive(Default)]
struct FreeBlocks {
    /// Pieces that no collective uses just now, and their lengths.
    kept: Vec<(Block, u64)>,
    /// Bytes of all.
    bytes: u64,
}

impl ScratchPool {
    pub(crate) fn new(heap: Arc<HeapState>) -> Arc<ScratchPool> {
        Arc::new(ScratchPool { heap, stages: Mutex::default() })
    }

    /// A stage of so many bytes. `None`: that is more than one may have, or than there is room for.
    pub(crate) fn take(self: &Arc<Self>, len: u64) -> Option<Scratch> {
        if len > STAGE_MAX {
            return None;
        }
        let (block, len) = lock(&self.stages).take(&self.heap, len)?;
        Some(Scratch { block: Some(block), len, pool: Arc::clone(self) })
    }
}

impl FreeBlocks {
    fn take(&mut self, heap: &Arc<HeapState>, len: u64) -> Option<(Block, u64)> {
        let long_enough = self.kept.iter().enumerate().filter(|(_, (_, has))| *has >= len);
        if let Some((at, _)) = long_enough.min_by_key(|(_, (_, has))| *has) {
            return Some(self.kept.swap_remove(at));
        }
        let most = heap.len() / SHARE;
        // None would be long enough without those that are kept, either.
        if len > most {
            return None;
        }
        while self.bytes + len > most {
            let (_too_short, freed) = self.kept.pop()?;
            self.bytes -= freed;
        }
        let block = heap.alloc(len, ALIGN).ok()?;
        self.bytes += len;
        Some((block, len))
    }

    fn put_back(&mut self, block: Block, len: u64) {
        if len + self.kept.iter().map(|(_, len)| len).sum::<u64>() <= KEPT_MAX {
            self.kept.push((block, len));
        } else {
            self.bytes -= len;
        }
    }
}

/// A block of the heap for one collective.
pub(crate) struct Scratch {
    /// `None` once it is dropped.
    block: Option<Block>,
    len: u64,
    pool: Arc<ScratchPool>,
}

impl Scratch {
    /// As many values as it has room for.
    pub(crate) fn values<T: Pod>(&mut self) -> &mut [T] {
        let block = self.block.as_mut().expect("it has one while it lives");
        own::values(block, self.len as usize / size_of::<T>())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            lock(&self.pool.stages).put_back(block, self.len);
        }
    }
}

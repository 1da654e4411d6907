//! Scratch memory of collectives in this process's heap, where the members of its host reach it without the kernel's help.

use std::sync::{Arc, Mutex};

use bytemuck::Pod;

use crate::heap_state::{Block, HeapState};
use crate::sync::lock;
use crate::transport::shm::own;

/// Bytes of one, at most; and how many times a heap is as long, at least.
const STAGE_MAX: u64 = 16 << 20;
const SHARE: u64 = 16;

/// Bytes of those that are kept for the next collectives, at most: new pages cost a fault each.
const KEPT_MAX: u64 = 16 << 20;

/// A node's stages that no collective uses just now.
pub(crate) struct Shelf {
    heap: Arc<HeapState>,
    kept: Mutex<Vec<(Block, u64)>>,
}

impl Shelf {
    pub(crate) fn new(heap: Arc<HeapState>) -> Arc<Shelf> {
        Arc::new(Shelf { heap, kept: Mutex::default() })
    }

    /// A stage of so many bytes. `None`: that is more than one may have, or than the heap has room for.
    pub(super) fn take(self: &Arc<Self>, len: u64) -> Option<Stage> {
        if len > STAGE_MAX.min(self.heap.len() / SHARE) {
            return None;
        }
        let kept = {
            let mut kept = lock(&self.kept);
            let long_enough = |(_, (_, has)): &(usize, &(Block, u64))| *has >= len;
            let shortest = kept.iter().enumerate().filter(long_enough).min_by_key(|(_, (_, has))| *has);
            let at = shortest.map(|(at, _)| at);
            at.map(|at| kept.swap_remove(at))
        };
        let (block, len) = match kept {
            Some(kept) => kept,
            None => (self.heap.alloc(len).ok()?, len),
        };
        Some(Stage { block: Some(block), len, shelf: Arc::clone(self) })
    }
}

/// A block of the heap for one collective.
pub(super) struct Stage {
    /// `None` once it is dropped.
    block: Option<Block>,
    len: u64,
    shelf: Arc<Shelf>,
}

impl Stage {
    /// As many values as it has room for.
    pub(super) fn values<T: Pod>(&mut self) -> &mut [T] {
        let block = self.block.as_mut().expect("it has one while it lives");
        own::values(block, self.len as usize / size_of::<T>())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let mut kept = lock(&self.shelf.kept);
        if self.len + kept.iter().map(|(_, len)| len).sum::<u64>() <= KEPT_MAX {
            kept.push((block, self.len));
        }
    }
}

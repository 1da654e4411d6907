//! What the tests of all transports share: the memory that a rank of a whole job in one process has.

use std::cell::UnsafeCell;
use std::sync::Arc;

use engine::{MemId, Place};
use vm::fault_safe_copy::CheckedCopy;

use crate::transport::shm::heap_pages::{Block, HeapState};

/// An address below all that a process may map.
pub(crate) const NOWHERE: Place = Place::new(MemId::Space, 4096);

/// Constants lie in pages that may only be read.
static CONSTANT: [u8; 4096] = [0x5c; 4096];

/// Memory that can be read, and not written.
pub(crate) fn read_only() -> Place {
    Place::new(MemId::Space, CONSTANT.as_ptr().expose_provenance() as u64)
}

/// What a rank has allocated, and kept until its end.
pub(crate) struct Memory {
    heap: Arc<HeapState>,
    blocks: Vec<Block>,
    private: Vec<Box<[UnsafeCell<u64>]>>,
    checked: CheckedCopy,
}

impl Memory {
    pub(crate) fn new(heap: Arc<HeapState>) -> Memory {
        let checked = CheckedCopy::new().expect("a scratch file");
        Memory { heap, blocks: Vec::new(), private: Vec::new(), checked }
    }

    /// Private memory, zeroed.
    pub(crate) fn private(&mut self, len: usize) -> Place {
        let words: Box<[UnsafeCell<u64>]> = (0..len.div_ceil(8).max(1)).map(|_| UnsafeCell::new(0)).collect();
        let place = Place::new(MemId::Space, words.as_ptr().expose_provenance() as u64);
        self.private.push(words);
        place
    }

    /// Memory of the heap.
    pub(crate) fn heap(&mut self, len: usize) -> Place {
        let block = self.heap.alloc(len as u64, 64).expect("the heap is larger than a case");
        let place = Place::new(MemId::Heap, block.offset);
        self.blocks.push(block);
        place
    }

    /// Frees all of the heap that [`Memory::heap`] has given.
    pub(crate) fn free_heap(&mut self) {
        self.blocks.clear();
    }

    pub(crate) fn peek(&mut self, from: Place, into: &mut [u8]) {
        match from.mem {
            MemId::Heap => self.heap.segment().memory().copy_out(from.offset, into).expect("allocated"),
            _ => self.checked.read(from.offset, into).expect("allocated"),
        }
    }

    pub(crate) fn poke(&mut self, to: Place, from: &[u8]) {
        match to.mem {
            MemId::Heap => self.heap.segment().memory().copy_in(to.offset, from).expect("allocated"),
            // SAFETY: tests poke memory of `private` only: cells that live as long as this, to whose inside
            // no reference exists.
            _ => unsafe { self.checked.write(to.offset, from) }.expect("allocated"),
        }
    }
}

//! This process's own memory, at places that messages name, and the bounce buffers in its heap.

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Atomic, Direction, MemId, OpError, Piece, Place};
use vm::fault_safe_copy::{self, CheckedCopy};
use vm::{Mapped, Outside, SharedMemory, own_word};

use crate::base::limits::BOUNCE_BUFFERS;
use crate::transport::peers::Near;
use crate::transport::shm::atomic::{apply_u32, apply_u64, atomic_at};
use crate::transport::shm::copy::CopyError;
use crate::transport::shm::copy::{copy_pieces, reaches};
use crate::transport::shm::heap_pages::{ALIGN, Block, HeapState};

/// Bytes of a bounce buffer.
pub(crate) const BOUNCE_BYTES: u64 = 256 << 10;

/// How many times a heap is as long as all its bounce buffers together, at least.
const BOUNCE_BUFFERS_SHARE: u64 = 16;

/// Copies to and from this process's own memory: an inaccessible address is an error, never a signal.
pub(crate) struct OwnMemory {
    itself: Arc<Near>,
    checked: CheckedCopy,
    /// Where bounce buffers are taken from, those that were, and those that are set aside for later.
    heap: Option<Arc<HeapState>>,
    bounce_buffers: Vec<Block>,
    set_aside: Vec<Block>,
}

impl OwnMemory {
    pub(crate) fn new(itself: Arc<Near>, checked: CheckedCopy) -> OwnMemory {
        OwnMemory { itself, checked, heap: None, bounce_buffers: Vec::new(), set_aside: Vec::new() }
    }

    /// The same, with bounce buffers in this process's heap.
    pub(crate) fn with_bounce_buffers(mut self, heap: Arc<HeapState>) -> OwnMemory {
        self.heap = Some(heap);
        self
    }

    /// Sets aside room for all bounce buffers that there may be: peers beyond this host reach only what was
    /// live when they asked for the heap, and they ask later than this.
    pub(crate) fn set_bounce_buffers_aside(&mut self) {
        let Some(heap) = &self.heap else { return };
        let blocks = (0..bounce_buffers_max(heap)).map_while(|_| heap.alloc(BOUNCE_BYTES, ALIGN).ok());
        self.set_aside = blocks.collect();
    }

    /// Takes one more bounce buffer of the heap, for good: where in it that begins.
    pub(crate) fn make_bounce_buffer(&mut self) -> Option<u64> {
        let heap = self.heap.as_ref()?;
        if self.bounce_buffers.len() as u64 >= bounce_buffers_max(heap) {
            return None;
        }
        let block = self.set_aside.pop().or_else(|| heap.alloc(BOUNCE_BYTES, ALIGN).ok())?;
        let offset = block.offset;
        self.bounce_buffers.push(block);
        Some(offset)
    }

    /// Copies between a bounce buffer and an address: the kernel does, so that nothing is touched that is not
    /// there.
    pub(crate) fn copy(&self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        let (buffer, addr) = if from.mem == MemId::Heap { (from, to) } else { (to, from) };
        let fault = |place: Place| OpError::LocalFault { mem: place.mem, addr: place.offset, len };
        let of_buffer = |block: &&Block| block.offset == buffer.offset && len <= BOUNCE_BYTES;
        let heap = self.heap.as_ref().filter(|_| self.bounce_buffers.iter().any(|block| of_buffer(&block)));
        let file = heap.ok_or(fault(buffer))?.segment().fd();
        let copied = match from.mem {
            // SAFETY: as in `OwnMemory::write`, where a peer chooses the place.
            MemId::Heap => unsafe { fault_safe_copy::copy_from(file, buffer.offset, addr.offset, len) },
            _ => fault_safe_copy::copy_to(file, buffer.offset, addr.offset, len),
        };
        copied.map_err(|_| fault(addr))
    }

    /// Whether the bytes of a transfer's local end can be read, or written for a get, as far as the kernel
    /// tells.
    pub(crate) fn is_there(&self, local: Place, len: u64, direction: Direction) -> bool {
        local.mem == MemId::Space && fault_safe_copy::is_there(local.offset, len, direction == Direction::Get)
    }

    /// This process, as a peer of its own.
    pub(crate) fn itself(&self) -> &Near {
        &self.itself
    }

    /// Fills `into` from this process's memory.
    pub(crate) fn read(&self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        let len = into.len() as u64;
        let fault = OpError::LocalFault { mem: from.mem, addr: from.offset, len };
        match from.mem {
            MemId::Space => self.checked.read(from.offset, into).map_err(|_| fault),
            MemId::Heap => read_heap(self.heap(from, len)?, from.offset, into).map_err(|_| fault),
            MemId::Control | MemId::Grant(_) => Err(fault),
        }
    }

    /// Writes `from` to this process's memory.
    pub(crate) fn write(&self, to: Place, from: &[u8]) -> Result<(), OpError> {
        let len = from.len() as u64;
        let fault = OpError::LocalFault { mem: to.mem, addr: to.offset, len };
        match to.mem {
            // SAFETY: the place is either the local end of a get of this process, which its caller keeps
            // valid and to itself until the get ends. Or it is a peer's choice, which may put anywhere by
            // what joining a job means (`Node::open` says so), as it may by cross-memory attach.
            MemId::Space => unsafe { self.checked.write(to.offset, from) }.map_err(|_| fault),
            MemId::Heap => write_heap(self.heap(to, len)?, to.offset, from).map_err(|_| fault),
            MemId::Control | MemId::Grant(_) => Err(fault),
        }
    }

    /// Copies bytes of a ring of this process's to a place of its memory.
    pub(crate) fn copy_mapped(&self, bytes: Mapped<'_>, to: Place) -> Result<(), CopyError> {
        let len: usize = bytes.runs().map(|(_, len)| len).sum();
        let fault = OpError::LocalFault { mem: to.mem, addr: to.offset, len: len as u64 };
        let to = self.itself.best(to, len);
        let (mut pieces, mut at) = (Vec::with_capacity(2), 0);
        for (addr, len) in bytes.runs() {
            let start = to.offset.checked_add(at).ok_or(fault)?;
            let local = Place::new(MemId::Space, addr as u64);
            pieces.push(Piece::new(Place::new(to.mem, start), local, len as u64).ok_or(fault)?);
            at += len as u64;
        }
        reaches(&self.itself, &pieces).map_err(CopyError::Unreachable)?;
        // SAFETY: the local ends are addresses of the ring's words, which are mapped while `bytes` borrows
        // them; whatever a peer writes there meanwhile, they can be read.
        unsafe { copy_pieces(&self.itself, Direction::Put, &pieces) }
    }

    /// Changes an aligned word of this process's heap or control memory, or of its space at an address that
    /// it has granted.
    pub(crate) fn change(&self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        if word.mem != MemId::Space {
            return atomic_at(&self.itself, word, atomic);
        }
        let (addr, len) = (word.offset, atomic.size());
        let fault = OpError::LocalFault { mem: word.mem, addr, len };
        // Before Linux 5.14 a copy alone tells whether there is any memory.
        if !fault_safe_copy::can_tell() {
            self.read(word, &mut [0; 8][..len as usize])?;
        }
        // SAFETY: the engine names such a word only while a grant of this process covers it, and revokes none
        // meanwhile. The one who granted it has promised that the memory stays until it has been given back,
        // and that it is plain bytes. It has promised, too, that this program uses them by raw pointers or
        // atomics, as peers may change them at any time. Peers that may write decide what lies there, as by
        // puts.
        let old = unsafe {
            match (len, atomic.may_change()) {
                (4, true) => own_word::change_u32(addr, |word| apply_u32(word, atomic)),
                (4, false) => own_word::load_u32(addr).map(u64::from),
                (_, true) => own_word::change_u64(addr, |word| apply_u64(word, atomic)),
                (_, false) => own_word::load_u64(addr),
            }
        };
        old.ok_or(fault)
    }

    fn heap(&self, place: Place, len: u64) -> Result<&SharedMemory, OpError> {
        let fault = OpError::LocalFault { mem: place.mem, addr: place.offset, len };
        let end = place.offset.checked_add(len).ok_or(fault)?;
        self.itself.heap_up_to(end).ok_or(fault)
    }
}

/// How many bounce buffers a heap may have.
fn bounce_buffers_max(heap: &HeapState) -> u64 {
    (heap.len() / BOUNCE_BUFFERS_SHARE / BOUNCE_BYTES).min(BOUNCE_BUFFERS as u64)
}

/// The first values of a block of this process's heap that is the caller's.
///
/// # Panics
/// When the heap ends before so many.
pub(crate) fn values<T: Pod>(block: &mut Block, count: usize) -> &mut [T] {
    const { assert!(align_of::<T>() as u64 <= ALIGN, "blocks begin at cache lines") };
    let memory = block.memory();
    let end = (count as u64).checked_mul(size_of::<T>() as u64).and_then(|len| block.offset.checked_add(len));
    assert!(end.is_some_and(|end| end <= memory.len()), "{count} values at {} in the heap", block.offset);
    let start = std::ptr::with_exposed_provenance_mut((memory.base_addr() + block.offset) as usize);
    // SAFETY: so many values are mapped there while the block lives, which this borrows for itself, and begin
    // at a cache line. Any bytes are a `T`. The engine writes there what a collective gets, as it writes to
    // callers' own buffers: between the steps in which these values are used, and by whoever holds the engine
    // meanwhile. Peers are told where to read only, and one that writes there all the same only decides which
    // values these are, as it may anywhere in this process's memory that is exposed.
    unsafe { std::slice::from_raw_parts_mut(start, count) }
}

/// Reads bytes of a heap; a word as a word, since its owner, or a peer on its host, may be changing it by an
/// atomic.
fn read_heap(heap: &SharedMemory, offset: u64, into: &mut [u8]) -> Result<(), Outside> {
    if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *into) {
        *word = heap.load(offset)?;
    } else if let Ok(word) = <&mut [u8; 4]>::try_from(&mut *into) {
        *word = heap.load(offset)?;
    } else {
        heap.copy_out(offset, into)?;
    }
    Ok(())
}

/// Writes bytes of a heap, likewise.
fn write_heap(heap: &SharedMemory, offset: u64, from: &[u8]) -> Result<(), Outside> {
    if let Ok(word) = <[u8; 8]>::try_from(from) {
        return heap.store(offset, word);
    }
    match <[u8; 4]>::try_from(from) {
        Ok(word) => heap.store(offset, word),
        Err(_) => heap.copy_in(offset, from),
    }
}

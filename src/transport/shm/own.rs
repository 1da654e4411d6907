//! This process's own memory, at places that messages name.

use std::sync::Arc;

use engine::{MemId, OpError, Place};
use vm::checked::CheckedCopy;
use vm::{Outside, SharedMemory};

use super::peers::Peer;

/// Copies to and from this process's own memory: an inaccessible address is an error, never a signal.
pub(crate) struct OwnMemory {
    itself: Arc<Peer>,
    checked: CheckedCopy,
}

impl OwnMemory {
    pub(crate) fn new(itself: Arc<Peer>, checked: CheckedCopy) -> OwnMemory {
        OwnMemory { itself, checked }
    }

    /// This process, as a peer of its own.
    pub(crate) fn itself(&self) -> &Peer {
        &self.itself
    }

    /// Fills `into` from this process's memory.
    pub(crate) fn read(&self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        let len = into.len() as u64;
        let fault = OpError::LocalFault { mem: from.mem, addr: from.offset, len };
        match from.mem {
            MemId::Space => self.checked.read(from.offset, into).map_err(|_| fault),
            MemId::Heap => read_heap(self.heap(from, len)?, from.offset, into).map_err(|_| fault),
            MemId::Control => Err(fault),
        }
    }

    /// Writes `from` to this process's memory.
    pub(crate) fn write(&self, to: Place, from: &[u8]) -> Result<(), OpError> {
        let len = from.len() as u64;
        let fault = OpError::LocalFault { mem: to.mem, addr: to.offset, len };
        match to.mem {
            // SAFETY: the place is either the local end of a get of this process, which whoever started it keeps
            // valid and to itself until the get ends; or a peer's choice, which may put anywhere by what joining a
            // job means (`Node::open` says so), as it may by cross-memory attach.
            MemId::Space => unsafe { self.checked.write(to.offset, from) }.map_err(|_| fault),
            MemId::Heap => write_heap(self.heap(to, len)?, to.offset, from).map_err(|_| fault),
            MemId::Control => Err(fault),
        }
    }

    fn heap(&self, place: Place, len: u64) -> Result<&SharedMemory, OpError> {
        let fault = OpError::LocalFault { mem: place.mem, addr: place.offset, len };
        let end = place.offset.checked_add(len).ok_or(fault)?;
        self.itself.heap_up_to(end).ok_or(fault)
    }
}

/// Reads bytes of a heap; a word as a word, since its owner, or a peer on its host, may be changing it by an atomic.
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

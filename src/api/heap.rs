//! The heap: memory that peers map, so that a put or get is a plain copy.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use engine::Rank;

use crate::api::node::Node;
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::Error;
use crate::base::pointers::GlobalPtr;
use crate::transport::shm::heap_pages::{ALIGN, Block, NoRoom};

/// A node's own heap, as [`Node::heap`] gives it. Any thread may use it.
#[derive(Clone, Copy, Debug)]
pub struct Heap<'a> {
    node: &'a Node,
}

debug_is_display!(HeapError);

/// Why the heap gave no array.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The heap has no such room. The setting `STANDPIPE_HEAP` makes it larger.
    #[error(
        "no room for {wanted} bytes in the heap: {free} of {size} bytes are free; STANDPIPE_HEAP or Config::heap_bytes makes it larger"
    )]
    Full {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes free, perhaps not in one piece.
        free: u64,
        /// Bytes that the heap may have.
        size: u64,
    },
    /// The heap has room, and the system has no memory for it. Where `vm.overcommit_memory` is 2, memory is
    /// taken when it is allocated: elsewhere it is when it is first touched, and whoever finds none then is
    /// ended by `SIGBUS`.
    #[error(
        "no room for {wanted} bytes in the heap: {free} of {size} bytes are free, and the system, which promises no memory that it has not (vm.overcommit_memory=2), has none"
    )]
    NoMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes free, perhaps not in one piece.
        free: u64,
        /// Bytes that the heap may have.
        size: u64,
    },
    /// The node has closed.
    #[error("allocating: the node has closed")]
    Closed,
    /// This process is a child made by `fork`, and the heap its parent's.
    #[error("allocating: the node is that of the process that this one was forked from; open one of its own")]
    Forked,
}

impl HeapError {
    /// What kind of error it is: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            HeapError::Full { .. } => Code::NoRoom,
            HeapError::NoMemory { .. } => Code::NoMemory,
            HeapError::Closed => Code::Closed,
            HeapError::Forked => Code::Forked,
        }
    }
}

into_io_error!(HeapError);

/// The way to the heap.
impl Node {
    /// This node's heap.
    pub fn heap(&self) -> Heap<'_> {
        Heap { node: self }
    }
}

impl Heap<'_> {
    /// Allocates an array of `len` values, of unspecified content.
    ///
    /// # Errors
    /// See [`HeapError`].
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<HeapArray<T>, HeapError> {
        let core = &self.node.core;
        core.may_call("allocating").map_err(|error| match error {
            Error::Closed { .. } => HeapError::Closed,
            _ => HeapError::Forked,
        })?;
        let size = core.heap.len();
        assert!(
            align_of::<T>() as u64 <= ALIGN,
            "no plain-old-data type is aligned to more than a cache line"
        );
        // More bytes than can be counted are more than any heap has.
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let no_room = |NoRoom { free, refused }| match refused {
            false => HeapError::Full { wanted: bytes, free, size },
            true => HeapError::NoMemory { wanted: bytes, free, size },
        };
        let block = core.heap.alloc(bytes).map_err(no_room)?;
        Ok(HeapArray { block, rank: self.node.rank(), len, holds: PhantomData })
    }

    /// Allocates an array of `len` values, all bytes zero.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<HeapArray<T>, HeapError> {
        let array = self.alloc(len)?;
        let zeros = vec![T::zeroed(); len.min(4096 / size_of::<T>().max(1) + 1)];
        for start in (0..len).step_by(zeros.len().max(1)) {
            array.write_slice(start, &zeros[..zeros.len().min(len - start)]);
        }
        Ok(array)
    }

    /// Allocates an array with the values of `from`.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_from<T: Pod>(&self, from: &[T]) -> Result<HeapArray<T>, HeapError> {
        let array = self.alloc(from.len())?;
        array.write_slice(0, from);
        Ok(array)
    }

    /// The pointer by which any rank reaches what this program has allocated at an address; `None` where that
    /// is not in this node's heap. It is if [`GlobalHeap`](crate::GlobalHeap) is the program's allocator, and
    /// this the process's first node. Nothing is read or written; what others write there is seen by atomics
    /// only.
    #[cfg(feature = "allocator")]
    pub fn ptr_of<T: Pod>(&self, addr: *const T) -> Option<GlobalPtr<T>> {
        let allocated = self.node.core.peers.own().identity.allocated;
        let offset = allocated.offset(addr.addr() as u64, size_of::<T>() as u64)?;
        Some(GlobalPtr::new(self.node.rank(), offset))
    }

    /// Bytes that the heap's arrays may grow to; what the program's allocator has of it is not counted.
    pub fn size(&self) -> u64 {
        self.node.core.heap.len()
    }

    /// Bytes of physical memory that the heap takes now; 0 where the system does not say.
    pub fn resident_bytes(&self) -> u64 {
        self.node.core.heap.segment().resident_bytes().unwrap_or(0)
    }
}

/// An array of plain-old-data in this node's heap, freed when dropped.
///
/// Peers may read and write it at any time; access therefore copies. Values of 1, 2, 4 or 8 bytes are read
/// and written whole, larger ones perhaps in parts. After it is freed, what peers put there may land in
/// another array.
pub struct HeapArray<T> {
    block: Block,
    rank: Rank,
    len: usize,
    holds: PhantomData<fn() -> T>,
}

impl<T: Pod> HeapArray<T> {
    /// Values in the array.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to the `index`-th value, for any rank to use.
    ///
    /// # Panics
    /// When `index` is beyond the array's end (just at its end is allowed).
    #[inline]
    pub fn ptr(&self, index: usize) -> GlobalPtr<T> {
        assert!(index <= self.len, "index {index} in an array of {}", self.len);
        GlobalPtr::new(self.rank, self.at(index))
    }

    /// Where the values lie in this process, for whoever knows that no peer writes there meanwhile, or that
    /// only atomics are used. Slices of it are as good as any other memory to all calls; collectives among
    /// processes of one host take such memory without the kernel's help.
    pub fn as_ptr(&self) -> *mut T {
        let at = self.memory().base_addr() + self.block.offset;
        std::ptr::with_exposed_provenance_mut(at as usize)
    }

    /// The `index`-th value as it is now.
    ///
    /// # Panics
    /// When `index` is not below the array's length.
    #[inline]
    pub fn read(&self, index: usize) -> T {
        assert!(index < self.len, "index {index} in an array of {}", self.len);
        self.memory().load(self.at(index)).expect(INSIDE)
    }

    /// Stores the `index`-th value.
    ///
    /// # Panics
    /// When `index` is not below the array's length.
    #[inline]
    pub fn write(&self, index: usize, value: T) {
        assert!(index < self.len, "index {index} in an array of {}", self.len);
        self.memory().store(self.at(index), value).expect(INSIDE);
    }

    /// Copies values from the array, from the `start`-th on.
    ///
    /// # Panics
    /// When the array has not so many.
    pub fn read_slice(&self, start: usize, into: &mut [T]) {
        self.check(start, into.len());
        self.memory().copy_out(self.at(start), bytemuck::cast_slice_mut(into)).expect(INSIDE);
    }

    /// Copies values into the array, from the `start`-th on.
    ///
    /// # Panics
    /// When the array has no room for them.
    pub fn write_slice(&self, start: usize, from: &[T]) {
        self.check(start, from.len());
        self.memory().copy_in(self.at(start), bytemuck::cast_slice(from)).expect(INSIDE);
    }

    /// All values as they are now.
    pub fn to_vec(&self) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.len];
        self.read_slice(0, &mut values);
        values
    }

    /// The block, for a caller that only keeps it.
    pub(crate) fn into_block(self) -> Block {
        self.block
    }

    fn check(&self, start: usize, count: usize) {
        let fits = start.checked_add(count).is_some_and(|end| end <= self.len);
        assert!(fits, "{count} values from index {start} on in an array of {}", self.len);
    }

    fn at(&self, index: usize) -> u64 {
        self.block.offset + (index * size_of::<T>()) as u64
    }

    fn memory(&self) -> &vm::SharedMemory {
        self.block.memory()
    }
}

const INSIDE: &str = "the block lies inside the heap, and the index inside the block";

impl<T> fmt::Debug for HeapArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapArray").field("offset", &self.block.offset).field("len", &self.len).finish()
    }
}

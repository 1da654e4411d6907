//! The heap: memory that peers map, so that a put or get is a plain copy.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use engine::Rank;
use vm::pages::HUGE_PAGE_BYTES;

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
    /// No such alignment is to be had.
    #[error("no block is aligned to {align} bytes: that is to be a power of two, and at most {most}")]
    Align {
        /// Bytes asked for.
        align: u64,
        /// The most that there is in this heap.
        most: u64,
    },
    /// The system gives no huge pages, or not so many: `alloc_aligned` takes ordinary ones.
    #[error(
        "no huge pages for {wanted} bytes of the heap: {}; Linux has them from 6.1 on, where there is memory in pieces of 2 MiB",
        std::io::Error::from_raw_os_error(*.errno)
    )]
    NoHugePages {
        /// Bytes asked for, in whole huge pages.
        wanted: u64,
        /// The system's error.
        errno: i32,
    },
    /// No block that is freed by a pointer begins there: it was freed before, belongs to an array, or is
    /// another rank's.
    #[error("freeing {offset:#x} of rank {peer}'s heap: no block that is this node's to free begins there")]
    NotABlock {
        /// The rank that the pointer names.
        peer: Rank,
        /// The pointer's offset in its heap.
        offset: u64,
    },
    /// The node has closed.
    #[error("allocating or freeing: the node has closed")]
    Closed,
    /// This process is a child made by `fork`, and the heap its parent's.
    #[error(
        "allocating or freeing: the node is that of the process that this one was forked from; open one of its own"
    )]
    Forked,
}

impl HeapError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            HeapError::Full { .. } => Code::NoRoom,
            HeapError::NoMemory { .. } | HeapError::NoHugePages { .. } => Code::NoMemory,
            HeapError::Align { .. } => Code::Unaligned,
            HeapError::NotABlock { .. } => Code::Fault,
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
        if align_of::<T>() as u64 > ALIGN {
            return self.alloc_aligned(len, align_of::<T>());
        }
        // More bytes than can be counted are more than any heap has.
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        Ok(self.array(len, self.block(bytes, ALIGN)?))
    }

    /// As [`Heap::alloc`], where the first value's address is a multiple of `align` bytes: here, and where
    /// near peers have it mapped, unless they have little address space left. Arrays have 64 in any case.
    /// The most is 4,096, and 2 MiB in heaps that are no smaller.
    ///
    /// # Errors
    /// [`HeapError::Align`] where `align` is no power of two, or more than that; else as for
    /// [`Heap::alloc`].
    pub fn alloc_aligned<T: Pod>(&self, len: usize, align: usize) -> Result<HeapArray<T>, HeapError> {
        let (align, most) = (align as u64, self.node.core.heap.align_max());
        let align = if align.is_power_of_two() { align.max(align_of::<T>() as u64) } else { align };
        if !align.is_power_of_two() || align > most {
            return Err(HeapError::Align { align, most });
        }
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        Ok(self.array(len, self.block(bytes, align.max(ALIGN))?))
    }

    /// As [`Heap::alloc`], in huge pages of 2 MiB of its own, all of which it takes now. An array that is
    /// used at random then costs far fewer misses of the processor's address cache, here and at near peers.
    /// Its first value's address is a multiple of 2 MiB. The system splits such a page only where it must. As
    /// with any memory that is touched, the system may end a process that takes more than it has.
    ///
    /// # Errors
    /// [`HeapError::NoHugePages`] where the system gives none; [`HeapError::Align`] in a heap of less than
    /// 2 MiB; else as for [`Heap::alloc`].
    pub fn alloc_huge<T: Pod>(&self, len: usize) -> Result<HeapArray<T>, HeapError> {
        let (huge, most) = (HUGE_PAGE_BYTES, self.node.core.heap.align_max());
        if huge > most {
            return Err(HeapError::Align { align: huge, most });
        }
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64).max(1);
        let wanted = bytes.checked_next_multiple_of(huge).unwrap_or(u64::MAX);
        let block = self.block(wanted, huge)?;
        let refused = |error| HeapError::NoHugePages { wanted, errno: errno(&error) };
        self.node.core.heap.segment().take_huge_pages(block.offset, wanted).map_err(refused)?;
        Ok(self.array(len, block))
    }

    /// Frees a block by the pointer that [`HeapArray::into_ptr`] gave. After that, what peers put there may
    /// land in another array. Any thread, and handlers.
    ///
    /// # Errors
    /// [`HeapError::NotABlock`] for any other pointer, of another rank's heap too; [`HeapError::Closed`],
    /// [`HeapError::Forked`]. Nothing is freed then.
    pub fn free<T: Pod>(&self, ptr: GlobalPtr<T>) -> Result<(), HeapError> {
        self.may_call()?;
        let is_own = ptr.peer() == self.node.rank();
        if is_own && self.node.core.heap.free_at(ptr.offset()) {
            return Ok(());
        }
        Err(HeapError::NotABlock { peer: ptr.peer(), offset: ptr.offset() })
    }

    fn may_call(&self) -> Result<(), HeapError> {
        self.node.core.may_call("allocating").map_err(|error| match error {
            Error::Closed { .. } => HeapError::Closed,
            _ => HeapError::Forked,
        })
    }

    fn block(&self, bytes: u64, align: u64) -> Result<Block, HeapError> {
        self.may_call()?;
        let heap = &self.node.core.heap;
        heap.alloc(bytes, align).map_err(|NoRoom { free, refused }| match refused {
            false => HeapError::Full { wanted: bytes, free, size: heap.len() },
            true => HeapError::NoMemory { wanted: bytes, free, size: heap.len() },
        })
    }

    fn array<T>(&self, len: usize, block: Block) -> HeapArray<T> {
        HeapArray { block, rank: self.node.rank(), len, holds: PhantomData }
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

    /// The pointer by which any rank reaches what lies at an address of this process; `None` where that is
    /// not in this node's heap. There lie the heap's own blocks, and all that the program allocates if
    /// `GlobalHeap` is its allocator, and this the process's first node. Nothing is read or written; what
    /// others write there is seen by atomics only.
    pub fn ptr_of<T: Pod>(&self, addr: *const T) -> Option<GlobalPtr<T>> {
        let (addr, size) = (addr.addr() as u64, size_of::<T>() as u64);
        let own = self.node.core.peers.own();
        let mapped = self.node.core.peers.itself().heap();
        let in_mapped = || {
            let offset = addr.checked_sub(mapped.base_addr())?;
            Some(offset).filter(|offset| offset.saturating_add(size) <= mapped.len())
        };
        let offset = own.identity.allocated.offset(addr, size).or_else(in_mapped)?;
        Some(GlobalPtr::new(own.rank, offset))
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

    /// Gives the array away for a pointer to its first value, for whoever counts its memory by pointers, as C
    /// programs do: [`Heap::free`] frees it, and nothing else but the node's end.
    #[must_use = "what is not freed by it stays as long as the node"]
    pub fn into_ptr(self) -> GlobalPtr<T> {
        GlobalPtr::new(self.rank, self.block.into_place())
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

/// The system's number of an error.
fn errno(error: &vm::SegmentError) -> i32 {
    match error {
        vm::SegmentError::Os { errno, .. } => errno.raw_os_error(),
        _ => rustix::io::Errno::INVAL.raw_os_error(),
    }
}

const INSIDE: &str = "the block lies inside the heap, and the index inside the block";

impl<T> fmt::Debug for HeapArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapArray").field("offset", &self.block.offset).field("len", &self.len).finish()
    }
}

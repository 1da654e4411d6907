//! Memory that other processes write while we use it.

use std::fmt;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use bytemuck::Pod;
use rustix::io::Errno;
use rustix::mm::{Advice, MprotectFlags};

use crate::mapping::Mapping;

/// A share of a mapping of a whole file, which is unmapped once the last share is dropped.
///
/// Any thread may use it at any time, and so may any other process that maps the same file. Values are copied
/// in and out, one at a time or in bulk, and no reference to plain bytes is ever handed out. Accesses of 1,
/// 2, 4 or 8 bytes at a multiple of their size are single relaxed atomic accesses; larger or unaligned ones
/// may be seen in parts.
#[derive(Clone)]
pub struct SharedMemory {
    /// As in the mapping: who reaches memory often finds it here, one step nearer.
    base: NonNull<u8>,
    len: usize,
    mapping: Arc<Mapping>,
}

/// An access that does not lie within the mapping, or is not aligned where alignment is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} are not inside (or not aligned in) a mapping of {size} bytes")]
pub struct Outside {
    /// Where the access starts, in bytes from the mapping's start.
    pub offset: u64,
    /// How many bytes it spans.
    pub len: u64,
    /// The mapping's size in bytes.
    pub size: u64,
}

/// `count` blocks of `block` bytes each, their starts `there` bytes apart in a mapping and `here` bytes apart
/// in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Bytes of a block.
    pub block: usize,
    /// How many there are.
    pub count: usize,
    /// Bytes between neighbours in the mapping.
    pub there: u64,
    /// Bytes between neighbours in the slice.
    pub here: usize,
}

impl Blocks {
    /// Bytes from the first block's start to the last one's end there, once those here are known to be at
    /// most `len`; `None` where there are no bytes to copy.
    fn span(&self, offset: u64, len: usize) -> Result<Option<u64>, Outside> {
        if self.count == 0 || self.block == 0 {
            return Ok(None);
        }
        let steps = self.count - 1;
        let here = self.here.checked_mul(steps).and_then(|bytes| bytes.checked_add(self.block));
        let there =
            self.there.checked_mul(steps as u64).and_then(|bytes| bytes.checked_add(self.block as u64));
        match (there, here.filter(|here| *here <= len)) {
            (Some(there), Some(_)) => Ok(Some(there)),
            _ => Err(Outside { offset, len: u64::MAX, size: len as u64 }),
        }
    }
}

/// Linux 6.1's; the `libc` crate does not have it for all systems.
const MADV_COLLAPSE: i32 = 25;

/// Bytes that one call of memmove copies at most, where copies are cut. For longer ones C libraries go other
/// ways, which are made for memory that nobody else is about to use. On a processor of 1 MiB of second cache
/// (Zen 5, glibc 2.36), 2 MiB that another process had just written took 51 us in one call and 38 so, and 32
/// MiB copied in, most of which does not stay in any cache, 1,300 and 1,050.
const AT_ONCE: usize = 256 << 10;

/// Copies out of shared memory are cut if they are no longer: more bytes stay in no cache, and C libraries'
/// way past the caches is faster. There, 48 MiB took 2.6 ms in one call and 3.0 in many, and 24 MiB 0.92 and
/// 0.84; into shared memory many calls are faster at any length.
const OUT_MAX: usize = 24 << 20;

/// Copies bytes that may overlap; in several calls if they do not, and are no more than `cut_max`.
///
/// # Safety
/// As for [`ptr::copy`].
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize, cut_max: usize) {
    if len <= AT_ONCE || len > cut_max || from.addr().abs_diff(to.addr()) < len {
        // SAFETY: the caller promises just that: `len` readable bytes here, and as many writable ones there.
        return unsafe { ptr::copy(from, to, len) };
    }
    for at in (0..len).step_by(AT_ONCE) {
        // SAFETY: these bytes are of the caller's two ranges, which do not overlap.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), AT_ONCE.min(len - at)) };
    }
}

/// Copies blocks between two places, each with the bytes between its blocks.
///
/// # Safety
/// All blocks must be readable at `from` and writable at `to`. A stride counts only where there is more
/// than one block.
#[inline]
unsafe fn copy_blocks(from: (*const u8, usize), to: (*mut u8, usize), blocks: Blocks) {
    // SAFETY: the caller's promise, for the same block's length.
    unsafe {
        match blocks.block {
            8 => copy_each(from, to, blocks.count, 8),
            16 => copy_each(from, to, blocks.count, 16),
            32 => copy_each(from, to, blocks.count, 32),
            64 => copy_each(from, to, blocks.count, 64),
            128 => copy_each(from, to, blocks.count, 128),
            block => copy_each(from, to, blocks.count, block),
        }
    }
}

/// The loop of [`copy_blocks`], which is compiled for each length that is known there.
///
/// # Safety
/// As for [`copy_blocks`].
#[inline(always)]
unsafe fn copy_each(from: (*const u8, usize), to: (*mut u8, usize), count: usize, block: usize) {
    for i in 0..count {
        // SAFETY: the caller promises this block at both ends; `i` steps lead to no later one than the last.
        unsafe { ptr::copy(from.0.add(i * from.1), to.0.add(i * to.1), block) };
    }
}

impl SharedMemory {
    /// Maps the first `len` bytes of `fd`, shared, without reserving memory for them, and closed: no byte may
    /// be accessed before it is opened. Of what is opened, core dumps of this process have what lies at
    /// `dumped_from` and beyond.
    ///
    /// The caller vouches that the file stays as long as `len`: otherwise a later access is a SIGBUS.
    pub(crate) fn map(fd: BorrowedFd<'_>, len: usize, dumped_from: u64) -> rustix::io::Result<SharedMemory> {
        let rights = MprotectFlags::READ | MprotectFlags::WRITE;
        let mapping = Mapping::new(fd, len, dumped_from, rights)?;
        Ok(SharedMemory { base: mapping.base(), len: mapping.len(), mapping: Arc::new(mapping) })
    }

    /// Opens the first `end` bytes, and some more: only what is open may be accessed, and any access of what
    /// is not ends the process by SIGSEGV. One comparison where they are open; else a call of the kernel.
    ///
    /// # Errors
    /// `INVAL` if the mapping has not so many bytes. The kernel's, if it has no memory.
    pub fn open_to(&self, end: u64) -> rustix::io::Result<()> {
        self.mapping.open_to(end)
    }

    /// Opens the pages of a range as well, wherever in the mapping it lies.
    ///
    /// # Errors
    /// As for [`SharedMemory::open_to`].
    pub fn open_part(&self, part: Range<u64>) -> rustix::io::Result<()> {
        if part.end > self.len() {
            return Err(Errno::INVAL);
        }
        self.mapping.open_part(part)
    }

    /// How many of the first bytes [are open](SharedMemory::open_to).
    pub fn open_bytes(&self) -> u64 {
        self.mapping.open_bytes()
    }

    /// Has core dumps of this process contain a range of whole pages that is open, or not. `false`: the
    /// kernel has left it as it was.
    pub fn set_dumped(&self, part: Range<u64>, is_dumped: bool) -> bool {
        self.mapping.set_dumped(part, is_dumped)
    }

    /// Gives a range of whole huge pages memory now, in huge pages all of it.
    ///
    /// # Errors
    /// The kernel's, where it has none, or no memory; or knows no such call.
    pub(crate) fn collapse(&self, offset: u64, len: u64) -> rustix::io::Result<()> {
        const TRIES: usize = 4;
        let start = self.at(offset, len).map_err(|_| Errno::INVAL)?;
        let len = len as usize;
        // SAFETY: the range is this mapping's, which lives; the call fills it with pages and changes no byte.
        unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxPopulateWrite) }?;
        let mut result = Ok(());
        for _ in 0..TRIES {
            // SAFETY: the range is this mapping's, which lives; the kernel puts the same bytes into larger
            // pages.
            let failed = unsafe { libc::madvise(start.cast(), len, MADV_COLLAPSE) } != 0;
            let error = || std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            result = if failed { Err(Errno::from_raw_os_error(error())) } else { Ok(()) };
            // Somebody else had a page for a moment.
            if !matches!(result, Err(Errno::AGAIN | Errno::BUSY)) {
                break;
            }
        }
        result
    }

    /// Asks for huge pages, which the system gives where it is set to `advise`.
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: the range is this mapping's, which lives; the advice leaves its contents as they are.
        let advised =
            unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
        // A kernel without huge pages does not know of them.
        let _ = advised;
    }

    /// The mapping's size in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether the mapping has no bytes; it never has none, since an empty file is not mapped.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte in this process.
    #[inline]
    pub fn base_addr(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Writes `value` at `offset`.
    ///
    /// # Errors
    /// [`Outside`] if any byte of it would lie outside the mapping; then nothing is written.
    #[inline]
    pub fn store<T: Pod>(&self, offset: u64, value: T) -> Result<(), Outside> {
        let at = self.at(offset, size_of::<T>() as u64)?;
        let bytes = bytemuck::bytes_of(&value);
        // SAFETY: `at` starts `size_of::<T>()` bytes that are mapped writable for as long as `self` lives
        // (checked above). The atomic types are used only at multiples of their size. `bytes` is a local
        // value, so the copy's source and target are apart. Other processes may access these bytes at the
        // same time: the hardware makes that an interleaving, and no reference to them exists that could
        // assume otherwise.
        unsafe {
            match size_of::<T>() {
                8 if at.addr() % 8 == 0 => {
                    AtomicU64::from_ptr(at.cast())
                        .store(bytemuck::pod_read_unaligned(bytes), Ordering::Relaxed);
                }
                4 if at.addr() % 4 == 0 => {
                    AtomicU32::from_ptr(at.cast())
                        .store(bytemuck::pod_read_unaligned(bytes), Ordering::Relaxed);
                }
                2 if at.addr() % 2 == 0 => {
                    AtomicU16::from_ptr(at.cast())
                        .store(bytemuck::pod_read_unaligned(bytes), Ordering::Relaxed);
                }
                1 => AtomicU8::from_ptr(at).store(bytes[0], Ordering::Relaxed),
                n => ptr::copy_nonoverlapping(bytes.as_ptr(), at, n),
            }
        }
        Ok(())
    }

    /// Reads the value at `offset`.
    ///
    /// # Errors
    /// [`Outside`] if any byte of it lies outside the mapping.
    #[inline]
    pub fn load<T: Pod>(&self, offset: u64) -> Result<T, Outside> {
        let at = self.at(offset, size_of::<T>() as u64)?;
        let mut value = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        // SAFETY: as in `store`. The bytes are mapped readable while `self` lives, the atomics are aligned,
        // and the target is a local value. Any bytes are a valid `T`, whatever a peer writes meanwhile.
        unsafe {
            match size_of::<T>() {
                8 if at.addr() % 8 == 0 => {
                    let word = AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed);
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                4 if at.addr() % 4 == 0 => {
                    let word = AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed);
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                2 if at.addr() % 2 == 0 => {
                    let word = AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed);
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                1 => bytes[0] = AtomicU8::from_ptr(at).load(Ordering::Relaxed),
                n => ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), n),
            }
        }
        Ok(value)
    }

    /// Copies `bytes` to `offset`, at the speed of memcpy.
    ///
    /// # Errors
    /// [`Outside`] if they do not fit there; then nothing is written.
    #[inline]
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), Outside> {
        // SAFETY: the source is a borrowed slice, of which so many bytes can be read.
        unsafe { self.copy_in_from(offset, bytes.as_ptr(), bytes.len()) }
    }

    /// As [`SharedMemory::copy_in`], from memory that others may use meanwhile, too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// `len` bytes can be read at `from`, from which nothing is read where `len` is 0.
    #[inline]
    pub unsafe fn copy_in_from(&self, offset: u64, from: *const u8, len: usize) -> Result<(), Outside> {
        let at = self.at(offset, len as u64)?;
        // SAFETY: the target is `len` mapped writable bytes (checked above, alive with `self`); the caller
        // promises the source, which may lie in this mapping: the two may overlap. Races with other processes
        // only decide which bytes end there.
        unsafe { copy(from, at, len, usize::MAX) };
        Ok(())
    }

    /// Fills `bytes` from `offset`, at the speed of memcpy.
    ///
    /// # Errors
    /// [`Outside`] if the mapping has not so many bytes there; then nothing is read.
    #[inline]
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        // SAFETY: the target is a slice borrowed for writing, of bytes that may be any.
        unsafe { self.copy_out_to(offset, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// As [`SharedMemory::copy_out`], to memory that others may use meanwhile, too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// Any `len` bytes may be written at `into`, where nothing is written where `len` is 0.
    #[inline]
    pub unsafe fn copy_out_to(&self, offset: u64, into: *mut u8, len: usize) -> Result<(), Outside> {
        let at = self.at(offset, len as u64)?;
        // SAFETY: the source is `len` mapped readable bytes (checked above, alive with `self`); the caller
        // promises the target, which the source may overlap. All bytes that a racing peer leaves are valid.
        unsafe { copy(at, into, len, OUT_MAX) };
        Ok(())
    }

    /// Where as many bytes begin as `values` has, at `offset`.
    ///
    /// # Errors
    /// [`Outside`] if the mapping has not so many there, or some of them are of `values`.
    #[inline]
    pub(crate) fn apart_from<T: Pod>(&self, offset: u64, values: &[T]) -> Result<*const T, Outside> {
        let len = size_of_val(values);
        let at = self.at(offset, len as u64)?;
        let (here, there) = (values.as_ptr().addr(), at.addr());
        if here < there + len && there < here + len {
            return Err(Outside { offset, len: len as u64, size: self.len as u64 });
        }
        Ok(at.cast_const().cast())
    }

    /// Copies blocks of `bytes` to `offset` and on, where they lie `there` bytes apart. They may lie over one
    /// another there: then the last has what both have.
    ///
    /// # Errors
    /// [`Outside`] if the blocks do not lie inside the mapping, or not inside `bytes`; then nothing is
    /// written.
    pub fn copy_in_blocks(&self, offset: u64, bytes: &[u8], blocks: Blocks) -> Result<(), Outside> {
        // SAFETY: the source is a borrowed slice, of which so many bytes can be read.
        unsafe { self.copy_in_blocks_from(offset, bytes.as_ptr(), bytes.len(), blocks) }
    }

    /// As [`SharedMemory::copy_in_blocks`], from memory that others may use meanwhile, too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// `len` bytes can be read at `from`.
    pub unsafe fn copy_in_blocks_from(
        &self,
        offset: u64,
        from: *const u8,
        len: usize,
        blocks: Blocks,
    ) -> Result<(), Outside> {
        let Some(there) = blocks.span(offset, len)? else { return Ok(()) };
        let at = self.at(offset, there)?;
        // SAFETY: both spans lie within the mapping and within the source (checked above), and so does every
        // block. No stride is longer than its span: it fits.
        unsafe { copy_blocks((from, blocks.here), (at, blocks.there as usize), blocks) };
        Ok(())
    }

    /// Fills blocks of `bytes` from `offset` and on, where they lie `there` bytes apart.
    ///
    /// # Errors
    /// As for [`SharedMemory::copy_in_blocks`]; then nothing is read.
    pub fn copy_out_blocks(&self, offset: u64, bytes: &mut [u8], blocks: Blocks) -> Result<(), Outside> {
        // SAFETY: the target is a slice borrowed for writing, of bytes that may be any.
        unsafe { self.copy_out_blocks_to(offset, bytes.as_mut_ptr(), bytes.len(), blocks) }
    }

    /// As [`SharedMemory::copy_out_blocks`], to memory that others may use meanwhile, too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// Any `len` bytes may be written at `into`.
    pub unsafe fn copy_out_blocks_to(
        &self,
        offset: u64,
        into: *mut u8,
        len: usize,
        blocks: Blocks,
    ) -> Result<(), Outside> {
        let Some(there) = blocks.span(offset, len)? else { return Ok(()) };
        let at = self.at(offset, there)?;
        // SAFETY: as in `copy_in_blocks_from`, the other way; whatever bytes a racing peer leaves are valid.
        unsafe { copy_blocks((at, blocks.there as usize), (into, blocks.here), blocks) };
        Ok(())
    }

    /// Copies `len` bytes from `source_offset` of `source` to `offset` of this mapping, like memmove: the two
    /// may be one mapping, or two of the same file. If they overlap within one mapping, bytes arrive unmixed.
    ///
    /// # Errors
    /// [`Outside`] naming the first of the two ranges, target before source, that is not inside its mapping;
    /// then nothing is written.
    #[inline]
    pub fn copy_within_from(
        &self,
        offset: u64,
        source: &SharedMemory,
        source_offset: u64,
        len: u64,
    ) -> Result<(), Outside> {
        let to = self.at(offset, len)?;
        let from = source.at(source_offset, len)?;
        // SAFETY: both ranges are mapped for `len` bytes (checked above) while the two borrows live, and
        // may overlap. `len` fits a usize because it fits a mapping.
        unsafe { copy(from, to, len as usize, usize::MAX) };
        Ok(())
    }

    /// The 64-bit word at `offset`, for atomic access.
    ///
    /// # Errors
    /// [`Outside`] if it is not wholly inside, or `offset` is no multiple of 8.
    #[inline]
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, Outside> {
        let at = self.aligned(offset, 8, 8)?;
        // SAFETY: eight mapped bytes at a multiple of eight (checked above) that stay mapped while `self` is
        // borrowed; an atomic may be changed by others at any time.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// The 32-bit word at `offset`, for atomic access.
    ///
    /// # Errors
    /// [`Outside`] if it is not wholly inside, or `offset` is no multiple of 4.
    #[inline]
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, Outside> {
        let at = self.aligned(offset, 4, 4)?;
        // SAFETY: four mapped bytes at a multiple of four, for the rest as in `atomic_u64`.
        Ok(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    /// `words` 64-bit words from `offset` on, as a handle that keeps the mapping alive.
    ///
    /// # Errors
    /// [`Outside`] if they are not wholly inside, or `offset` is no multiple of 8.
    pub fn words(&self, offset: u64, words: usize) -> Result<Words, Outside> {
        let len = (words as u64).checked_mul(8).ok_or(self.outside(offset, u64::MAX))?;
        let at = self.aligned(offset, len, 8)?;
        let first = NonNull::new(at.cast()).expect("inside a mapping, which does not start at zero");
        Ok(Words { first, words, _mapping: Arc::clone(&self.mapping) })
    }

    /// The address of `len` bytes at `offset`, once they are known to be inside.
    #[inline(always)]
    fn at(&self, offset: u64, len: u64) -> Result<*mut u8, Outside> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len as u64 => Ok(self.base.as_ptr().wrapping_add(offset as usize)),
            _ => Err(self.outside(offset, len)),
        }
    }

    #[inline(always)]
    fn aligned(&self, offset: u64, len: u64, alignment: u64) -> Result<*mut u8, Outside> {
        if !offset.is_multiple_of(alignment) {
            return Err(self.outside(offset, len));
        }
        self.at(offset, len)
    }

    #[cold]
    fn outside(&self, offset: u64, len: u64) -> Outside {
        Outside { offset, len, size: self.len as u64 }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("base", &self.base).field("len", &self.len).finish()
    }
}

// SAFETY: a share of a mapping, which any thread may drop, and its address, which is the same on all.
unsafe impl Send for SharedMemory {}
// SAFETY: every method works through copies or atomics that allow concurrent use, from other processes
// already.
unsafe impl Sync for SharedMemory {}

/// A run of 64-bit words of a mapping, which lives as long as this handle: a slice of atomics that can be
/// owned.
#[derive(Clone, Debug)]
pub struct Words {
    first: NonNull<AtomicU64>,
    words: usize,
    _mapping: Arc<Mapping>,
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `SharedMemory::words` checked that so many words lie inside the mapping and are aligned;
        // the handle owns a share of the mapping, so they stay mapped while it is borrowed. Atomics may
        // change under us.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

// SAFETY: a pointer to atomics plus a share of their owner, both usable from any thread.
unsafe impl Send for Words {}
// SAFETY: as above; a shared `Words` gives nothing but shared atomics.
unsafe impl Sync for Words {}

#[cfg(all(test, not(miri)))]
mod tests;

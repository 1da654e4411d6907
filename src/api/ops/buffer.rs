//! Buffers: memory by pointer and length that an operation can own until it has ended.
//!
//! The traits are open, and `unsafe` to implement, after those of tokio-uring and compio. References to the
//! bytes are never made: others may use the memory meanwhile, in ways that Rust's references forbid.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use crate::api::heap::HeapArray;
use crate::api::ops::payload::Payload;
use crate::transport::shm::Lent;

/// Memory that an operation can own: it stays where it is while its owner moves.
///
/// An operation that uses it touches it until it has ended, from any thread, from peers' processes and from
/// devices. Then the event gives the owner back; if the event was dropped, the owner is dropped, by whichever
/// thread makes progress, with no lock of the library's held.
///
/// # Safety
/// From each call of [`Buffer::start`] until the owner is dropped, or handed to anybody but this library, the
/// [`Buffer::byte_len`] bytes from the pointer on are one piece of valid memory. Moving the owner changes
/// neither. Safe code that has no access to the owner neither reads nor writes them, but for bytes that are
/// only put, which others may read.
pub unsafe trait Buffer: Send + 'static {
    /// Where the bytes begin; dangling, if there are none. Called by the thread that starts the operation.
    fn start(&mut self) -> *mut u8;

    /// Bytes.
    fn byte_len(&self) -> usize;
}

/// A buffer that can be put from.
///
/// # Safety
/// All its bytes are initialised.
pub unsafe trait PutBuffer: Buffer {}

/// A buffer that can be got into.
///
/// # Safety
/// Any bytes may be written there, in any order, and perhaps not all of them.
pub unsafe trait GetBuffer: Buffer {
    /// Called once, before the owner is given back, when a get has filled the whole buffer.
    ///
    /// # Safety
    /// All bytes have been written since the last call of [`Buffer::start`].
    unsafe fn filled(&mut self) {}
}

/// The bytes that a put takes from a buffer.
pub(crate) fn source<B: PutBuffer>(buffer: &mut B) -> Lent<'_> {
    let (start, len) = (buffer.start(), buffer.byte_len());
    // SAFETY: by the traits the bytes are valid and initialised while the buffer lives, and its owner is
    // borrowed until the operation has ended, or kept by the event.
    unsafe { Lent::source_at(start, len) }
}

/// The bytes that a get writes in a buffer.
pub(crate) fn target<B: GetBuffer>(buffer: &mut B) -> Lent<'_> {
    let (start, len) = (buffer.start(), buffer.byte_len());
    // SAFETY: by the traits any bytes may be written there while the buffer lives; for the rest as `source`.
    unsafe { Lent::target_at(start, len) }
}

/// Tells a buffer that a get of all of it has succeeded. Only for the event of that get.
pub(crate) fn filled<B: GetBuffer>(buffer: &mut B) {
    // SAFETY: the event calls it where the operation has ended well that was to write the whole buffer, which
    // it has had since `start`.
    unsafe { buffer.filled() };
}

/// Implements the traits for owners of slices, which have `as_mut_ptr` or `as_ptr`, and `len` values.
macro_rules! slices {
    ($($owner:ty, $value:ident: $bound:path, $start:ident, [$($traits:ident),*];)*) => {
        $(
            // SAFETY: the owner has its values in memory of their own, which moves with none of its moves. A
            // shared buffer is only put from, which reads.
            unsafe impl<$value: $bound + Send + Sync + 'static> Buffer for $owner {
                fn start(&mut self) -> *mut u8 {
                    self.$start().cast::<u8>().cast_mut()
                }

                fn byte_len(&self) -> usize {
                    self.len() * size_of::<$value>()
                }
            }
            $(
                // SAFETY: plain old data has no uninitialised bytes, and may be any bytes.
                unsafe impl<$value: $bound + Send + Sync + 'static> $traits for $owner {}
            )*
        )*
    };
}

slices! {
    Vec<T>, T: Pod, as_ptr_of_mut, [PutBuffer, GetBuffer];
    Box<[T]>, T: Pod, as_ptr_of_mut, [PutBuffer, GetBuffer];
    Arc<[T]>, T: Pod, as_ptr, [PutBuffer];
    &'static [T], T: Pod, as_ptr, [PutBuffer];
}

/// A pointer to write by, from an owner that is borrowed for writing.
trait AsPtrOfMut<T> {
    fn as_ptr_of_mut(&mut self) -> *const T;
}

impl<T> AsPtrOfMut<T> for [T] {
    fn as_ptr_of_mut(&mut self) -> *const T {
        self.as_mut_ptr().cast_const()
    }
}

// SAFETY: the text is in memory of its own, which moves with none of the owner's moves; it is only put from.
unsafe impl Buffer for String {
    fn start(&mut self) -> *mut u8 {
        self.as_ptr().cast_mut()
    }

    fn byte_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: text has no uninitialised bytes, all of which are its own.
unsafe impl PutBuffer for String {}

// SAFETY: its bytes lie in memory of their own, which moves with none of its moves, and are only put from.
unsafe impl Buffer for Payload {
    fn start(&mut self) -> *mut u8 {
        self.as_ptr().cast_mut()
    }

    fn byte_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: they came in a message, and all are initialised.
unsafe impl PutBuffer for Payload {}

// SAFETY: there are no bytes, so that a dangling pointer to them is valid.
unsafe impl Buffer for () {
    fn start(&mut self) -> *mut u8 {
        std::ptr::dangling_mut()
    }

    fn byte_len(&self) -> usize {
        0
    }
}

// SAFETY: there are no bytes that could be uninitialised.
unsafe impl PutBuffer for () {}

// SAFETY: there are no bytes that could be written.
unsafe impl GetBuffer for () {}

// SAFETY: the block stays where it is in the heap until the array is dropped. It may be written by peers at
// any time, and is reached by copies alone.
unsafe impl<T: Pod> Buffer for HeapArray<T> {
    fn start(&mut self) -> *mut u8 {
        self.as_ptr().cast()
    }

    fn byte_len(&self) -> usize {
        self.len() * size_of::<T>()
    }
}

// SAFETY: the heap's pages are initialised by the kernel, and plain old data has no other bytes.
unsafe impl<T: Pod> PutBuffer for HeapArray<T> {}

// SAFETY: the values are plain old data, which may be any bytes.
unsafe impl<T: Pod> GetBuffer for HeapArray<T> {}

/// Owners that can grow: they have room behind their values. Implemented for `Vec<T>`, and with the feature
/// `bytes` for `BytesMut`.
pub trait Grow: sealed::Room {}

impl<V: sealed::Room> Grow for V {}

mod sealed {
    /// # Safety
    /// `room` gives as many bytes behind the values, which stay where they are until the owner is changed,
    /// and which `grow` makes values.
    pub unsafe trait Room: Send + 'static {
        type Value;

        fn room(&mut self, values: usize) -> *mut u8;

        /// # Safety
        /// So many values behind the last one are initialised, within what `room` gave last.
        unsafe fn grow(&mut self, values: usize);
    }
}

// SAFETY: a vector's capacity is one piece of memory with its values first, and moves only when it grows.
unsafe impl<T: Pod + Send> sealed::Room for Vec<T> {
    type Value = T;

    fn room(&mut self, values: usize) -> *mut u8 {
        self.reserve(values);
        self.spare_capacity_mut().as_mut_ptr().cast()
    }

    unsafe fn grow(&mut self, values: usize) {
        let len = self.len() + values;
        // SAFETY: the caller says that so many are initialised, within the capacity.
        unsafe { self.set_len(len) };
    }
}

/// A get's buffer behind what a vector has: room for more values, which nothing fills with zeroes. If the get
/// succeeds the vector has them; if it fails, the vector is as it was. Gets of many pieces append nothing.
pub struct Append<V: Grow> {
    to: V,
    values: usize,
}

impl<V: Grow> Append<V> {
    /// Room for so many values behind those of `to`, which is taken when the get starts. As everywhere in
    /// Rust, the process ends where there is no such memory: [`Append::try_new`] is for a length that
    /// somebody else gave.
    ///
    /// # Panics
    /// As [`Vec::reserve`], where so many cannot be counted.
    pub fn new(to: V, values: usize) -> Append<V> {
        Append { to, values }
    }

    /// The vector.
    pub fn into_inner(self) -> V {
        self.to
    }
}

impl<T: bytemuck::Pod + Send> Append<Vec<T>> {
    /// As [`Append::new`], for a length that somebody else gave: the room is taken at once.
    ///
    /// ```
    /// use standpipe::Append;
    ///
    /// let said_by_a_peer = usize::MAX / 16;
    /// assert!(Append::try_new(Vec::<u64>::new(), said_by_a_peer).is_err());
    /// ```
    ///
    /// # Errors
    /// Where there is no such memory, or so many cannot be counted.
    pub fn try_new(
        mut to: Vec<T>,
        values: usize,
    ) -> Result<Append<Vec<T>>, std::collections::TryReserveError> {
        to.try_reserve(values)?;
        Ok(Append { to, values })
    }
}

impl<V: Grow> fmt::Debug for Append<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Append").field("values", &self.values).finish_non_exhaustive()
    }
}

// SAFETY: the room lies in the vector's own memory, and nobody reaches the vector while this has it.
unsafe impl<V: Grow> Buffer for Append<V> {
    fn start(&mut self) -> *mut u8 {
        self.to.room(self.values)
    }

    fn byte_len(&self) -> usize {
        self.values.checked_mul(size_of::<V::Value>()).expect("`room` has given so many")
    }
}

// SAFETY: nobody takes the room for values before `filled`.
unsafe impl<V: Grow> GetBuffer for Append<V> {
    unsafe fn filled(&mut self) {
        let values = std::mem::take(&mut self.values);
        // SAFETY: the caller says that all of the room has been written, since `start` reserved it.
        unsafe { self.to.grow(values) };
    }
}

/// Some bytes of a buffer, as a buffer.
#[derive(Debug)]
pub struct Part<B> {
    whole: B,
    range: Range<usize>,
}

impl<B: Buffer> Part<B> {
    /// The bytes of `whole` in a range, counted from its start.
    ///
    /// # Panics
    /// Where they do not lie in it.
    pub fn new(whole: B, range: Range<usize>) -> Part<B> {
        let len = whole.byte_len();
        assert!(range.start <= range.end && range.end <= len, "bytes {range:?} of a buffer of {len}");
        Part { whole, range }
    }

    /// The whole buffer.
    pub fn into_inner(self) -> B {
        self.whole
    }
}

// SAFETY: they are bytes of another buffer, which cannot be reached but by this, and so does not change.
unsafe impl<B: Buffer> Buffer for Part<B> {
    fn start(&mut self) -> *mut u8 {
        let start = self.whole.start();
        assert!(self.range.end <= self.whole.byte_len(), "a buffer's length does not change");
        start.wrapping_add(self.range.start)
    }

    fn byte_len(&self) -> usize {
        self.range.len()
    }
}

// SAFETY: all bytes of the whole are initialised, and so those are.
unsafe impl<B: PutBuffer> PutBuffer for Part<B> {}

// SAFETY: any bytes may be written in the whole, and so there. It is never told that it is filled.
unsafe impl<B: GetBuffer> GetBuffer for Part<B> {}

/// Memory that is not Rust's, or whose owner is no buffer: a pointer and a length, with whatever keeps it.
pub struct Foreign<K> {
    start: *mut u8,
    len: usize,
    keeper: K,
}

// SAFETY: the pointer is only handed to operations, which may run anywhere, as `new` has been promised; the
// keeper may be sent.
unsafe impl<K: Send> Send for Foreign<K> {}

impl<K: Send + 'static> Foreign<K> {
    /// The `len` bytes from `start` on. `keeper` is given back with them, or dropped, when nothing of the
    /// operation can touch them any more.
    ///
    /// # Safety
    /// While this value, or an operation that it was handed to, is there, the bytes are one piece of valid
    /// memory. This program may read them, and write them where they are got into. Nobody else writes them,
    /// nor reads them where they are got into. Bytes that are put from are initialised.
    pub unsafe fn new(start: *mut u8, len: usize, keeper: K) -> Foreign<K> {
        Foreign { start, len, keeper }
    }

    /// The value that keeps the memory.
    pub fn into_keeper(self) -> K {
        self.keeper
    }
}

impl<K> fmt::Debug for Foreign<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").field("start", &self.start).field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: `new` was promised that the bytes are there, in one piece, for as long as this is.
unsafe impl<K: Send + 'static> Buffer for Foreign<K> {
    fn start(&mut self) -> *mut u8 {
        self.start
    }

    fn byte_len(&self) -> usize {
        self.len
    }
}

// SAFETY: `new` was promised that the bytes are initialised where they are put from.
unsafe impl<K: Send + 'static> PutBuffer for Foreign<K> {}

// SAFETY: `new` was promised that the bytes may be written where they are got into.
unsafe impl<K: Send + 'static> GetBuffer for Foreign<K> {}

#[cfg(feature = "bytes")]
mod with_bytes {
    use bytes::{BufMut, Bytes, BytesMut};

    use super::{Buffer, GetBuffer, PutBuffer, sealed};

    // SAFETY: the bytes are shared memory that nobody writes, and that stays while any handle does.
    unsafe impl Buffer for Bytes {
        fn start(&mut self) -> *mut u8 {
            self.as_ptr().cast_mut()
        }

        fn byte_len(&self) -> usize {
            self.len()
        }
    }

    // SAFETY: all bytes are initialised, as it gives slices of them.
    unsafe impl PutBuffer for Bytes {}

    // SAFETY: the handle has its bytes for itself, in memory that moves with none of its moves.
    unsafe impl Buffer for BytesMut {
        fn start(&mut self) -> *mut u8 {
            self.as_mut_ptr()
        }

        fn byte_len(&self) -> usize {
            self.len()
        }
    }

    // SAFETY: all of its length is initialised, as it gives slices of it.
    unsafe impl PutBuffer for BytesMut {}

    // SAFETY: it holds bytes, of which any are valid, and nobody else has them.
    unsafe impl GetBuffer for BytesMut {}

    // SAFETY: its capacity is one piece of memory with its bytes first, and does not move unless it grows.
    unsafe impl sealed::Room for BytesMut {
        type Value = u8;

        fn room(&mut self, values: usize) -> *mut u8 {
            self.reserve(values);
            self.chunk_mut().as_mut_ptr()
        }

        unsafe fn grow(&mut self, values: usize) {
            // SAFETY: the caller says that so many are initialised, within the capacity.
            unsafe { self.advance_mut(values) };
        }
    }
}

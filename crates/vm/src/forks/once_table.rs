//! A table whose places are each filled once, and which a child made by `fork` finds empty.

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Places by number, of which each holds nothing or a `T`, that stays until the table goes. In a child made
/// by `fork` all are empty: nothing that is reached by way of the table is within the child's reach, at no
/// cost to who looks. Clones are handles on the same table.
pub struct OnceTable<T> {
    places: NonNull<AtomicPtr<T>>,
    len: usize,
    _memory: Arc<Memory<T>>,
}

/// The memory that a table lies in.
struct Memory<T> {
    places: NonNull<AtomicPtr<T>>,
    len: usize,
    owns: PhantomData<Arc<T>>,
}

// SAFETY: the table hands out `&T` and `Arc<T>` to all threads that share it, which is what `Arc<T>` does and
// wants the same of `T`; its own words are atomics.
unsafe impl<T: Send + Sync> Send for OnceTable<T> {}
// SAFETY: as above: all that shared access does is to read atomics, and to hand out `&T` and `Arc<T>`.
unsafe impl<T: Send + Sync> Sync for OnceTable<T> {}
// SAFETY: as for the table, which this is the memory of; it is reached by its words, which are atomics.
unsafe impl<T: Send + Sync> Send for Memory<T> {}
// SAFETY: as above: shared access reads atomics, and only the last owner frees what they point to.
unsafe impl<T: Send + Sync> Sync for Memory<T> {}

impl<T> OnceTable<T> {
    /// A table of so many empty places. Pages of it are used when a place on them is.
    ///
    /// # Errors
    /// The kernel's, when it gives no memory.
    pub fn new(len: usize) -> io::Result<OnceTable<T>> {
        let bytes = len.max(1).checked_mul(size_of::<AtomicPtr<T>>());
        let places = pages(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?.cast();
        Ok(OnceTable { places, len, _memory: Arc::new(Memory { places, len, owns: PhantomData }) })
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the places begin, for those who look without this: a pointer a place, null where it is empty,
    /// that one atomic access reads. Its target lives as long as the table.
    pub fn start(&self) -> *mut AtomicPtr<T> {
        self.places.as_ptr()
    }

    /// Whether both are handles on one table. Any thread.
    pub fn is(&self, other: &OnceTable<T>) -> bool {
        self.places == other.places
    }

    /// The value at a place; nothing also where there is no such place. Any thread.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&T> {
        let value = self.place(index)?.load(Ordering::Acquire);
        // SAFETY: it came from `Arc::into_raw`, and the table gives its share up when it goes itself, which
        // is after this borrow of it.
        unsafe { value.as_ref() }
    }

    /// As [`OnceTable::get`], shared with the table. Any thread.
    pub fn get_shared(&self, index: usize) -> Option<Arc<T>> {
        let value = self.place(index)?.load(Ordering::Acquire).cast_const();
        if value.is_null() {
            return None;
        }
        // SAFETY: it came from `Arc::into_raw`, and the table holds a share of it now.
        unsafe {
            Arc::increment_strong_count(value);
            Some(Arc::from_raw(value))
        }
    }

    /// Fills a place. Any thread.
    ///
    /// # Errors
    /// The value, where something lies there already, or there is no such place.
    pub fn set(&self, index: usize, value: Arc<T>) -> Result<&T, Arc<T>> {
        let Some(place) = self.place(index) else { return Err(value) };
        let new = Arc::into_raw(value).cast_mut();
        let filled =
            place.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if filled {
            // SAFETY: the table holds a share of it from now on, and outlives this borrow.
            Ok(unsafe { &*new })
        } else {
            // SAFETY: it came from `Arc::into_raw` just now, and nobody else has seen it.
            Err(unsafe { Arc::from_raw(new) })
        }
    }

    /// Fills a place with this value if it is empty, and gives the value that lies there.
    ///
    /// # Panics
    /// Where there is no such place.
    pub fn get_or_set(&self, index: usize, value: Arc<T>) -> &T {
        assert!(index < self.len, "place {index} of a table of {}", self.len);
        match self.set(index, value) {
            Ok(value) => value,
            Err(_) => self.get(index).expect("it is filled, and stays so"),
        }
    }

    #[inline(always)]
    fn place(&self, index: usize) -> Option<&AtomicPtr<T>> {
        if index >= self.len {
            return None;
        }
        // SAFETY: the memory has so many words, zeroed when it was made, which are null pointers; it is
        // reached by them alone, and lives as long as this handle.
        Some(unsafe { self.places.add(index).as_ref() })
    }
}

impl<T> Clone for OnceTable<T> {
    fn clone(&self) -> OnceTable<T> {
        OnceTable { places: self.places, len: self.len, _memory: Arc::clone(&self._memory) }
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        for index in 0..self.len {
            // SAFETY: as in `place`: within the memory, which lives until the end of this; no handle is left.
            let value =
                unsafe { self.places.add(index).as_ref() }.swap(std::ptr::null_mut(), Ordering::Acquire);
            if !value.is_null() {
                // SAFETY: it came from `Arc::into_raw`, and this was the table's share of it.
                drop(unsafe { Arc::from_raw(value) });
            }
        }
        release(self.places.cast(), self.len.max(1) * size_of::<AtomicPtr<T>>());
    }
}

/// Zeroed memory that children find zeroed, whatever was written to it.
#[cfg(not(any(loom, miri)))]
fn pages(bytes: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: the kernel chooses where, so that nothing else is touched.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    super::wipe_in_children(start.cast(), bytes);
    Ok(NonNull::new(start.cast()).expect("the kernel maps nothing at address 0"))
}

#[cfg(not(any(loom, miri)))]
fn release(start: NonNull<u8>, bytes: usize) {
    // SAFETY: it was mapped by `pages`, with this length, and nobody has it any more.
    let unmapped = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
    debug_assert!(unmapped.is_ok(), "{unmapped:?}");
}

#[cfg(any(loom, miri))]
fn pages(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: the layout is of a length of more than 0, as `new` has made it.
    let start = unsafe { std::alloc::alloc_zeroed(layout(bytes)) };
    NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(any(loom, miri))]
fn release(start: NonNull<u8>, bytes: usize) {
    // SAFETY: it was allocated by `pages`, with this layout, and nobody has it any more.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout(bytes)) };
}

#[cfg(any(loom, miri))]
fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, align_of::<AtomicPtr<u8>>()).expect("a short table")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_filled_once() {
        let table = OnceTable::new(3).expect("memory");
        assert_eq!((table.get(0), table.get(3)), (None, None));
        assert_eq!(table.set(2, Arc::new("first")), Ok(&"first"));
        assert_eq!(table.set(2, Arc::new("second")), Err(Arc::new("second")));
        assert_eq!(table.set(3, Arc::new("nowhere")), Err(Arc::new("nowhere")));
        assert_eq!(table.clone().get(2), Some(&"first"));
    }

    #[test]
    fn what_a_table_held_goes_when_its_last_handle_does() {
        let (table, value) = (OnceTable::new(1).expect("memory"), Arc::new(1));
        assert!(table.set(0, Arc::clone(&value)).is_ok());
        let (other, shared) = (table.clone(), table.get_shared(0).expect("it was set"));
        drop(table);
        assert_eq!((other.get(0), Arc::strong_count(&value)), (Some(&1), 3));
        drop((other, shared));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

//! The table of handlers, which FM 2.0's programs write in themselves.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Handlers that a table has room for, unless a program asks for another number.
pub const HANDLERS: usize = 1024;

/// The most that it may ask for.
pub const HANDLERS_MAX: usize = 1 << 16;

/// Why a handler is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The number is beyond the table.
    #[error("handler {}, where {most} is the last", .id.cast_signed())]
    Beyond {
        /// The number; a C program may have written one below 0.
        id: u64,
        /// The last one.
        most: u64,
    },
    /// All numbers are taken.
    #[error("all {0} handlers are registered")]
    Full(u64),
}

/// Pointers to handlers, by number. In memory it is an array of pointers, null where none is registered.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(pub &'a [AtomicPtr<()>]);

impl Table<'_> {
    /// Registers a handler under a number, in the place of one that is there; or under the lowest number that
    /// is free. Returns the number.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn register(&self, id: Option<u64>, handler: NonNull<()>) -> Result<usize, TableError> {
        let len = self.0.len() as u64;
        let at = match id {
            Some(id) if id < len => id as usize,
            Some(id) => return Err(TableError::Beyond { id, most: len - 1 }),
            None => {
                let is_free = |slot: &AtomicPtr<()>| slot.load(Ordering::Acquire).is_null();
                self.0.iter().position(is_free).ok_or(TableError::Full(len))?
            }
        };
        self.0[at].store(handler.as_ptr(), Ordering::Release);
        Ok(at)
    }

    /// The handler of that number.
    #[inline]
    pub fn get(&self, id: u32) -> Option<NonNull<()>> {
        self.0.get(id as usize).and_then(|slot| NonNull::new(slot.load(Ordering::Acquire)))
    }

    /// A table of `len` handlers, with those of this one that find a place.
    pub fn grown(&self, len: usize) -> Box<[AtomicPtr<()>]> {
        let at = |at: usize| self.0.get(at).map_or(null_mut(), |slot| slot.load(Ordering::Acquire));
        (0..len).map(|index| AtomicPtr::new(at(index))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(value: usize) -> NonNull<()> {
        NonNull::new(std::ptr::without_provenance_mut(value)).expect("it is not null")
    }

    #[test]
    fn numbers_are_given_in_order_and_registering_again_replaces() {
        let slots = [const { AtomicPtr::new(null_mut()) }; 3];
        let table = Table(&slots);
        assert_eq!(table.get(0), None);
        assert_eq!(table.register(None, pointer(8)), Ok(0));
        assert_eq!(table.register(Some(2), pointer(16)), Ok(2));
        assert_eq!(table.register(None, pointer(24)), Ok(1));
        assert_eq!(table.register(None, pointer(32)), Err(TableError::Full(3)));
        assert_eq!(table.register(Some(3), pointer(32)), Err(TableError::Beyond { id: 3, most: 2 }));
        assert_eq!(table.register(Some(0), pointer(40)), Ok(0));
        assert_eq!(
            [0, 1, 2, 3].map(|id| table.get(id)),
            [Some(pointer(40)), Some(pointer(24)), Some(pointer(16)), None]
        );
        let grown = table.grown(4);
        assert_eq!(Table(&grown).register(None, pointer(48)), Ok(3));
        assert_eq!(Table(&table.grown(1)).get(1), None);
    }
}

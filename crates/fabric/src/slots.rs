//! One slot for each operation in flight: what the provider may write into it, and what the caller wants to
//! hear when it ends. All of them are allocated when the endpoint is opened.

use crate::ffi::fi_context2;
use std::ffi::c_void;
use std::ptr::NonNull;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A one-sided write.
    Write,
    /// A one-sided read.
    Read,
    /// A message sent.
    Send,
    /// A buffer that waits for a message.
    Receive,
}

#[derive(Clone, Copy)]
struct Meta {
    token: u64,
    /// `None` while the slot is free.
    op: Option<Op>,
}

const BYTES: usize = size_of::<fi_context2>();

/// The slots of one endpoint.
pub(crate) struct Slots {
    /// Memory that only the provider reads and writes, one context a slot; here it is just addresses.
    contexts: NonNull<[fi_context2]>,
    metas: Box<[Meta]>,
    free: Vec<u32>,
}

// SAFETY: the contexts are memory that belongs to these slots alone, and is not touched from here.
unsafe impl Send for Slots {}

// SAFETY: through a shared reference nothing of the contexts is read or written.
unsafe impl Sync for Slots {}

impl Slots {
    pub(crate) fn new(count: u32) -> Slots {
        let contexts = vec![fi_context2 { internal: [std::ptr::null_mut(); 8] }; count as usize];
        let contexts = NonNull::from(Box::leak(contexts.into_boxed_slice()));
        let metas = vec![Meta { token: 0, op: None }; count as usize].into_boxed_slice();
        Slots { contexts, metas, free: (0..count).rev().collect() }
    }

    fn base(&self) -> *mut fi_context2 {
        self.contexts.as_ptr().cast()
    }

    /// Takes a slot; `None` if all are in use. The address is valid until the slots are dropped, and the
    /// provider's until the operation ends.
    #[inline(always)]
    pub(crate) fn take(&mut self, op: Op, token: u64) -> Option<*mut c_void> {
        let index = self.free.pop()?;
        self.metas[index as usize] = Meta { token, op: Some(op) };
        Some(self.base().wrapping_add(index as usize).cast())
    }

    /// Frees the slot of that address, and says what it was for; `None` if it is no slot in use.
    #[inline(always)]
    pub(crate) fn release(&mut self, context: *mut c_void) -> Option<(Op, u64)> {
        let offset = (context as usize).wrapping_sub(self.base() as usize);
        let index = offset / BYTES;
        if !offset.is_multiple_of(BYTES) {
            return None;
        }
        let meta = self.metas.get_mut(index)?;
        let op = meta.op.take()?;
        self.free.push(index as u32);
        Some((op, meta.token))
    }

    /// How many are in use.
    pub(crate) fn used(&self) -> usize {
        self.metas.len() - self.free.len()
    }

    /// Whether an operation of that kind is in flight.
    pub(crate) fn has(&self, op: Op) -> bool {
        self.metas.iter().any(|meta| meta.op == Some(op))
    }

    /// Keeps the contexts for ever, because the provider may still write to them.
    pub(crate) fn leak(&mut self) {
        self.contexts = NonNull::from(&mut [] as &mut [fi_context2; 0]);
        self.metas = Box::default();
        self.free = Vec::new();
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: it was leaked from a boxed slice of this length by `new`, or is an empty one. The owner of
        // the slots has closed the endpoint before, so that the provider uses none of them any more, or has
        // called `leak`.
        drop(unsafe { Box::from_raw(self.contexts.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_with_what_was_put_there() {
        let mut slots = Slots::new(2);
        let first = slots.take(Op::Write, 7).expect("two are free");
        let second = slots.take(Op::Receive, u64::MAX).expect("one is free");
        assert_eq!(slots.take(Op::Read, 0), None);
        assert_eq!(slots.used(), 2);
        assert!(slots.has(Op::Receive) && !slots.has(Op::Read));
        assert_eq!(slots.release(second), Some((Op::Receive, u64::MAX)));
        assert!(!slots.has(Op::Receive));
        assert_eq!(slots.release(second), None, "it is free already");
        assert_eq!(slots.take(Op::Read, 9), Some(second));
        assert_eq!(slots.release(first), Some((Op::Write, 7)));
        assert_eq!(slots.used(), 1);
    }

    #[test]
    fn foreign_addresses_are_no_slots() {
        let mut slots = Slots::new(2);
        let first = slots.take(Op::Write, 7).expect("two are free");
        for foreign in [
            std::ptr::null_mut(),
            first.wrapping_byte_add(8),
            first.wrapping_byte_add(2 * BYTES),
            first.wrapping_byte_sub(BYTES),
        ] {
            assert_eq!(slots.release(foreign), None);
        }
        slots.leak();
        assert_eq!(slots.release(first), None);
    }
}

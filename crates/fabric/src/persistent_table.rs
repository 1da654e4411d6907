//! The table of [prepared operations](crate::persistent).

use crate::ffi::{self, fi_context2, fi_msg_rma, fi_rma_iov};
use crate::slots::Op;
use libc::iovec;
use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};

/// As many may be prepared at an endpoint.
pub const PREPARED_MAX: usize = 128;

/// Names a prepared operation of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared(pub(crate) u32);

impl Prepared {
    /// None of any endpoint: it is never started.
    pub const NONE: Prepared = Prepared(u32::MAX);
}

/// One of them. The library is given the addresses of its parts, so it stays where it is.
#[repr(C, align(256))]
pub(crate) struct Message {
    /// The provider's, while it is under way.
    context: fi_context2,
    pub(crate) message: fi_msg_rma,
    pub(crate) remote: fi_rma_iov,
    pub(crate) local: iovec,
    desc: *mut c_void,
    /// Bytes of the buffer.
    pub(crate) bytes: usize,
    /// The caller's name for it.
    token: u64,
    /// `None`: it is not under way.
    pub(crate) op: Option<Op>,
}

const BYTES: usize = size_of::<Message>();
const _: () = assert!(BYTES == 256, "places are found by a shift");
const _: () = assert!(offset_of!(Message, context) == 0, "a context's address is its operation's");

/// Those of one endpoint, in memory that no reference points into: the provider writes to parts of it.
pub(crate) struct Messages {
    /// Room for all that there may be; null as long as there are none.
    pub(crate) base: *mut Message,
    pub(crate) count: usize,
}

// SAFETY: the memory belongs to these messages alone, and what is done with it takes the whole of them for
// itself.
unsafe impl Send for Messages {}

// SAFETY: through a shared reference it is only read, by whoever asks what is under way, and nobody writes
// meanwhile.
unsafe impl Sync for Messages {}

impl Messages {
    pub(crate) const fn new() -> Messages {
        Messages { base: std::ptr::null_mut(), count: 0 }
    }

    /// Prepares one more, with a buffer of so many bytes, and what the provider wants to know about that.
    /// `None`: there are as many as there may be.
    #[cold]
    pub(crate) fn add(
        &mut self,
        (addr, bytes, desc): (*mut u8, usize, *mut c_void),
        token: u64,
    ) -> Option<Prepared> {
        if self.count == PREPARED_MAX {
            return None;
        }
        if self.base.is_null() {
            let room: Box<[MaybeUninit<Message>]> = Box::new_uninit_slice(PREPARED_MAX);
            self.base = Box::into_raw(room).cast();
        }
        let at = self.base.wrapping_add(self.count);
        let part = |offset: usize| at.wrapping_byte_add(offset);
        let message = fi_msg_rma {
            msg_iov: part(offset_of!(Message, local)).cast(),
            desc: part(offset_of!(Message, desc)).cast(),
            iov_count: 1,
            addr: ffi::FI_ADDR_UNSPEC,
            rma_iov: part(offset_of!(Message, remote)).cast(),
            rma_iov_count: 1,
            context: at.cast(),
            data: 0,
        };
        let whole = Message {
            context: fi_context2 { internal: [std::ptr::null_mut(); 8] },
            message,
            remote: fi_rma_iov { addr: 0, len: 0, key: 0 },
            local: iovec { iov_base: addr.cast(), iov_len: 0 },
            desc,
            bytes,
            token,
            op: None,
        };
        // SAFETY: there is room for one more, as was looked above, and nobody knows of that place yet.
        unsafe { at.write(whole) };
        self.count += 1;
        Some(Prepared(self.count as u32 - 1))
    }

    /// The operation of this address ended: what it was, and what the caller calls it. `None`: it is none
    /// that is under way.
    #[inline(always)]
    pub(crate) fn ended(&mut self, context: *mut c_void) -> Option<(Op, u64)> {
        let offset = (context as usize).wrapping_sub(self.base as usize);
        if !offset.is_multiple_of(BYTES) || offset / BYTES >= self.count {
            return None;
        }
        let at = self.base.wrapping_byte_add(offset);
        // SAFETY: it is the beginning of one that was prepared; these parts of it are not the provider's.
        unsafe { Some(((*at).op.take()?, (*at).token)) }
    }

    /// Which are under way.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = Op> {
        // SAFETY: so many were prepared; this part of them is not the provider's.
        (0..self.count).filter_map(|at| unsafe { (*self.base.wrapping_add(at)).op })
    }

    /// Keeps them for ever, as the provider may still write to them.
    pub(crate) fn leak(&mut self) {
        *self = Messages::new();
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if !self.base.is_null() {
            let room =
                std::ptr::slice_from_raw_parts_mut(self.base.cast::<MaybeUninit<Message>>(), PREPARED_MAX);
            // SAFETY: it came from a box of so many when the first was added. The owner of this has closed
            // the endpoint before, so that the provider uses none of them any more, or has called `leak`.
            drop(unsafe { Box::from_raw(room) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(len: usize) -> (*mut u8, usize, *mut c_void) {
        (std::ptr::null_mut(), len, std::ptr::null_mut())
    }

    #[test]
    fn only_what_is_under_way_ends() {
        let mut messages = Messages::new();
        assert_eq!(messages.ended(std::ptr::null_mut()), None, "there is none");
        assert_eq!(messages.add(buffer(8), 70), Some(Prepared(0)));
        assert_eq!(messages.add(buffer(8), 71), Some(Prepared(1)));
        let second = messages.base.wrapping_add(1);
        assert_eq!(messages.ended(second.cast()), None, "it was not started");
        // SAFETY: it was prepared above, and no provider knows of it.
        unsafe { (*second).op = Some(Op::Read) };
        assert_eq!(messages.under_way().collect::<Vec<_>>(), [Op::Read]);
        for foreign in [second.wrapping_byte_add(64), second.wrapping_add(1), messages.base.wrapping_sub(1)] {
            assert_eq!(messages.ended(foreign.cast()), None);
        }
        assert_eq!(messages.ended(second.cast()), Some((Op::Read, 71)));
        assert_eq!(messages.ended(second.cast()), None, "it has ended");
    }

    #[test]
    fn there_are_no_more_than_fit() {
        let mut messages = Messages::new();
        let added = (0..2 * PREPARED_MAX).filter_map(|token| messages.add(buffer(8), token as u64));
        assert_eq!(added.count(), PREPARED_MAX);
        messages.leak();
        assert_eq!(messages.under_way().count(), 0);
    }
}

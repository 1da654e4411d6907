//! Operations that are prepared once and started often: each writes from a buffer of its own, or reads into
//! it.
//!
//! Most of what the library wants to be told about an operation is the same each time. It is written down
//! when the operation is prepared, beside the memory that the provider keeps its own account of it in; to
//! start it takes six words.

use crate::endpoint::Endpoint;
use crate::ffi::{self, fi_rma_iov, fid_ep};
use crate::persistent_table::{Message, Prepared};
use crate::post::{Local, Remote};
use crate::slots::Op;

impl Endpoint {
    /// Prepares operations that write from the beginning of this buffer, or read into it, one at a time.
    /// `None`: as many as [`PREPARED_MAX`](crate::PREPARED_MAX) are prepared.
    ///
    /// # Safety
    /// As the [contract of posts](crate::post) says of memory, until the endpoint is closed; but while the
    /// operation is not under way the memory is the caller's.
    #[cold]
    pub unsafe fn prepare(&mut self, buffer: Local, token: u64) -> Option<Prepared> {
        self.main.prepared.add((buffer.addr, buffer.len, buffer.desc.0), token)
    }

    /// Starts a prepared operation: `len` bytes from `from` on are copied to its buffer, and written from
    /// there to a peer's memory; complete when they are there. `false`: it is not started, for it is under
    /// way, its buffer is smaller, there is no such peer, or the provider does not take it now;
    /// [`Endpoint::write_pieces`] would tell which.
    ///
    /// # Safety
    /// So many bytes can be read there, and nobody writes them meanwhile.
    #[inline(always)]
    pub unsafe fn deliver_prepared(
        &mut self,
        which: Prepared,
        from: *const u8,
        len: usize,
        to: Remote,
    ) -> bool {
        let Some((at, ep)) = self.describe(which, len, to) else { return false };
        // SAFETY: one that was prepared and is not under way, so that its parts are nobody else's; its buffer
        // has room, and the caller vouches for the bytes. The endpoint is open, and its table had this
        // function when it was opened. The caller that prepared this vouches for the buffer; the context is
        // the provider's until the operation ends. A word takes no call.
        unsafe {
            let buffer = (*at).local.iov_base;
            match len {
                8 => buffer.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                _ => buffer.cast::<u8>().copy_from_nonoverlapping(from, len),
            }
            (*at).op = Some(Op::Write);
            let flags = ffi::FI_COMPLETION | ffi::FI_DELIVERY_COMPLETE;
            let taken = (*(*ep).rma).writemsg.map(|start| start(ep, &raw const (*at).message, flags));
            taken == Some(0) || not_taken(at)
        }
    }

    /// As [`Endpoint::deliver_prepared`], of `len` bytes that are read into the buffer's beginning.
    #[inline(always)]
    pub fn read_prepared(&mut self, which: Prepared, len: usize, from: Remote) -> bool {
        let Some((at, ep)) = self.describe(which, len, from) else { return false };
        // SAFETY: one that was prepared and is not under way, so that its parts are nobody else's. The
        // endpoint is open, and its table had this function when it was opened. The caller that prepared this
        // vouches for the buffer; the context is the provider's until the operation ends.
        unsafe {
            (*at).op = Some(Op::Read);
            let taken =
                (*(*ep).rma).readmsg.map(|start| start(ep, &raw const (*at).message, ffi::FI_COMPLETION));
            taken == Some(0) || not_taken(at)
        }
    }

    /// Tells a prepared operation that is not under way its bytes and where they go.
    #[inline(always)]
    fn describe(
        &mut self,
        Prepared(which): Prepared,
        len: usize,
        Remote { peer, addr, key }: Remote,
    ) -> Option<(*mut Message, *mut fid_ep)> {
        let peer = peer.known(&self.peers).ok()?;
        let queued = &mut self.main;
        if which as usize >= queued.prepared.count {
            return None;
        }
        let at = queued.prepared.base.wrapping_add(which as usize);
        // SAFETY: one that was prepared; but for the context it is not the provider's, unless it is under
        // way, which is looked at before anything is written.
        unsafe {
            if (*at).op.is_some() || len > (*at).bytes {
                return None;
            }
            (*at).message.addr = peer;
            (*at).local.iov_len = len;
            (*at).remote = fi_rma_iov { addr, len, key };
        }
        Some((at, queued.ep.as_ptr()))
    }
}

/// The provider has not taken an operation.
///
/// # Safety
/// It was prepared.
#[cold]
#[inline(never)]
unsafe fn not_taken(at: *mut Message) -> bool {
    // SAFETY: the caller's promise; the provider has not taken it, so that nothing of it is the provider's.
    unsafe { (*at).op = None };
    false
}

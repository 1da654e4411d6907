//! Starting operations: nothing waits, nothing is allocated, and what cannot be taken now is [`Post::Busy`].
//!
//! # The contract of posts
//! Where a post says so, from the call until its completion was [polled](Endpoint::poll) or the endpoint was
//! [closed](Endpoint::close) with success:
//! 1. every piece of local memory stays there; memory that is read is not written by anyone, and memory that
//!    is written is neither read nor written by anyone else;
//! 2. where the provider asks for `local` registration, each piece lies in a registration of this endpoint
//!    that is open all the time, and has its [`Desc`]; elsewhere `Desc::NONE` will do, and any other must be
//!    one of such a registration.
//!
//! A post that returned [`Post::Busy`] or an error has started nothing. Changes to the peer's memory are the
//! peer's affair: it has registered it for that.

use crate::aux_endpoint::AuxEndpoint;
use crate::endpoint::{Endpoint, Peer};
use crate::errno::Errno;
use crate::error::Error;
use crate::ffi::{self, fi_msg_rma, fi_rma_iov, fid_ep};
use crate::queued_endpoint::QueuedEndpoint;
use crate::region::Desc;
use crate::slots::Op;
use libc::{iovec, ssize_t};
use std::ffi::c_void;

/// Whether an operation was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an operation that was not taken must be posted again"]
pub enum Post {
    /// It is under way; its completion will be polled. (Of inline operations none comes, unless they fail.)
    Posted,
    /// There is no room now, or no connection yet: poll, and post again.
    Busy,
}

/// Memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its first byte.
    pub addr: *mut u8,
    /// Its length in bytes.
    pub len: usize,
    /// The descriptor that the provider wants for it.
    pub desc: Desc,
}

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer.
    pub peer: Peer,
    /// The address: as the target's [`Region::remote_addr`](crate::Region::remote_addr) counts.
    pub addr: u64,
    /// The key of the registration that it lies in.
    pub key: u64,
}

/// A piece of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePiece {
    /// The address, as in [`Remote::addr`].
    pub addr: u64,
    /// Its length in bytes.
    pub len: usize,
    /// The key of the registration that it lies in.
    pub key: u64,
}

/// When a write is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The buffer may be used again; what has reached the target depends on the provider. That the target
    /// refuses the key may never be told: see the [crate's notes](crate).
    Reusable,
    /// The data are in the target's memory.
    Delivered,
}

/// Most pieces on either side of one operation, even where a provider would take more.
pub const PIECES_MAX: usize = 16;

impl Endpoint {
    /// Writes one piece to a peer's memory; complete when the buffer may be used again. A key that the target
    /// refuses need not fail it, and costs the connection with all that is sent behind it: see the [crate's
    /// notes](crate).
    ///
    /// # Errors
    /// [`Error::NoPeer`]; [`Error::Call`] for `fi_write`.
    ///
    /// # Safety
    /// The [contract of posts](self); the memory is read.
    #[inline]
    pub unsafe fn write(&mut self, from: Local, to: Remote, token: u64) -> Result<Post, Error> {
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.main_as_aux().write(from, to, token) }
    }

    /// Reads from a peer's memory into one piece.
    ///
    /// # Errors
    /// [`Error::NoPeer`]; [`Error::Call`] for `fi_read`.
    ///
    /// # Safety
    /// The [contract of posts](self); the memory is written.
    #[inline(always)]
    pub unsafe fn read(&mut self, into: Local, from: Remote, token: u64) -> Result<Post, Error> {
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.main_as_aux().read(into, from, token) }
    }

    /// Writes pieces to pieces of one peer's memory, in order; as many bytes on either side.
    ///
    /// # Errors
    /// [`Error::NoPeer`]; [`Error::TooMuch`] if there are more pieces than [`PIECES_MAX`] or than the
    /// provider takes; [`Error::Call`] for `fi_writemsg`.
    ///
    /// # Safety
    /// The [contract of posts](self); the memory is read.
    #[inline]
    pub unsafe fn write_pieces(
        &mut self,
        from: &[Local],
        peer: Peer,
        to: &[RemotePiece],
        until: Until,
        token: u64,
    ) -> Result<Post, Error> {
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.main_as_aux().write_pieces(from, peer, to, until, token) }
    }

    /// Reads pieces of one peer's memory into pieces, in order; as many bytes on either side.
    ///
    /// # Errors
    /// As for [`Endpoint::write_pieces`], with `fi_readmsg`.
    ///
    /// # Safety
    /// The [contract of posts](self); the memory is written.
    #[inline]
    pub unsafe fn read_pieces(
        &mut self,
        into: &[Local],
        peer: Peer,
        from: &[RemotePiece],
        token: u64,
    ) -> Result<Post, Error> {
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.main_as_aux().read_pieces(into, peer, from, token) }
    }

    /// Writes a few bytes, at most [`Description::inline_bytes`](crate::Description::inline_bytes), to a
    /// peer's memory. The bytes may be used again at return. No completion comes, except of a failure, which
    /// then has no token; a key that the target refuses may be none, as of [`Endpoint::write`].
    ///
    /// # Errors
    /// [`Error::NoPeer`]; [`Error::TooMuch`]; [`Error::Call`] for `fi_inject_write`.
    pub fn write_inline(&mut self, from: &[u8], to: Remote) -> Result<Post, Error> {
        const CALL: &str = "fi_inject_write";
        let peer = self.known(to.peer)?;
        self.fits_inline(CALL, from.len())?;
        let ep = self.main.ep.as_ptr();
        // SAFETY: the endpoint is open, and its table had this function when it was opened; the bytes are
        // borrowed for as long as the call takes, and no longer needed.
        let returned = unsafe {
            let inject = (*(*ep).rma).inject.ok_or(Error::Absent { call: CALL })?;
            inject(ep, from.as_ptr().cast(), from.len(), peer, to.addr, to.key)
        };
        posted(CALL, returned)
    }

    /// Sends a message from one piece; complete when the buffer may be used again.
    ///
    /// # Errors
    /// [`Error::NoPeer`]; [`Error::Call`] for `fi_send`.
    ///
    /// # Safety
    /// The [contract of posts](self); the memory is read.
    #[inline]
    pub unsafe fn send(&mut self, from: Local, peer: Peer, token: u64) -> Result<Post, Error> {
        let peer = self.known(peer)?;
        self.post("fi_send", Op::Send, token, |ep, context| {
            // SAFETY: the endpoint is open, and its table had this function when it was opened; the caller
            // vouches for the memory, and the context is the provider's until the operation ends.
            unsafe {
                let send = (*(*ep).msg).send?;
                Some(send(ep, from.addr.cast(), from.len, from.desc.0, peer, context))
            }
        })
    }

    /// Gives a buffer for one message from any peer; complete when one has arrived in it. Messages go to the
    /// buffers in the order in which these were posted. One that is longer than its buffer fails with
    /// `FI_ETRUNC`.
    ///
    /// # Errors
    /// [`Error::Call`] for `fi_recv`.
    ///
    /// # Safety
    /// The [contract of posts](self); the memory is written.
    #[inline]
    pub unsafe fn receive(&mut self, into: Local, token: u64) -> Result<Post, Error> {
        self.post("fi_recv", Op::Receive, token, |ep, context| {
            // SAFETY: the endpoint is open, and its table had this function when it was opened; the caller
            // vouches for the memory, and the context is the provider's until the operation ends.
            unsafe {
                let recv = (*(*ep).msg).recv?;
                Some(recv(ep, into.addr.cast(), into.len, into.desc.0, ffi::FI_ADDR_UNSPEC, context))
            }
        })
    }

    /// As [`QueuedEndpoint::post`], at the endpoint itself.
    #[inline]
    pub(crate) fn post(
        &mut self,
        call: &'static str,
        op: Op,
        token: u64,
        start: impl FnOnce(*mut fid_ep, *mut c_void) -> Option<ssize_t>,
    ) -> Result<Post, Error> {
        self.main.post(call, op, token, start)
    }

    fn fits_inline(&self, call: &'static str, len: usize) -> Result<(), Error> {
        fits(call, len, self.description().inline_bytes)
    }
}

impl AuxEndpoint<'_> {
    /// As [`Endpoint::write`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The [contract of posts](self); this auxiliary endpoint's being closed with success ends an operation,
    /// too.
    #[inline]
    pub unsafe fn write(&mut self, from: Local, to: Remote, token: u64) -> Result<Post, Error> {
        let peer = to.peer.known(self.peers)?;
        self.queued.post("fi_write", Op::Write, token, |ep, context| {
            // SAFETY: the endpoint is open, and its table had this function when it was opened; the caller
            // vouches for the memory, and the context is the provider's until the operation ends.
            unsafe {
                let write = (*(*ep).rma).write?;
                Some(write(ep, from.addr.cast(), from.len, from.desc.0, peer, to.addr, to.key, context))
            }
        })
    }

    /// As [`Endpoint::read`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The [contract of posts](self); this auxiliary endpoint's being closed with success ends an operation,
    /// too.
    #[inline(always)]
    pub unsafe fn read(&mut self, into: Local, from: Remote, token: u64) -> Result<Post, Error> {
        let peer = from.peer.known(self.peers)?;
        let Some(context) = self.queued.slots.take(Op::Read, token) else { return Ok(Post::Busy) };
        let ep = self.queued.ep.as_ptr();
        // SAFETY: the endpoint is open, and its table had this function when it was opened; the caller
        // vouches for the memory, and the context is the provider's until the operation ends.
        let outcome = unsafe {
            let (addr, len, desc) = (into.addr.cast(), into.len, into.desc.0);
            (*(*ep).rma).read.map(|read| read(ep, addr, len, desc, peer, from.addr, from.key, context))
        };
        self.queued.begun("fi_read", context, outcome)
    }

    /// As [`Endpoint::write_pieces`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The [contract of posts](self); this auxiliary endpoint's being closed with success ends an operation,
    /// too.
    #[inline]
    pub unsafe fn write_pieces(
        &mut self,
        from: &[Local],
        peer: Peer,
        to: &[RemotePiece],
        until: Until,
        token: u64,
    ) -> Result<Post, Error> {
        let delivery = if until == Until::Delivered { ffi::FI_DELIVERY_COMPLETE } else { 0 };
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.pieces("fi_writemsg", Op::Write, from, peer, to, delivery, token) }
    }

    /// As [`Endpoint::read_pieces`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The [contract of posts](self); this auxiliary endpoint's being closed with success ends an operation,
    /// too.
    #[inline]
    pub unsafe fn read_pieces(
        &mut self,
        into: &[Local],
        peer: Peer,
        from: &[RemotePiece],
        token: u64,
    ) -> Result<Post, Error> {
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.pieces("fi_readmsg", Op::Read, into, peer, from, 0, token) }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "two callers just above, and nothing to name the bundle by"
    )]
    /// # Safety
    /// The contract of posts.
    #[inline]
    unsafe fn pieces(
        &mut self,
        call: &'static str,
        op: Op,
        local: &[Local],
        peer: Peer,
        remote: &[RemotePiece],
        flags: u64,
        token: u64,
    ) -> Result<Post, Error> {
        let addr = peer.known(self.peers)?;
        let (local_max, remote_max) = (self.description.local_pieces, self.description.remote_pieces);
        fits(call, local.len(), local_max.min(PIECES_MAX))?;
        fits(call, remote.len(), remote_max.min(PIECES_MAX))?;
        if let ([local], [remote]) = (local, remote) {
            // Nothing but what is used is written.
            let mut lists = Lists { iovs: [iov(local)], descs: [local.desc.0], remotes: [rma_iov(remote)] };
            // SAFETY: what the called function asks for is what the caller of this one has promised.
            return unsafe { self.start(call, op, addr, &mut lists, (1, 1), flags, token) };
        }
        let mut lists = Lists {
            iovs: [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES_MAX],
            descs: [std::ptr::null_mut(); PIECES_MAX],
            remotes: [fi_rma_iov { addr: 0, len: 0, key: 0 }; PIECES_MAX],
        };
        for (at, piece) in local.iter().enumerate() {
            (lists.iovs[at], lists.descs[at]) = (iov(piece), piece.desc.0);
        }
        for (at, piece) in remote.iter().enumerate() {
            lists.remotes[at] = rma_iov(piece);
        }
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.start(call, op, addr, &mut lists, (local.len(), remote.len()), flags, token) }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "two callers just above, and nothing to name the bundle by"
    )]
    /// # Safety
    /// The contract of posts; the lists have as many pieces as the counts say, at either side.
    #[inline]
    unsafe fn start<const N: usize>(
        &mut self,
        call: &'static str,
        op: Op,
        addr: u64,
        lists: &mut Lists<N>,
        (local, remote): (usize, usize),
        flags: u64,
        token: u64,
    ) -> Result<Post, Error> {
        debug_assert!(local <= N && remote <= N, "the lists are shorter");
        self.queued.post(call, op, token, |ep, context| {
            let message = fi_msg_rma {
                msg_iov: lists.iovs.as_ptr(),
                desc: lists.descs.as_mut_ptr(),
                iov_count: local,
                addr,
                rma_iov: lists.remotes.as_ptr(),
                rma_iov_count: remote,
                context,
                data: 0,
            };
            // SAFETY: the endpoint is open, and its table had both functions when it was opened. The lists
            // are arrays of at least the lengths given, read during the call only. The caller vouches for the
            // memory that they name, and the context is the provider's until the operation ends.
            unsafe {
                let rma = (*ep).rma;
                let start = if op == Op::Read { (*rma).readmsg? } else { (*rma).writemsg? };
                Some(start(ep, &message, flags | ffi::FI_COMPLETION))
            }
        })
    }
}

/// The pieces of one operation, as the library wants them.
struct Lists<const N: usize> {
    iovs: [iovec; N],
    descs: [*mut c_void; N],
    remotes: [fi_rma_iov; N],
}

#[inline]
fn iov(piece: &Local) -> iovec {
    iovec { iov_base: piece.addr.cast(), iov_len: piece.len }
}

#[inline]
fn rma_iov(piece: &RemotePiece) -> fi_rma_iov {
    fi_rma_iov { addr: piece.addr, len: piece.len, key: piece.key }
}

impl QueuedEndpoint {
    /// Takes a slot and has `start` begin the operation; `None` of it means that the function is not there.
    #[inline]
    pub(crate) fn post(
        &mut self,
        call: &'static str,
        op: Op,
        token: u64,
        start: impl FnOnce(*mut fid_ep, *mut c_void) -> Option<ssize_t>,
    ) -> Result<Post, Error> {
        let Some(context) = self.slots.take(op, token) else { return Ok(Post::Busy) };
        let outcome = start(self.ep.as_ptr(), context);
        self.begun(call, context, outcome)
    }

    /// The fate of an operation that a slot was taken for.
    #[inline(always)]
    fn begun(
        &mut self,
        call: &'static str,
        context: *mut c_void,
        outcome: Option<ssize_t>,
    ) -> Result<Post, Error> {
        if outcome == Some(0) { Ok(Post::Posted) } else { self.not_posted(call, context, outcome) }
    }

    /// Takes the slot back of an operation that did not begin.
    #[inline(never)]
    fn not_posted(
        &mut self,
        call: &'static str,
        context: *mut c_void,
        outcome: Option<ssize_t>,
    ) -> Result<Post, Error> {
        self.slots.release(context);
        outcome.map_or(Err(Error::Absent { call }), |returned| posted(call, returned))
    }
}

fn fits(call: &'static str, len: usize, max: usize) -> Result<(), Error> {
    if len > max { Err(Error::TooMuch { call, len, max }) } else { Ok(()) }
}

/// The meaning of a number returned by a function that starts an operation.
fn posted(call: &'static str, returned: ssize_t) -> Result<Post, Error> {
    if returned >= 0 {
        return Ok(Post::Posted);
    }
    match Errno::returned(returned as i64) {
        Errno::EAGAIN => Ok(Post::Busy),
        errno => Err(Error::Call { call, errno }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_no_error() {
        assert_eq!(posted("fi_write", 0), Ok(Post::Posted));
        assert_eq!(posted("fi_write", -11), Ok(Post::Busy));
        let refused = posted("fi_write", -107).expect_err("not busy");
        assert_eq!(refused, Error::Call { call: "fi_write", errno: Errno::ENOTCONN });
        assert_eq!(refused.to_string(), "fi_write failed: FI_ENOTCONN (107)");
    }
}

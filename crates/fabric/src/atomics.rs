//! Atomic operations on one aligned 64-bit word of a peer's memory.
//!
//! They are atomic to each other. Whether they are to the target's own atomics, or to those of another
//! provider, only the provider knows: a word should be touched in one way only.

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::ffi;
use crate::post::{Local, Post, Remote};
use crate::slots::Op;

impl Endpoint {
    /// Adds the word at `add` to a peer's word, wrapping; the old value comes to `old`. Both are 8 bytes.
    ///
    /// # Errors
    /// [`Error::Absent`] if this endpoint has [no atomics](crate::Description::atomics); [`Error::NoPeer`];
    /// [`Error::Call`] for `fi_fetch_atomic`.
    ///
    /// # Safety
    /// The [contract of posts](crate::post); `add` is read, `old` is written, and both are 8 bytes long and
    /// aligned.
    pub unsafe fn fetch_add(
        &mut self,
        add: Local,
        old: Local,
        at: Remote,
        token: u64,
    ) -> Result<Post, Error> {
        const CALL: &str = "fi_fetch_atomic";
        let peer = self.atomic_peer(CALL, at)?;
        self.post(CALL, Op::Atomic, token, |ep, context| {
            // SAFETY: the endpoint is open and had this function when it was opened; the caller vouches for
            // the memory, and the context is the provider's until the operation ends.
            unsafe {
                let fetch = (*(*ep).atomic).readwrite?;
                let (add_to, old_to) = (add.addr.cast(), old.addr.cast());
                let (kind, sum) = (ffi::FI_UINT64 as u32, ffi::FI_SUM as u32);
                let Remote { addr, key, .. } = at;
                Some(fetch(
                    ep, add_to, 1, add.desc.0, old_to, old.desc.0, peer, addr, key, kind, sum, context,
                ))
            }
        })
    }

    /// Stores the word at `new` in a peer's word if that equals the word at `expected`; the old value comes
    /// to `old` either way. All three are 8 bytes.
    ///
    /// # Errors
    /// As for [`Endpoint::fetch_add`], with `fi_compare_atomic`.
    ///
    /// # Safety
    /// The [contract of posts](crate::post); `new` and `expected` are read, `old` is written, and all three
    /// are 8 bytes long and aligned.
    pub unsafe fn compare_swap(
        &mut self,
        new: Local,
        expected: Local,
        old: Local,
        at: Remote,
        token: u64,
    ) -> Result<Post, Error> {
        const CALL: &str = "fi_compare_atomic";
        let peer = self.atomic_peer(CALL, at)?;
        self.post(CALL, Op::Atomic, token, |ep, context| {
            // SAFETY: the endpoint is open and had this function when it was opened; the caller vouches for
            // the memory, and the context is the provider's until the operation ends.
            unsafe {
                let compare = (*(*ep).atomic).compwrite?;
                let [new_to, expected_to, old_to] = [new, expected, old].map(|local| local.addr.cast());
                let (kind, swap) = (ffi::FI_UINT64 as u32, ffi::FI_CSWAP as u32);
                let Remote { addr, key, .. } = at;
                Some(compare(
                    ep,
                    new_to,
                    1,
                    new.desc.0,
                    expected_to,
                    expected.desc.0,
                    old_to,
                    old.desc.0,
                    peer,
                    addr,
                    key,
                    kind,
                    swap,
                    context,
                ))
            }
        })
    }

    fn atomic_peer(&self, call: &'static str, at: Remote) -> Result<u64, Error> {
        if !self.description().atomics {
            return Err(Error::Absent { call });
        }
        self.known(at.peer)
    }
}

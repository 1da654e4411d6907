//! One promise for all memory: for faces of old programs, which name any memory by its address.
//!
//! Generic Active Messages, BIP, FM and PM take pointers, of this process and of its peers, and trust them. A
//! face of such an interface makes its promise once, and is safe Rust after that.

use engine::Rank;

use crate::api::node::Node;
use crate::api::ops::active_message::Call;
use crate::api::ops::buffer::Foreign;
use crate::base::error::Error;
use crate::base::handler_id::HandlerId;
use crate::base::pointers::Remote;

/// The right to read and write any memory of this process and of its peers, in safe code.
///
/// Made once, by the unsafe [`AllMemory::promised`], where a program in another language hands over its
/// addresses. A holder of it names the same memory as that program, and nothing else. Any thread may use it.
#[derive(Clone, Copy, Debug)]
pub struct AllMemory(());

#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "the promise that made the value covers all pointers")]
impl AllMemory {
    /// Promises it.
    ///
    /// # Safety
    /// As long as any copy of the value exists, it is used only for memory that somebody outside safe Rust
    /// has vouched for, in all that [`Remote::raw`] and [`Foreign::new`] ask. That is the program that calls
    /// a C face, by the rules of that face.
    pub const unsafe fn promised() -> AllMemory {
        AllMemory(())
    }

    /// The bytes at virtual address `addr` of `peer`, as by [`Remote::raw`]. Nothing is looked at before an
    /// operation is started with them.
    pub const fn remote(self, peer: Rank, addr: u64) -> Remote {
        // SAFETY: whoever made this value has promised for all addresses that it is used with.
        unsafe { Remote::raw(peer, addr) }
    }

    /// The `len` bytes from `start` on as a buffer, as by [`Foreign::new`]: an operation gives `keeper` back.
    pub fn buffer<K: Send + 'static>(self, start: *mut u8, len: usize, keeper: K) -> Foreign<K> {
        // SAFETY: whoever made this value has promised for all memory of this process that it is used with.
        unsafe { Foreign::new(start, len, keeper) }
    }

    /// Puts the `len` bytes from `from` on at `to`, and then runs the handler there, as
    /// [`Node::request_long`]. It waits as that does, and any thread may call it. When it returns, the caller
    /// may change the bytes again. A bad address of this process's may end the process.
    ///
    /// # Errors
    /// As for [`Node::request_long`].
    pub fn request_long(
        self,
        node: &Node,
        handler: HandlerId,
        args: [u64; 4],
        to: Remote,
        (from, len): (*const u8, usize),
    ) -> Result<(), Error> {
        if len == 0 {
            return node.request_long(handler, args, to, &[]);
        }
        // SAFETY: so many bytes can be read there, by the promise. It has all that `Foreign::new` asks, too:
        // they stay where they are, and nobody writes them, until the operation has ended.
        node.request_long(handler, args, to, unsafe { std::slice::from_raw_parts(from, len) })
    }

    /// Copies from this process's own memory. Where a peer writes there meanwhile, the copy has some of both.
    ///
    /// A bad address ends the process, as it does in the program that gave it.
    pub fn read(self, from: *const u8, into: &mut [u8]) {
        // SAFETY: so many bytes can be read there, by the promise; `into` is a reference, and so lies
        // elsewhere unless the promise is broken.
        unsafe { std::ptr::copy(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies to this process's own memory; as [`AllMemory::read`].
    pub fn write(self, to: *mut u8, from: &[u8]) {
        // SAFETY: so many bytes can be written there, by the promise; `from` is a reference, and so lies
        // elsewhere unless the promise is broken.
        unsafe { std::ptr::copy(from.as_ptr(), to, from.len()) }
    }

    /// Copies the first `len` bytes of a message's payload to this process's own memory, once; as
    /// [`AllMemory::write`].
    ///
    /// # Errors
    /// As for [`Call::read_payload`].
    pub fn write_payload(self, to: *mut u8, len: usize, call: &Call<'_>) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        // SAFETY: so many bytes can be written there, by the promise, and nobody else uses them until this
        // returns, as what `Foreign::new` asks is promised of them, too.
        call.read_payload(0, unsafe { std::slice::from_raw_parts_mut(to, len) })
    }

    /// Copies within this process's own memory, also where the two places overlap.
    pub fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: so many bytes can be read and written there, by the promise.
        unsafe { std::ptr::copy(from, to, len) }
    }
}

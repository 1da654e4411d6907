//! Memory of heaps.

use std::ffi::{c_int, c_void};

use standpipe::{Error, GlobalPtr, Memory, Node, Word};

use crate::border::call;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote, Params};

/// `sp_alloc_params` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AllocParams {
    size: usize,
    align: usize,
    huge: i32,
    unzeroed: i32,
}

// SAFETY: it has integers alone, which may all be zero.
unsafe impl Params for AllocParams {
    const NAME: &'static str = "sp_alloc_params";
    const LEAST: usize = size_of::<AllocParams>();
}

exported! {
    /// `sp_alloc` of the header.
    fn sp_alloc(
        node: *mut Handle<CNode>,
        bytes: usize,
        at: *mut CRemote,
        here: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { sp_alloc_with(node, bytes, std::ptr::null(), at, here) }
    }
}

exported! {
    /// `sp_alloc_with` of the header.
    fn sp_alloc_with(
        node: *mut Handle<CNode>,
        bytes: usize,
        params: *const AllocParams,
        at: *mut CRemote,
        here: *mut *mut c_void,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, params) = unsafe { (node_of(node)?, pointer::sized(params)?) };
            let params = params.unwrap_or(AllocParams { size: 0, align: 0, huge: 0, unzeroed: 0 });
            let heap = node.heap();
            let array = match (params.huge != 0, params.align) {
                (true, _) => heap.alloc_huge::<u8>(bytes)?,
                (false, 0) => heap.alloc::<u8>(bytes)?,
                (false, align) => heap.alloc_aligned::<u8>(bytes, align)?,
            };
            if params.unzeroed == 0 {
                // SAFETY: so many bytes lie there, which nobody has heard of yet.
                unsafe { array.as_ptr().write_bytes(0, bytes) };
            }
            let start = array.as_ptr();
            let name = CRemote::of(array.into_ptr().into());
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                pointer::put_if(at, name);
                pointer::put_if(here, start.cast());
            }
            Ok(0)
        })
    }
}

/// The pointer into a heap that a name stands for.
pub(crate) fn in_heap<T>(at: CRemote, what: &str) -> Result<GlobalPtr<T>, Failure> {
    let remote = at.remote()?;
    match remote.memory() {
        Memory::Heap => Ok(GlobalPtr::new(remote.peer(), remote.addr())),
        other => {
            Err(Failure::argument(format!("{what} lies in {other} memory, and not in a heap: {remote:?}")))
        }
    }
}

/// The word in a heap or in a grant that a name stands for.
pub(crate) fn word<T>(at: CRemote, what: &str) -> Result<Word<T>, Failure> {
    let remote = at.remote()?;
    match remote.memory() {
        Memory::Heap | Memory::Granted => Ok(remote.word()),
        other => Err(Failure::argument(format!(
            "{what} lies in {other} memory, and not in a heap or in a grant: {remote:?}"
        ))),
    }
}

exported! {
    /// `sp_free` of the header.
    fn sp_free(node: *mut Handle<CNode>, at: CRemote) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            node.heap().free(in_heap::<u8>(at, "what is to be freed")?)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_name_of` of the header.
    fn sp_name_of(
        node: *mut Handle<CNode>,
        here: *const c_void,
        at: *mut CRemote,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            crate::node::may_call(node, "a name in the heap")?;
            let ptr = node.heap().ptr_of(here.cast::<u8>());
            let ptr = ptr.ok_or_else(|| {
                let text = format!("{here:p} does not lie in this node's heap");
                Failure::new(standpipe::Code::Elsewhere, text)
            })?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(at, CRemote::of(ptr.into()), "at")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_local` of the header.
    fn sp_local(
        node: *mut Handle<CNode>,
        at: CRemote,
        bytes: usize,
        here: *mut *mut c_void,
    ) -> c_int {
        call(|| {
            pointer::needs(here, "here")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node: &Node = unsafe { node_of(node)? };
            let local = node.local_ptr(in_heap::<u8>(at, "the memory")?, bytes).map_err(|error: Error| error)?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(here, local.unwrap_or(std::ptr::null_mut()).cast(), "here")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_heap_size` of the header.
    fn sp_heap_size(
        node: *mut Handle<CNode>,
        bytes: *mut u64,
        resident: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            crate::node::may_call(node, "the heap's size")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                pointer::put_if(bytes, node.heap().size());
                pointer::put_if(resident, node.heap().resident_bytes());
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_plus` of the header.
    fn sp_plus(from: CRemote, bytes: u64) -> CRemote {
        from.remote().map_or(from, |remote| CRemote::of(remote.plus(bytes)))
    }
}

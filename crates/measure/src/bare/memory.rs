//! The processor's best copies: memcpy, to and from a peer's heap that is mapped here.

use std::hint::black_box;
use std::time::{Duration, Instant};

use standpipe::{Error, GlobalPtr, Node, underneath};
use vm::shared::{Blocks, Outside, SharedMemory};

/// A run of bytes of a mapping, to be copied to and from by memcpy alone.
#[derive(Debug)]
pub struct Mapped {
    memory: SharedMemory,
    offset: u64,
    len: usize,
}

impl Mapped {
    /// `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`Outside`] if they are not inside the mapping.
    fn new(memory: &SharedMemory, offset: u64, len: usize) -> Result<Mapped, Outside> {
        memory.copy_out(offset, &mut vec![0; len])?;
        Ok(Mapped { memory: memory.clone(), offset, len })
    }

    /// Calls memcpy, as a function that the compiler cannot see through, from `from` to the mapping.
    pub fn put(&self, from: &[u8], times: u32) -> Duration {
        assert_eq!(from.len(), self.len, "the buffer is as long as the run");
        let memcpy: unsafe extern "C" fn(*mut _, *const _, usize) -> *mut _ = black_box(libc::memcpy);
        let start = Instant::now();
        for _ in 0..times {
            // SAFETY: the target's `len` bytes were found inside the mapping, which the handle keeps alive;
            // the source is a slice of as many, which cannot lie in a mapping.
            unsafe { memcpy(black_box(self.at()), black_box(from.as_ptr()).cast(), black_box(self.len)) };
        }
        start.elapsed()
    }

    /// Calls memcpy from the mapping to `into`, as [`Mapped::put`] does.
    pub fn get(&self, into: &mut [u8], times: u32) -> Duration {
        assert_eq!(into.len(), self.len, "the buffer is as long as the run");
        let memcpy: unsafe extern "C" fn(*mut _, *const _, usize) -> *mut _ = black_box(libc::memcpy);
        let start = Instant::now();
        for _ in 0..times {
            // SAFETY: as in `put`, with source and target exchanged. Where the slice lies in a mapping,
            // whoever made it of a pointer has promised that it is borrowed alone, and so apart from the run.
            unsafe { memcpy(black_box(into.as_mut_ptr()).cast(), black_box(self.at()), black_box(self.len)) };
        }
        start.elapsed()
    }

    /// Calls memcpy once from `from` to the mapping.
    ///
    /// # Panics
    /// If `from` is not as long as the run.
    #[inline]
    pub fn copy_in(&self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "the buffer is as long as the run");
        // SAFETY: as in `put`: both ends are as long, the run lies in its mapping, and no caller's slice
        // does.
        unsafe { libc::memcpy(self.at(), from.as_ptr().cast(), self.len) };
    }

    /// Calls memcpy once from the mapping to `into`.
    ///
    /// # Panics
    /// If `into` is not as long as the run.
    #[inline]
    pub fn copy_out(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len, "the buffer is as long as the run");
        // SAFETY: as in `get`: both ends are as long, the run lies in its mapping, and a borrow is apart from
        // it.
        unsafe { libc::memcpy(into.as_mut_ptr().cast(), self.at(), self.len) };
    }

    /// Copies blocks of `from` to the mapping, as a program does that knows where both lie. It does so by a
    /// loop: of blocks of 64 bytes the compiler knows the length, others take calls of memcpy.
    ///
    /// # Panics
    /// Where the blocks do not lie inside both.
    pub fn put_blocks(&self, from: &[u8], blocks: Blocks, times: u32) -> Duration {
        let Blocks { block, count, there, here } = blocks;
        let (there, steps) = (there as usize, count.saturating_sub(1));
        let end = |stride: usize| stride.checked_mul(steps).and_then(|at| at.checked_add(block));
        let fits = |stride, len| end(stride).is_some_and(|end| end <= len);
        assert!(fits(there, self.len) && fits(here, from.len()), "the blocks lie inside both");
        let memcpy: unsafe extern "C" fn(*mut _, *const _, usize) -> *mut _ = black_box(libc::memcpy);
        let start = Instant::now();
        for _ in 0..times {
            let (to, from) = (black_box(self.at()).cast::<u8>(), black_box(from.as_ptr()));
            for i in 0..black_box(count) {
                // SAFETY: block `i` lies within both ends (checked above), which are a mapping that the
                // handle keeps alive and a slice, and so apart.
                unsafe {
                    let (to, from) = (to.add(i * there), from.add(i * here));
                    match block {
                        64 => to.copy_from_nonoverlapping(from, 64),
                        _ => drop(memcpy(to.cast(), from.cast(), block)),
                    }
                }
            }
        }
        start.elapsed()
    }

    fn at(&self) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut((self.memory.base_addr() + self.offset) as usize)
    }
}

/// `len` bytes of a peer's heap as plain memory.
///
/// # Errors
/// As for [`Node::get_bytes`].
pub fn mapped(node: &Node, ptr: GlobalPtr<u8>, len: usize) -> Result<Mapped, Error> {
    let mut bytes = vec![0; len];
    node.get_bytes(ptr, &mut bytes)?;
    // SAFETY: only these `len` bytes are touched, which the get has just reached; what is open in a mapping
    // stays open for as long as a handle to it lives.
    let memory = unsafe { underneath::heap(node, ptr.peer())? };
    Ok(Mapped::new(memory, ptr.offset(), len).expect("these very bytes were read above"))
}

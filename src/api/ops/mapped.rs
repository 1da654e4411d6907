//! The short way of puts and gets: to and from the mapped heap of a peer that has been talked to.

use bytemuck::Pod;
use engine::path::{self, Access, Facts, Limits, Path};
use engine::{Direction, MemId};

use crate::api::node::Node;
use crate::base::pointers::Remote;
use crate::counters::thread_counters::FastOp;
use crate::transport::peers::Near;
use crate::transport::shm::{Lent, copy};

impl Node {
    /// Puts values in the heap of a peer that has been talked to, if it is mapped here and they lie in the
    /// live part of it. Returns whether it did: whatever stands in the way is for others to find out.
    #[inline(always)]
    pub(super) fn put_mapped<T: Pod>(&self, to: Remote, from: &[T]) -> bool {
        let (offset, size) = (to.place.offset, size_of_val(from) as u64);
        if to.place.mem == MemId::Heap
            && size > 0
            && let Some(peer) = self.core.near.get(to.peer)
            && let Some(heap) = offset.checked_add(size).and_then(|end| peer.heap_up_to(end))
        {
            let stored = match from {
                // One access, as of `put`.
                [value] if size_of::<T>() <= 8 => heap.store(offset, *value),
                _ => heap.copy_in(offset, bytemuck::cast_slice(from)),
            };
            if stored.is_ok() {
                debug_assert_eq!(at_once(peer, MemId::Heap, Direction::Put, size), Path::Mapped);
                self.core.counted.thread_counters.add(FastOp::put_mapped(size), size);
                return true;
            }
        }
        false
    }

    /// As [`Node::put_mapped`], either way, of bytes that this thread is to copy by itself.
    #[inline(always)]
    pub(super) fn is_moved_mapped(&self, remote: Remote, local: Lent<'_>) -> bool {
        let (offset, size) = (remote.place.offset, local.len() as u64);
        if remote.place.mem == MemId::Heap
            && size > 0
            && !self.is_copied_apart(local.len())
            && let Some(peer) = self.core.near.get(remote.peer)
            && let Some(heap) = offset.checked_add(size).and_then(|end| peer.heap_up_to(end))
            && copy::bytes(heap, offset, local).is_ok()
        {
            debug_assert_eq!(at_once(peer, MemId::Heap, local.direction(), size), Path::Mapped);
            let op = match local.direction() {
                Direction::Put => FastOp::put_mapped(size),
                Direction::Get => FastOp::get_mapped(size),
            };
            self.core.counted.thread_counters.add(op, size);
            return true;
        }
        false
    }

    /// Whether a copy of so many bytes is for a thread apart to make, where it is made within the host.
    #[inline]
    pub(crate) fn is_copied_apart(&self, bytes: usize) -> bool {
        bytes as u64 >= self.core.threads.copied_apart_min
    }
}

/// The path to that memory of a near peer, as far as this process's own hands go; all others are the
/// engine's, which knows more.
#[inline(always)]
pub(super) fn at_once(near: &Near, memory: MemId, direction: Direction, bytes: u64) -> Path {
    let facts = Facts {
        wanted: direction.into(),
        bytes,
        alone: true,
        memory,
        access: Access::near(memory, near.reach.attach_to(memory)),
        limits: Limits::default(),
    };
    path::choose(&facts).path
}

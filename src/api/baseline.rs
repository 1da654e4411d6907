//! The machine's own limits on a job's memory, for `standpipe perf` and anyone who wants to measure against
//! them.

mod network;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use engine::{MemId, OpError, PathReason};
pub use vm::Blocks;
use vm::Iov;
pub use vm::baseline::{
    LockablePages, Mapped, Work, bounce, bounce_after, crossing, futex_barrier, futex_ping_pong, signals,
};

pub use self::network::Wire;
use crate::api::node::Node;
use crate::base::error::Error;
use crate::base::pointers::{GlobalPtr, Remote};
use crate::transport::peers::Near;
use crate::transport::shm::control::RING;

/// How many short messages from one rank to another may be on their way.
pub const LANE_MESSAGES: usize = RING.slots;

/// A word of some heap, mapped here, for the limits that need nothing but memory.
#[derive(Debug)]
pub struct Word {
    memory: vm::SharedMemory,
    offset: u64,
}

impl Word {
    /// The word that `ptr` points to.
    ///
    /// # Errors
    /// As for [`Node::atomic_load`].
    pub fn new(node: &Node, ptr: GlobalPtr<u64>) -> Result<Word, Error> {
        node.atomic_load(ptr)?;
        let memory = peer(node, ptr.peer())?.heap().clone();
        Ok(Word { memory, offset: ptr.offset() })
    }

    /// The word.
    pub fn get(&self) -> &AtomicU64 {
        self.memory.atomic_u64(self.offset).expect("an atomic was done there when this was made")
    }
}

/// `len` bytes of a peer's heap as plain memory.
///
/// # Errors
/// As for [`Node::get_bytes`].
pub fn mapped(node: &Node, ptr: GlobalPtr<u8>, len: usize) -> Result<Mapped, Error> {
    let mut bytes = vec![0; len];
    node.get_bytes(ptr, &mut bytes)?;
    let memory = peer(node, ptr.peer())?.heap();
    Ok(Mapped::new(memory, ptr.offset(), len).expect("these very bytes were read above"))
}

/// Calls process_vm_writev `times` times, with one list for all pieces, of one peer and all private. `None`
/// where the kernel refuses.
///
/// # Errors
/// As for [`Node::connect`].
///
/// # Panics
/// When a piece is of another peer than the first one, or in a heap.
pub fn attach_put(node: &Node, pieces: &[(Remote, &[u8])], times: u32) -> Result<Option<Duration>, Error> {
    let Some(((first, _), _)) = pieces.split_first() else { return Ok(None) };
    let peer = peer(node, first.peer())?;
    let remote: Vec<Iov> = pieces.iter().map(|(remote, local)| there(peer, remote, local.len())).collect();
    let local: Vec<Iov> = pieces.iter().map(|(_, local)| here(local.as_ptr(), local.len())).collect();
    // SAFETY: the local pieces are slices borrowed for reading; whoever made the `Remote`s promised that
    // putting through them does no harm.
    Ok(unsafe { vm::baseline::attach_write(peer.reach.pid, &remote, &local, times) })
}

/// Calls process_vm_readv `times` times, as [`attach_put`] does for writing.
///
/// # Errors
/// As for [`Node::connect`].
///
/// # Panics
/// As for [`attach_put`].
pub fn attach_get(
    node: &Node,
    pieces: &mut [(Remote, &mut [u8])],
    times: u32,
) -> Result<Option<Duration>, Error> {
    let Some(((first, _), _)) = pieces.split_first() else { return Ok(None) };
    let peer = peer(node, first.peer())?;
    let remote: Vec<Iov> = pieces.iter().map(|(remote, local)| there(peer, remote, local.len())).collect();
    let local: Vec<Iov> = pieces.iter_mut().map(|(_, local)| here(local.as_mut_ptr(), local.len())).collect();
    // SAFETY: the local pieces are slices borrowed for writing until this returns.
    Ok(unsafe { vm::baseline::attach_read(peer.reach.pid, &remote, &local, times) })
}

/// A peer that shared memory reaches: the limits are those of memory.
fn peer(node: &Node, rank: engine::Rank) -> Result<&Near, Error> {
    let far = OpError::Unsupported { peer: rank, why: PathReason::Network };
    node.core.peers.get(rank, None)?.near().ok_or_else(|| node.core.error_of(far))
}

fn there(peer: &Near, remote: &Remote, len: usize) -> Iov {
    assert_eq!(remote.peer, peer.rank, "one call attaches the memory of one peer");
    assert_eq!(remote.place.mem, MemId::Space, "cross-memory attach is for private memory");
    Iov { addr: remote.place.offset, len: len as u64 }
}

fn here(start: *const u8, len: usize) -> Iov {
    Iov { addr: start.expose_provenance() as u64, len: len as u64 }
}

#[cfg(test)]
mod tests {
    use engine::Place;

    use super::*;
    use crate::api::config::Config;

    /// Nothing is mapped there.
    fn nowhere(peer: engine::Rank) -> Remote {
        Remote { peer, place: Place::new(MemId::Space, 4096) }
    }

    fn alone() -> Node {
        Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node")
    }

    #[test]
    #[should_panic(expected = "the memory of one peer")]
    fn a_put_to_two_peers_is_refused() {
        let _ = attach_put(&alone(), &[(nowhere(0), &[1]), (nowhere(1), &[2])], 1);
    }

    #[test]
    #[should_panic(expected = "the memory of one peer")]
    fn a_get_from_two_peers_is_refused() {
        let (mut one, mut other) = ([0], [0]);
        let _ = attach_get(&alone(), &mut [(nowhere(0), &mut one), (nowhere(1), &mut other)], 1);
    }
}

//! A node's own means, for benchmarks that measure beside it, for the functions of the C face that are
//! inlined into programs, and for its calls. They reach the very memory that the node reaches, and the
//! network by the node's own choice, and then do without it.
//!
//! Only the node knows these: it alone has its peers' heaps mapped, knows their processes and picks a
//! provider's addresses. The benchmarks themselves are no part of the library. This module is not part of
//! the stable interface.

use engine::{OpError, PathReason, Rank};
use fabric::{Fabric, Provider};
use vm::SharedMemory;
pub use vm::membarrier::{private_fence, register_private};

use crate::api::node::Node;
use crate::base::error::Error;
use crate::transport::contract::Reach;
use crate::transport::ofi::provider::{self, NetworkError};
use crate::transport::peers::Near;
use crate::transport::shm::control::RING;

/// How many short messages from one rank to another may be on their way.
pub const LANE_MESSAGES: usize = RING.slots;

/// A peer's heap, as it is mapped here, whole. May be called by any thread, outside handlers.
///
/// # Errors
/// As for [`Node::connect`], and where shared memory does not reach the peer.
///
/// # Safety
/// Most of the mapping is address space that no access is allowed to: any function of [`SharedMemory`] that
/// touches it ends the process. The caller touches only bytes that an operation of this node has reached.
pub unsafe fn heap(node: &Node, rank: Rank) -> Result<&SharedMemory, Error> {
    Ok(near(node, rank)?.heap())
}

/// The number of a peer's process.
///
/// # Errors
/// As for [`heap`].
pub fn process(node: &Node, rank: Rank) -> Result<u32, Error> {
    Ok(near(node, rank)?.reach.pid)
}

/// The provider of this name, as [`Node::provider`] gives it, for endpoints that this host alone reaches.
///
/// # Errors
/// [`NetworkError`].
pub fn provider(name: &str) -> Result<Provider, NetworkError> {
    provider::provider(Fabric::load()?, name, &Reach::Host)
}

pub use crate::counters::thread_counters::InlineCounters;
pub use crate::transport::peers::near::NearTable;

/// Where the node's near peers are found, and counters for who finds them so.
pub fn inline_face(node: &Node) -> (NearTable, InlineCounters) {
    (node.core.near.table(), node.core.counted.thread_counters.of_others())
}

/// A peer that shared memory reaches: the limits are those of memory.
fn near(node: &Node, rank: Rank) -> Result<&Near, Error> {
    let far = OpError::Unsupported { peer: rank, why: PathReason::Network };
    node.core.peers.get(rank, None)?.near().ok_or_else(|| node.core.error_of(far))
}

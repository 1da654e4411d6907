//! Steps in own memory, and reductions right out of the heaps of peers on this host.

use bytemuck::Pod;
use engine::collective::Step;
use engine::{OpId, Place, Rank};
use vm::SharedMemory;

use super::buffers::Buffers;
use crate::api::collective::reduction::Combine;
use crate::runtime::core::NodeCore;
use crate::transport::peers::Peers;

/// Does the step in own memory that a collective has come to; it goes on after that.
pub(super) fn do_step<T: Pod>(
    core: &NodeCore,
    op: OpId,
    step: Step,
    buffers: &mut Buffers<'_, T>,
    combine: &mut dyn Combine<T>,
) {
    let Step::Fold { own, into, .. } = step else {
        buffers.apply(step, combine);
        return core.engine().local_done(op);
    };
    let given = core.engine().folded(op);
    let (own, result) = buffers.operands(own, into);
    // A slice of the caller's may lie in a peer's heap, if it was made of a bare pointer: then nothing is
    // combined.
    let folded =
        reached(&core.peers, &given, into.len).is_some_and(|given| combine.fold(own, result, &given));
    match folded {
        true => core.engine().local_done(op),
        false => core.engine().local_refused(op),
    }
}

/// Where in which heap, for so many bytes of each of these; `None` if some do not lie in a heap that is
/// mapped here.
fn reached<'a>(peers: &'a Peers, given: &[(Rank, Place)], len: u64) -> Option<Vec<(&'a SharedMemory, u64)>> {
    given.iter().map(|(rank, place)| peers.near().get(*rank)?.in_heap(*place, len)).collect()
}

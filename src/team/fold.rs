//! Steps in own memory, and reductions right out of the heaps of peers on this host.

use bytemuck::Pod;
use engine::collective::{Span, Step};
use engine::{OpId, Place, Rank};
use vm::SharedMemory;

use super::memory::Buffers;
use crate::inner::Inner;
use crate::reduction::Combine;
use crate::transport::shm::Peers;

/// Bytes that are combined at a time: what they come to stays in the processor's first cache until those of all members are
/// combined.
const CHUNK: usize = 4 << 10;

/// Does the step in own memory that a collective has come to; it goes on after that.
pub(super) fn do_step<T: Pod>(
    inner: &Inner,
    op: OpId,
    step: Step,
    buffers: &mut Buffers<'_, T>,
    combine: &mut dyn Combine<T>,
) {
    let Step::Fold { own, into, .. } = step else {
        buffers.apply(step, combine);
        return inner.engine().local_done(op);
    };
    let given = inner.engine().folded(op);
    let reached = reached(&inner.peers, &given, into.len);
    // A slice of the caller's may lie in a peer's heap, if it was made of a bare pointer.
    let result = buffers.part_mut(into);
    match reached.filter(|given| given.iter().all(|(heap, at)| heap.is_apart_from(*at, result))) {
        Some(given) => {
            fold(given, (own, into), buffers, combine);
            inner.engine().local_done(op);
        }
        None => inner.engine().local_refused(op),
    }
}

/// Where in which heap, for so many bytes of each of these; `None` if some do not lie in a heap that is mapped here.
fn reached<'a>(peers: &'a Peers, given: &[(Rank, Place)], len: u64) -> Option<Vec<(&'a SharedMemory, u64)>> {
    given.iter().map(|(rank, place)| peers.known(*rank)?.in_heap(*place, len)).collect()
}

/// Combines what lies there with this member's own, part by part.
fn fold<T: Pod>(
    mut given: Vec<(&SharedMemory, u64)>,
    (own, into): (Span, Span),
    buffers: &mut Buffers<'_, T>,
    combine: &mut dyn Combine<T>,
) {
    let each = ((CHUNK / size_of::<T>()).max(1) * size_of::<T>()) as u64;
    for at in (0..into.len).step_by(each as usize) {
        let len = each.min(into.len - at);
        let (from, to) = (own.part(at, len), into.part(at, len));
        buffers.apply(Step::Copy { from, into: to }, combine);
        combine
            .fold(buffers.part_mut(to), &given)
            .expect("these bytes were found, and apart from the result");
        given.iter_mut().for_each(|(_, offset)| *offset += len);
    }
}

//! What tests over a cluster share.

use engine::{
    Atomic, Direction, KeyedPiece, MemId, Nanos, OpId, Outcome, Piece, Place, Rank, Submit, Transport,
};
use sim::Cluster;

/// Goes on until an operation of `rank` has its outcome.
pub(crate) fn wait(cluster: &mut Cluster, rank: Rank, id: OpId) -> Outcome {
    loop {
        if let Some(outcome) = cluster.node(rank).outcome(id) {
            return outcome;
        }
        cluster.step().expect("nothing will ever happen to the operation");
    }
}

/// Puts or gets by a card that reaches everything. Returns the outcome and how long it took.
pub(crate) fn transfer(
    cluster: &mut Cluster,
    rank: Rank,
    peer: Rank,
    direction: Direction,
    pieces: &[Piece],
) -> (Outcome, Nanos) {
    let before = cluster.time_of(rank);
    let id = cluster.node(rank).transfer(peer, direction, pieces, None);
    let outcome = wait(cluster, rank, id);
    (outcome, cluster.time_of(rank) - before)
}

/// Starts a copy by key. Names of operations are the node's to give, so an atomic's is borrowed, which is
/// withdrawn at once.
pub(crate) fn start_keyed(
    cluster: &mut Cluster,
    rank: Rank,
    peer: Rank,
    direction: Direction,
    pieces: &[KeyedPiece],
) -> OpId {
    let node = cluster.node(rank);
    let id = node.atomic(peer, Place::new(MemId::Heap, 0), Atomic::fetch_add(0), None);
    node.transport().withdraw(id);
    assert_eq!(node.transport().copy_keyed(id, peer, direction, pieces), Submit::Pending);
    id
}

/// A piece of a transfer.
pub(crate) fn piece(remote: Place, local: Place, len: u64) -> Piece {
    Piece::new(remote, local, len).expect("simulated memory does not reach 2^64")
}

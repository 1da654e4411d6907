//! The conformance suite, in every way that this transport can work.

use conformance::Cluster;
use engine::{Direction, Inbox, MemId, OpError, Outcome, Piece, Place, Rank};
use vm::FenceMode;

use super::cluster::{Setting, ShmCluster};
use crate::transport::tests::NOWHERE;

mod by_attach {
    use super::*;
    const ATTACH: Setting = Setting { attach_never: false, fences_symmetric: false, polls: true };
    conformance::conformance_tests!(|size| ShmCluster::new(size, ATTACH));
}

mod by_message {
    use super::*;
    const MESSAGES: Setting = Setting { attach_never: true, fences_symmetric: false, polls: true };
    conformance::conformance_tests!(|size| ShmCluster::new(size, MESSAGES));
}

mod with_symmetric_fences {
    use super::*;
    const SYMMETRIC: Setting = Setting { attach_never: true, fences_symmetric: true, polls: true };
    conformance::conformance_tests!(|size| ShmCluster::new(size, SYMMETRIC));
}

mod by_doorbell {
    use super::*;
    const DOORBELLS: Setting = Setting { attach_never: true, fences_symmetric: false, polls: false };
    conformance::conformance_tests!(|size| ShmCluster::new(size, DOORBELLS));
}

/// A transfer between rank 0 and rank 1, both polled until it has ended.
fn transfer(
    cluster: &mut ShmCluster,
    direction: Direction,
    remote: Place,
    local: Place,
    len: u64,
) -> Outcome {
    let pieces = [Piece::new(remote, local, len).expect("it does not wrap")];
    let id = cluster.node(0).transfer(1, direction, &pieces, None);
    let mut inbox = Inbox::default();
    for _ in 0..1000 {
        if let Some(outcome) = cluster.node(0).outcome(id) {
            return outcome;
        }
        for rank in 0..2 as Rank {
            cluster.node(rank).poll(&mut inbox);
        }
    }
    panic!("a transfer between two polled ranks does not end");
}

#[test]
fn local_memory_that_is_not_there_is_a_fault_where_the_kernel_copies() {
    for attach_never in [false, true] {
        let mut cluster = ShmCluster::new(2, Setting { attach_never, fences_symmetric: false, polls: true });
        let remote = cluster.private(1, 64);
        for direction in [Direction::Put, Direction::Get] {
            let outcome = transfer(&mut cluster, direction, remote, NOWHERE, 64);
            assert_eq!(
                outcome,
                Err(OpError::LocalFault { mem: MemId::Space, addr: NOWHERE.offset, len: 64 }),
                "{direction:?}"
            );
        }
        let local = cluster.private(0, 64);
        assert_eq!(transfer(&mut cluster, Direction::Put, remote, local, 64), Ok(0));
        // What is long goes through bounce buffers, where this process copies itself; the first chunk names
        // the fault.
        let remote = cluster.private(1, 1 << 20);
        for direction in [Direction::Put, Direction::Get] {
            let outcome = transfer(&mut cluster, direction, remote, NOWHERE, 1 << 20);
            assert!(
                matches!(outcome, Err(OpError::LocalFault { addr, .. }) if addr >= NOWHERE.offset),
                "{direction:?}: {outcome:?}"
            );
        }
        let local = cluster.private(0, 1 << 20);
        assert_eq!(transfer(&mut cluster, Direction::Put, remote, local, 1 << 20), Ok(0));
        assert_eq!(cluster.node(0).counters().staged > 0, attach_never);
    }
}

#[test]
fn who_cannot_fence_for_others_is_fenced_for() {
    for fences_symmetric in [false, true] {
        let cluster = ShmCluster::new(2, Setting { attach_never: true, fences_symmetric, polls: true });
        if !vm::membarrier::register() && !fences_symmetric {
            testbed::skip("asymmetric fences: the kernel has none");
            continue;
        }
        let expected = if fences_symmetric { FenceMode::Symmetric } else { FenceMode::Asymmetric };
        assert_eq!(cluster.fence(0, 1), expected);
    }
}

#[test]
fn a_peer_that_the_kernel_says_is_gone_counts_as_lost_before_the_launcher_tells() {
    let cluster = ShmCluster::new(2, Setting { attach_never: false, fences_symmetric: false, polls: true });
    let peers = cluster.peers(0);
    let gone = peers.get(1, None).expect("it has joined");
    assert_eq!(peers.lost_ranks(), []);
    // As cross-memory attach does.
    gone.lose();
    assert_eq!(peers.lost_ranks(), [1]);
}

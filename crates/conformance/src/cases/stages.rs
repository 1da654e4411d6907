//! Long transfers of private memory by message, which go through bounce buffers of the heap where transports
//! have them.

use engine::{Direction, Mechanism, MemId, OpId, Operation, Place, Rank, Transport};

use super::copies::BOTH;
use super::faults::assert_fault;
use crate::bench::{Bench, Make, pattern, piece};
use crate::cluster::Cluster;

/// Messages that a long transfer would take: two bounce buffers full at the least, and something that is not
/// worth one.
const MESSAGES: usize = 70;

/// Bytes of a long transfer here.
fn long<C: Cluster>(bench: &mut Bench<C>) -> usize {
    bench.node(0).transport().payload_max() * MESSAGES + 13
}

/// Whether private memory of rank 1 goes through bounce buffers, once rank 0 knows its heap.
fn is_staged<C: Cluster>(bench: &mut Bench<C>) -> bool {
    // Whoever has never heard of a peer learns about its heap with the first transfer, and of its bounce
    // buffers with those after.
    for _ in 0..3 {
        let _ = move_long(bench, 0, 1);
    }
    let staged =
        bench.node(0).transport().reaches_bounce_buffers(1) && bench.node(0).transport().bounce_bytes() > 0;
    if !staged {
        testbed::skip("that long transfers go through stages: they do not, here");
    }
    staged
}

/// Puts much to a peer and gets it back. Returns how many bytes of it went through bounce buffers.
fn move_long<C: Cluster>(bench: &mut Bench<C>, rank: Rank, peer: Rank) -> u64 {
    let before = bench.node(rank).counters().staged;
    let counted = |bench: &mut Bench<C>| {
        let counters = bench.cluster.counters(rank);
        [Operation::Put, Operation::Get].map(|operation| {
            let tallies = Mechanism::ALL.map(|mechanism| counters.get(operation, mechanism));
            (
                tallies.iter().map(|tally| tally.count).sum::<u64>(),
                tallies.iter().map(|tally| tally.bytes).sum::<u64>(),
            )
        })
    };
    let counted_before = counted(bench);
    let len = long(bench);
    let bytes = pattern(before ^ u64::from(rank), len);
    let here = bench.filled(rank, MemId::Space, &bytes);
    let there = bench.memory(peer, MemId::Space, len);
    let back = bench.memory(rank, MemId::Space, len);
    for (direction, local) in BOTH.into_iter().zip([here, back]) {
        assert_eq!(bench.transfer(rank, peer, direction, &[piece(there, local, len)]), Ok(0));
    }
    assert!(bench.bytes(peer, there, len) == bytes, "other bytes were put");
    assert!(bench.bytes(rank, back, len) == bytes, "other bytes were got");
    let once = counted_before.map(|(count, bytes)| (count + 1, bytes + len as u64));
    assert_eq!(counted(bench), once, "a put and a get are counted once each, by whatever way they go");
    bench.node(rank).counters().staged - before
}

/// What goes through bounce buffers of a long put and a long get: all but what is left over at their ends.
fn assert_staged<C: Cluster>(bench: &mut Bench<C>, rank: Rank, peer: Rank) {
    let (moved, len) = (move_long(bench, rank, peer), long(bench) as u64);
    assert!(moved > len, "only {moved} of twice {len} bytes went through stages");
}

pub(crate) fn long_transfers_go_through_stages<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    if is_staged(&mut bench) {
        assert_staged(&mut bench, 0, 1);
    }
}

pub(crate) fn a_fault_amid_a_long_transfer_is_named<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let Some(bad) = bench.cluster.inaccessible(1) else {
        testbed::skip("a fault amid a long transfer: no inaccessible memory here");
        return;
    };
    let staged = is_staged(&mut bench);
    let len = long(&mut bench);
    let (here, there) = (bench.memory(0, MemId::Space, 2 * len), bench.memory(1, MemId::Space, len));
    let pieces = [piece(there, here, len), piece(bad, here.plus(len as u64), len)];
    let outcome = bench.transfer(0, 1, Direction::Get, &pieces);
    assert_fault(outcome, bad, len);
    if staged {
        assert_staged(&mut bench, 0, 1);
    }
}

/// Starts a long transfer of rank 0 with rank 1, lets it go on for so long, and ends it before its time.
fn cut_short<C: Cluster>(bench: &mut Bench<C>, direction: Direction, rounds: usize) {
    let len = long(bench);
    let here = bench.filled(0, MemId::Space, &pattern(1, len));
    let there = bench.filled(1, MemId::Space, &pattern(2, len));
    let id = bench.node(0).transfer(1, direction, &[piece(there, here, len)], None);
    for _ in 0..rounds {
        bench.round();
    }
    bench.node(0).cancel(id);
    // The buffer is the caller's again.
    bench.cluster.poke(0, here, &vec![0xee; len]);
    assert!(bench.node(0).outcome(id).is_some(), "a cancelled transfer is over");
    bench.settle();
    assert!(bench.bytes(0, here, len) == vec![0xee; len], "a late copy wrote to a buffer given back");
    let found = bench.bytes(1, there, len);
    let (put, before) = (pattern(1, len), pattern(2, len));
    let wrong = (0..len).find(|at| {
        let was_sent = direction == Direction::Put && found[*at] == put[*at];
        !was_sent && found[*at] != before[*at]
    });
    // A bounce buffer that another's bytes came into, or a buffer that was looked at too late, would be seen
    // here.
    assert_eq!(wrong, None, "a byte came from elsewhere");
}

pub(crate) fn long_transfers_that_are_cut_short_give_their_stages_back<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let staged = is_staged(&mut bench);
    for rounds in [0, 1, 2, 3, 5, 8, 20] {
        for direction in BOTH {
            cut_short(&mut bench, direction, rounds);
        }
    }
    if staged {
        assert_staged(&mut bench, 0, 1);
    }
}

pub(crate) fn the_stages_of_one_that_is_lost_are_others<C: Cluster>(make: Make<'_, C>) {
    for rounds in [1, 4, 12] {
        let mut bench = Bench::new(make, 3);
        let staged = is_staged(&mut bench);
        let _ = (0..2).map(|_| move_long(&mut bench, 2, 1)).count();
        let len = long(&mut bench);
        let start = |bench: &mut Bench<C>, rank: Rank| -> (OpId, Place) {
            let here = bench.filled(rank, MemId::Space, &pattern(u64::from(rank), len));
            let there = bench.memory(1, MemId::Space, len);
            (bench.node(rank).transfer(1, Direction::Put, &[piece(there, here, len)], None), there)
        };
        let ((living, there), _dying) = (start(&mut bench, 0), start(&mut bench, 2));
        for _ in 0..rounds {
            bench.round();
        }
        bench.kill(2);
        assert_eq!(bench.outcome(0, living), Ok(0), "a transfer between the living failed");
        assert!(bench.bytes(1, there, len) == pattern(0, len), "other bytes than the living one's");
        bench.until("the loss to be known", |bench| bench.node(1).is_lost(2));
        if staged {
            assert_staged(&mut bench, 0, 1);
        }
    }
}

pub(crate) fn many_long_transfers_share_the_stages<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let _ = is_staged(&mut bench);
    let len = long(&mut bench);
    let mut started = Vec::new();
    for index in 0..6_u64 {
        let (rank, direction) = (index as Rank % 2 * 2, BOTH[index as usize / 3]);
        let (mine, theirs) = (pattern(index, len), pattern(!index, len));
        let here = bench.filled(rank, MemId::Space, &mine);
        let there = bench.filled(1, MemId::Space, &theirs);
        let id = bench.node(rank).transfer(1, direction, &[piece(there, here, len)], None);
        started.push((rank, id, here, there, if direction == Direction::Put { mine } else { theirs }));
    }
    for (rank, id, here, there, bytes) in started {
        assert_eq!(bench.outcome(rank, id), Ok(0));
        assert!(bench.bytes(rank, here, len) == bytes, "other bytes are here");
        assert!(bench.bytes(1, there, len) == bytes, "other bytes are there");
    }
}

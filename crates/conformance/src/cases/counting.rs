//! What is counted.

use engine::node::AmBody;
use engine::{AmSend, Atomic, Counters, Direction, Lane, Mechanism, MemId, OpId, Operation, Tally};

use crate::bench::{Bench, ECHO, Make, piece, skipped};
use crate::cluster::Cluster;

/// All mechanisms together.
fn total(counters: &Counters, operation: Operation) -> (u64, u64) {
    let tallies = Mechanism::ALL.map(|mechanism| counters.get(operation, mechanism));
    let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum();
    (sum(|tally| tally.count), sum(|tally| tally.bytes))
}

pub(crate) fn everything_is_counted<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.memory(0, MemId::Space, 5000);
    let there = bench.memory(1, MemId::Heap, 5000);
    for (direction, times) in [(Direction::Put, 3), (Direction::Get, 2)] {
        for _ in 0..times {
            let pieces = [piece(there, here, 1000), piece(there.plus(2000), here.plus(2000), 3000)];
            assert_eq!(bench.transfer(0, 1, direction, &pieces), Ok(0));
        }
    }
    for _ in 0..7 {
        let body = AmBody::Medium(&[1; 8]);
        bench.send(0, &AmSend { peer: 1, lane: Lane::Request, handler: ECHO, args: [0; 4], body });
    }
    bench.until("seven replies", |bench| bench.got[0].len() == 7);
    let (zero, one) = (bench.cluster.counters(0), bench.cluster.counters(1));
    assert_eq!(total(&zero, Operation::Put), (3, 12_000));
    assert_eq!(total(&zero, Operation::Get), (2, 8000));
    assert_eq!(total(&zero, Operation::Request), (7, 56));
    assert_eq!(total(&zero, Operation::Handled), (7, 56));
    assert_eq!(total(&one, Operation::Handled), (7, 56));
    assert_eq!(total(&one, Operation::Reply), (7, 56));
    assert_eq!(total(&one, Operation::Put), (0, 0), "the target of a put counted it as its own");
    let by_message = |operation| zero.get(operation, Mechanism::Message).bytes;
    let served = total(&one, Operation::Served).1;
    assert_eq!(
        served,
        by_message(Operation::Put) + by_message(Operation::Get),
        "what it copied for the other"
    );
    assert_eq!((zero.malformed, one.malformed), (0, 0));
    count_atomics_and_barriers(&mut bench);
}

fn count_atomics_and_barriers<C: Cluster>(bench: &mut Bench<C>) {
    let word = bench.memory(1, MemId::Heap, 8);
    for _ in 0..4 {
        let id = bench.node(0).atomic(1, word, Atomic::fetch_add(1), None);
        if skipped("counting atomics and barriers", bench.outcome(0, id)) {
            return;
        }
    }
    for _ in 0..5 {
        let waits: [OpId; 2] = [0, 1].map(|rank| bench.node(rank).barrier(None));
        for rank in [0, 1] {
            assert_eq!(bench.outcome(rank, waits[rank as usize]), Ok(0));
        }
    }
    for rank in [0, 1] {
        assert_eq!(total(&bench.cluster.counters(rank), Operation::Barrier).0, 5);
    }
    assert_eq!(total(&bench.cluster.counters(0), Operation::Atomic), (4, 32));
}

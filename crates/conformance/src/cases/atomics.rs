//! Fetch-add and compare-swap on heap words.

use std::collections::BTreeSet;

use engine::{Atomic, MemId, OpId, Outcome, Place, Rank};

use crate::bench::{Bench, Make, skipped};
use crate::cluster::Cluster;

fn atomic<C: Cluster>(bench: &mut Bench<C>, rank: Rank, peer: Rank, word: Place, atomic: Atomic) -> Outcome {
    let id = bench.node(rank).atomic(peer, word, atomic, None);
    bench.outcome(rank, id)
}

fn word<C: Cluster>(bench: &mut Bench<C>, rank: Rank, place: Place) -> u64 {
    let bytes = bench.bytes(rank, place, 8);
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes were asked for"))
}

pub(crate) fn additions_add_up<C: Cluster>(make: Make<'_, C>) {
    const EACH: u64 = 40;
    let mut bench = Bench::new(make, 4);
    let place = bench.memory(2, MemId::Heap, 8);
    if skipped("fetch-add", atomic(&mut bench, 0, 2, place, Atomic::FetchAdd(0))) {
        return;
    }
    let mut ops: Vec<(Rank, OpId)> = Vec::new();
    for _ in 0..EACH {
        for rank in 0..4 {
            ops.push((rank, bench.node(rank).atomic(2, place, Atomic::FetchAdd(3), None)));
        }
    }
    let old: BTreeSet<u64> =
        ops.iter().map(|(rank, id)| bench.outcome(*rank, *id).expect("an addition")).collect();
    assert_eq!(word(&mut bench, 2, place), 4 * EACH * 3);
    assert!(old.iter().copied().eq((0..4 * EACH).map(|n| n * 3)), "two additions saw the same word");
}

pub(crate) fn one_swap_wins<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 4);
    let place = bench.memory(1, MemId::Heap, 8);
    if skipped("compare-swap", atomic(&mut bench, 0, 1, place, Atomic::FetchAdd(0))) {
        return;
    }
    for round in 0..20u64 {
        bench.cluster.poke(1, place, &0u64.to_ne_bytes());
        let mark = |rank: Rank| round * 100 + u64::from(rank) + 1;
        let swap = |rank| Atomic::CompareSwap { expected: 0, new: mark(rank) };
        let ops: Vec<OpId> = (0..4).map(|rank| bench.node(rank).atomic(1, place, swap(rank), None)).collect();
        let old: Vec<u64> =
            (0..4).map(|rank| bench.outcome(rank, ops[rank as usize]).expect("a swap")).collect();
        let winners: Vec<Rank> = (0..4).filter(|rank| old[*rank as usize] == 0).collect();
        let [winner] = winners[..] else { panic!("ranks {winners:?} all believe that they won") };
        assert_eq!(word(&mut bench, 1, place), mark(winner));
        assert!(old.iter().all(|old| *old == 0 || *old == mark(winner)), "a loser saw another word");
    }
}

pub(crate) fn atomics_answer_the_old_word<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    for peer in [0, 1] {
        let place = bench.memory(peer, MemId::Heap, 24).plus(8);
        bench.cluster.poke(peer, place, &(u64::MAX - 1).to_ne_bytes());
        let first = atomic(&mut bench, 0, peer, place, Atomic::FetchAdd(5));
        if skipped("atomics", first) {
            return;
        }
        assert_eq!(first, Ok(u64::MAX - 1));
        assert_eq!(word(&mut bench, peer, place), 3, "additions wrap");
        let swap = |expected, new| Atomic::CompareSwap { expected, new };
        assert_eq!(atomic(&mut bench, 0, peer, place, swap(4, 9)), Ok(3));
        assert_eq!(word(&mut bench, peer, place), 3, "a swap that expected another word stored its own");
        assert_eq!(atomic(&mut bench, 0, peer, place, swap(3, 9)), Ok(3));
        assert_eq!(word(&mut bench, peer, place), 9);
        let around = [
            word(&mut bench, peer, Place { offset: place.offset - 8, ..place }),
            word(&mut bench, peer, place.plus(8)),
        ];
        assert_eq!(around, [0, 0], "an atomic changed its neighbours");
    }
}

//! Puts that signal: the counter changes after the bytes lie in place.

use engine::{Atomic, AtomicOp, Change, MemId, OpError, Place, Rank, WordType};

use crate::bench::{Bench, Make, pattern, piece, skipped};
use crate::cluster::Cluster;

fn counter<C: Cluster>(bench: &mut Bench<C>, rank: Rank, place: Place) -> u64 {
    let bytes = bench.bytes(rank, place, 8);
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes were asked for"))
}

/// Whether the transport has no atomics, and so no signals.
fn none<C: Cluster>(bench: &mut Bench<C>, place: Place) -> bool {
    let id = bench.node(0).atomic(1, place, Atomic::fetch_add(0), None);
    skipped("signals", bench.outcome(0, id))
}

pub(crate) fn a_counter_changes_after_the_bytes<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let place = bench.memory(1, MemId::Heap, 8);
    if none(&mut bench, place) {
        return;
    }
    let mut signals = 0;
    for len in [0, 1, 8, 4000, 40_000, 200_000] {
        for (from, to) in
            [(MemId::Space, MemId::Heap), (MemId::Space, MemId::Space), (MemId::Heap, MemId::Heap)]
        {
            let bytes = pattern(signals, len);
            let (local, remote) = (bench.filled(0, from, &bytes), bench.memory(1, to, len));
            let id = bench.node(0).transfer_then_signal(
                1,
                &[piece(remote, local, len)],
                place,
                Atomic::fetch_add(1),
                None,
            );
            bench.until("a signal", |bench| counter(bench, 1, place) > signals);
            assert!(bench.bytes(1, remote, len) == bytes, "the counter overtook {len} bytes for {to:?}");
            assert_eq!(bench.outcome(0, id), Ok(signals), "the counter from before");
            signals += 1;
        }
    }
}

pub(crate) fn signals_of_several_ranks_add_up<C: Cluster>(make: Make<'_, C>) {
    const EACH: u64 = 10;
    const LEN: usize = 1000;
    let mut bench = Bench::new(make, 4);
    let place = bench.memory(1, MemId::Heap, 16);
    if none(&mut bench, place) {
        return;
    }
    let set = Atomic::new(WordType::U64, Change::Apply(AtomicOp::Swap, 77));
    let mut targets = Vec::new();
    let mut ops = Vec::new();
    for (turn, rank) in (0..EACH).flat_map(|turn| (0..4).map(move |rank: Rank| (turn, rank))) {
        let bytes = pattern(turn * 4 + u64::from(rank), LEN);
        let local = bench.filled(rank, MemId::Space, &bytes);
        let remote = bench.memory(1, MemId::Space, LEN);
        let (word, atomic) = if turn == 3 { (place.plus(8), set) } else { (place, Atomic::fetch_add(2)) };
        let pieces = [piece(remote, local, LEN)];
        let id = bench.node(rank).transfer_then_signal(1, &pieces, word, atomic, None);
        if turn % 2 == 0 {
            ops.push((rank, id))
        } else {
            bench.node(rank).detach(id)
        }
        targets.push((remote, bytes));
    }
    for (rank, id) in ops {
        bench.outcome(rank, id).expect("a put with a signal");
    }
    bench.until("nothing is under way", |bench| (0..4).all(|rank| bench.node(rank).in_flight() == 0));
    assert_eq!(
        (counter(&mut bench, 1, place), counter(&mut bench, 1, place.plus(8))),
        (4 * 2 * (EACH - 1), 77)
    );
    assert!(targets.into_iter().all(|(place, bytes)| bench.bytes(1, place, LEN) == bytes));
}

pub(crate) fn a_put_that_fails_signals_nothing<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let place = bench.memory(1, MemId::Heap, 8);
    if none(&mut bench, place) {
        return;
    }
    let local = bench.filled(0, MemId::Space, &[1; 64]);
    let beyond = Place::new(MemId::Heap, 1 << 40);
    let pieces = [piece(beyond, local, 64)];
    let id = bench.node(0).transfer_then_signal(1, &pieces, place, Atomic::fetch_add(1), None);
    assert!(matches!(bench.outcome(0, id), Err(OpError::Fault { .. })));
    // And where only the counter is nowhere, that is said.
    let remote = bench.memory(1, MemId::Heap, 64);
    let pieces = [piece(remote, local, 64)];
    let id = bench.node(0).transfer_then_signal(1, &pieces, beyond, Atomic::fetch_add(1), None);
    let outcome = bench.outcome(0, id);
    assert!(
        matches!(outcome, Err(OpError::Fault { addr, len: 8, .. }) if addr == beyond.offset),
        "{outcome:?} where the counter's fault was due"
    );
    assert_eq!(counter(&mut bench, 1, place), 0);
}

pub(crate) fn a_signal_to_one_that_is_lost_ends<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let place = bench.memory(1, MemId::Heap, 8);
    if none(&mut bench, place) {
        return;
    }
    let local = bench.filled(0, MemId::Space, &[1; 64]);
    let remote = bench.memory(1, MemId::Space, 64);
    bench.sleep(1);
    let pieces = [piece(remote, local, 64)];
    let id = bench.node(0).transfer_then_signal(1, &pieces, place, Atomic::fetch_add(1), None);
    bench.kill(1);
    let late = bench.node(0).transfer_then_signal(1, &pieces, place, Atomic::fetch_add(1), None);
    let outcomes = [bench.outcome(0, id), bench.outcome(0, late)];
    let ends = |outcome: &_| matches!(outcome, Ok(_) | Err(OpError::PeerLost { peer: 1 }));
    assert!(outcomes.iter().all(ends), "{outcomes:?}");
}

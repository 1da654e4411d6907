//! Private memory of which only ranges are exposed.

use engine::collective::Collective;
use engine::{Atomic, Direction, Mechanism, MemId, OpError, Operation, Outcome, Place, Rights};

use super::collectives::{inputs, world};
use super::copies::BOTH;
use crate::bench::{Bench, Make, pattern, piece};
use crate::cluster::Cluster;

/// Bytes of each memory: whole buckets, and parts of some.
const LEN: usize = 50_000;

/// Rank 1 exposes ranges only. `false`, said aloud: rank 0 reaches it without asking, by what nobody here can
/// refuse.
fn asks<C: Cluster>(bench: &mut Bench<C>, here: Place) -> bool {
    bench.node(1).expose_ranges_only();
    let there = bench.memory(1, MemId::Space, LEN);
    bench.node(1).expose(there.offset, LEN as u64, Rights::ReadWrite);
    assert_eq!(bench.transfer(0, 1, Direction::Put, &[piece(there, here, LEN)]), Ok(0));
    let counters = bench.node(0).counters();
    let asked = [Mechanism::Message, Mechanism::Registered].map(|by| counters.get(Operation::Put, by).count);
    if asked == [0, 0] {
        testbed::skip("memory that is not exposed: this transport asks no owner");
    }
    asked != [0, 0]
}

fn assert_refused(outcome: Outcome, direction: Direction, place: Place, len: usize) {
    let Err(OpError::NotExposed { peer: 1, direction: told, addr, .. }) = outcome else {
        panic!("{outcome:?} where rank 1 exposes nothing to a {direction:?} of {len} bytes");
    };
    assert_eq!(told, direction);
    assert!((place.offset..place.offset + len as u64).contains(&addr), "{addr:#x}");
}

pub(crate) fn only_what_is_exposed_is_reached<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.filled(0, MemId::Space, &pattern(3, LEN));
    if !asks(&mut bench, here) {
        return;
    }
    let back = bench.memory(0, MemId::Space, LEN);
    for rights in [None, Some(Rights::Read), Some(Rights::Write), Some(Rights::ReadWrite)] {
        let there = bench.memory(1, MemId::Space, LEN);
        if let Some(rights) = rights {
            bench.node(1).expose(there.offset, LEN as u64, rights);
        }
        for direction in BOTH {
            for (at, len) in [(0, LEN), (0, 0), (LEN - 8, 8), (4096, 16_384)] {
                let place = there.plus(at as u64);
                let local = if direction == Direction::Put { here } else { back };
                let outcome = bench.transfer(0, 1, direction, &[piece(place, local, len)]);
                match rights.is_some_and(|rights| rights.allow(direction)) || len == 0 {
                    true => assert_eq!(outcome, Ok(0)),
                    false => assert_refused(outcome, direction, place, len),
                }
            }
        }
        let is_written = rights.is_some_and(|rights| rights.allow(Direction::Put));
        assert_eq!(bench.bytes(1, there, LEN).iter().any(|byte| *byte != 0), is_written);
    }
    // The heap is there to be shared.
    let heap = bench.memory(1, MemId::Heap, LEN);
    assert_eq!(bench.transfer(0, 1, Direction::Put, &[piece(heap, here, LEN)]), Ok(0));
    let own = bench.memory(1, MemId::Space, 8);
    assert_eq!(bench.transfer(1, 1, Direction::Put, &[piece(own, heap, 8)]), Ok(0), "it reaches itself");
}

pub(crate) fn a_transfer_ends_where_the_exposed_range_does<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.filled(0, MemId::Space, &pattern(4, LEN));
    if !asks(&mut bench, here) {
        return;
    }
    let there = bench.memory(1, MemId::Space, LEN);
    // Two ranges that touch, and one within them.
    for (at, len) in [(1000, 20_000), (21_000, 9_000), (15_000, 10_000)] {
        bench.node(1).expose(there.offset + at, len, Rights::ReadWrite);
    }
    for direction in BOTH {
        assert_eq!(bench.transfer(0, 1, direction, &[piece(there.plus(1000), here, 29_000)]), Ok(0));
        for (at, len) in [(999, 1), (999, 2000), (29_999, 2), (0, LEN)] {
            let place = there.plus(at);
            let outcome = bench.transfer(0, 1, direction, &[piece(place, here, len)]);
            assert_refused(outcome, direction, place, len);
        }
    }
    let bytes = bench.bytes(1, there, LEN);
    assert!(
        bytes[..1000].iter().chain(&bytes[30_000..]).all(|byte| *byte == 0),
        "nothing beyond was written"
    );
    // Withdrawn, though keys for it may have been handed out.
    bench.node(1).withdraw(there.offset + 1000, 20_000, Rights::ReadWrite);
    bench.settle();
    for direction in BOTH {
        let place = there.plus(8192);
        assert_refused(bench.transfer(0, 1, direction, &[piece(place, here, 4096)]), direction, place, 4096);
        assert_eq!(bench.transfer(0, 1, direction, &[piece(there.plus(21_000), here, 9_000)]), Ok(0));
    }
}

pub(crate) fn a_put_that_is_refused_signals_nothing<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.filled(0, MemId::Space, &pattern(5, LEN));
    if !asks(&mut bench, here) {
        return;
    }
    let (there, word) = (bench.memory(1, MemId::Space, LEN), bench.memory(1, MemId::Heap, 8));
    for len in [8, LEN] {
        let pieces = [piece(there, here, len)];
        let id = bench.node(0).transfer_then_signal(1, &pieces, word, Atomic::fetch_add(1), None);
        assert_refused(bench.outcome(0, id), Direction::Put, there, len);
    }
    bench.settle();
    assert_eq!(bench.bytes(1, word, 8), [0; 8]);
}

pub(crate) fn collectives_need_no_exposure<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    (0..3).for_each(|rank| bench.node(rank).expose_ranges_only());
    for len in [8, 700, 60_000] {
        let given = inputs(3, len);
        let heard = world(&mut bench, &Collective::AllGather { block: len }, &given);
        assert!(heard.iter().all(|got| *got == given.concat()), "{len}");
    }
}

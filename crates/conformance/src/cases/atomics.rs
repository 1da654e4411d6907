//! Atomics on heap words.

use std::collections::BTreeSet;

use engine::{Atomic, AtomicOp, Change, MemId, OpError, OpId, Outcome, Place, Rank, WordType};

use crate::bench::{Bench, Make, piece, skipped};
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
    if skipped("fetch-add", atomic(&mut bench, 0, 2, place, Atomic::fetch_add(0))) {
        return;
    }
    let mut ops: Vec<(Rank, OpId)> = Vec::new();
    for _ in 0..EACH {
        for rank in 0..4 {
            ops.push((rank, bench.node(rank).atomic(2, place, Atomic::fetch_add(3), None)));
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
    if skipped("compare-swap", atomic(&mut bench, 0, 1, place, Atomic::fetch_add(0))) {
        return;
    }
    for round in 0..20u64 {
        bench.cluster.poke(1, place, &0u64.to_ne_bytes());
        let mark = |rank: Rank| round * 100 + u64::from(rank) + 1;
        let swap = |rank| Atomic::compare_swap(0, mark(rank));
        let ops: Vec<OpId> = (0..4).map(|rank| bench.node(rank).atomic(1, place, swap(rank), None)).collect();
        let old: Vec<u64> =
            (0..4).map(|rank| bench.outcome(rank, ops[rank as usize]).expect("a swap")).collect();
        let winners: Vec<Rank> = (0..4).filter(|rank| old[*rank as usize] == 0).collect();
        let [winner] = winners[..] else { panic!("ranks {winners:?} all believe that they won") };
        assert_eq!(word(&mut bench, 1, place), mark(winner));
        assert!(old.iter().all(|old| *old == 0 || *old == mark(winner)), "a loser saw another word");
    }
}

/// Two ranks add to a word, two others look at it, and one more word changes by stores alone.
pub(crate) fn loads_and_stores_are_whole_and_in_one_order<C: Cluster>(make: Make<'_, C>) {
    const EACH: u64 = 30;
    // Both halves of a word change together.
    const BOTH: u64 = 1 << 32 | 1;
    let mut bench = Bench::new(make, 4);
    let (sum, stored) = (bench.memory(1, MemId::Heap, 8), bench.memory(1, MemId::Heap, 8));
    if skipped("atomics", atomic(&mut bench, 0, 1, sum, Atomic::fetch_add(0))) {
        return;
    }
    let load = Atomic::load(WordType::U64);
    let mut floor = 0;
    for turn in 1..=EACH {
        let start = |rank: Rank| {
            let node = bench.node(rank);
            let change = if rank < 2 { Atomic::fetch_add(BOTH) } else { load };
            let of_sum = node.atomic(1, sum, change, None);
            let mark = BOTH * (4 * turn + u64::from(rank));
            let change = if rank < 2 { Atomic::store(WordType::U64, mark) } else { load };
            (rank, of_sum, node.atomic(1, stored, change, None))
        };
        let all: Vec<(Rank, OpId, OpId)> = (0..4).map(start).collect();
        for (rank, of_sum, of_stored) in all {
            let [sum, stored] = [of_sum, of_stored].map(|id| bench.outcome(rank, id).expect("an atomic"));
            assert!([sum, stored].iter().all(|word| word % BOTH == 0), "{sum:#x} or {stored:#x} is torn");
            assert!(sum >= floor, "{sum:#x} is from before {floor:#x}");
        }
        floor = 2 * turn * BOTH;
    }
    assert_eq!(atomic(&mut bench, 3, 1, sum, load), Ok(2 * EACH * BOTH), "no load has changed it");
    let last = atomic(&mut bench, 2, 1, stored, load).map(|word| word / BOTH);
    assert!(last == Ok(4 * EACH) || last == Ok(4 * EACH + 1), "{last:?}");
    assert_eq!(atomic(&mut bench, 0, 1, stored, Atomic::store(WordType::U64, 7)).map(|old| old / BOTH), last);
    assert_eq!(word(&mut bench, 1, stored), 7);
}

pub(crate) fn atomics_answer_the_old_word<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    for peer in [0, 1] {
        let place = bench.memory(peer, MemId::Heap, 24).plus(8);
        bench.cluster.poke(peer, place, &(u64::MAX - 1).to_ne_bytes());
        let first = atomic(&mut bench, 0, peer, place, Atomic::fetch_add(5));
        if skipped("atomics", first) {
            return;
        }
        assert_eq!(first, Ok(u64::MAX - 1));
        assert_eq!(word(&mut bench, peer, place), 3, "additions wrap");
        let swap = |expected, new| Atomic::compare_swap(expected, new);
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

/// Bits of words of either size, of both signs; as floating-point numbers, zeros of both signs, numbers and
/// what is none.
const VALUES: [u64; 8] = [
    0,
    1,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0x8000_0000_7fff_ffff,
    0x4000_0000_4000_0000,
    0xc008_0000_c008_0000,
];

fn every_change(word: WordType, value: u64, other: u64) -> impl Iterator<Item = Atomic> {
    let swap = Change::CompareSwap { expected: other, new: value };
    let changes = ops_of(word).map(move |op| Change::Apply(op, value)).chain([swap]);
    let changes = changes.map(move |change| Atomic::new(word, change));
    changes.chain([Atomic::load(word), Atomic::store(word, value)])
}

fn ops_of(word: WordType) -> impl Iterator<Item = AtomicOp> {
    AtomicOp::ALL.into_iter().filter(move |op| op.is_for(word))
}

/// Whether both are no numbers: which, of sums, is the processor's to say.
fn both_nan(word: WordType, bytes: &[u8], other: &[u8]) -> bool {
    let is_nan = |bytes: &[u8]| match word {
        WordType::F32 => f32::from_ne_bytes(bytes.try_into().expect("4 bytes")).is_nan(),
        WordType::F64 => f64::from_ne_bytes(bytes.try_into().expect("8 bytes")).is_nan(),
        _ => false,
    };
    is_nan(bytes) && is_nan(other)
}

pub(crate) fn every_atomic_on_every_type_of_word<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let place = bench.memory(1, MemId::Heap, 24).plus(8);
    if skipped("atomics", atomic(&mut bench, 0, 1, place, Atomic::fetch_add(0))) {
        return;
    }
    for word in WordType::ALL {
        // Words of 4 bytes have a neighbour in the same 8, which stays as it is.
        let (size, place) = (word.size() as usize, place.plus(if word.size() == 4 { 4 } else { 0 }));
        let fit = |value: u64| if size == 4 { value & u64::from(u32::MAX) } else { value };
        for (old, value) in VALUES.iter().flat_map(|old| VALUES.map(|value| (fit(*old), fit(value)))) {
            for change in every_change(word, value, VALUES[1]) {
                let mut bytes =
                    if size == 4 { (old as u32).to_ne_bytes().to_vec() } else { old.to_ne_bytes().to_vec() };
                bench.cluster.poke(1, place, &bytes);
                assert_eq!(atomic(&mut bench, 0, 1, place, change), Ok(old), "{change:?}");
                assert_eq!(change.apply_to(&mut bytes), Some(old));
                let found = bench.bytes(1, place, size);
                let is_sum = matches!(change.change, Change::Apply(AtomicOp::Add, _));
                assert!(
                    found == bytes || is_sum && both_nan(word, &found, &bytes),
                    "{change:?} of {old:#x}: {found:x?} where {bytes:x?} was due"
                );
            }
        }
        let before = bench.bytes(1, Place { offset: place.offset - 4, ..place }, 4);
        assert_eq!(before, [0; 4], "an atomic changed its neighbour");
        bench.cluster.poke(1, place, &[0; 8][..size]);
    }
}

pub(crate) fn atomics_of_several_ranks_are_each_applied_once<C: Cluster>(make: Make<'_, C>) {
    const EACH: u32 = 8;
    let mut bench = Bench::new(make, 4);
    let base = bench.memory(2, MemId::Heap, 64);
    if skipped("atomics", atomic(&mut bench, 0, 2, base, Atomic::fetch_add(0))) {
        return;
    }
    for word in WordType::ALL.into_iter().filter(|word| !word.is_float()) {
        let (size, ones) =
            (word.size() as usize, if word.size() == 4 { u64::from(u32::MAX) } else { u64::MAX });
        let place = |op: AtomicOp| base.plus(8 * op as u64);
        bench.cluster.poke(2, base, &[0; 64]);
        bench.cluster.poke(2, place(AtomicOp::And), &[0xff; 8]);
        let mut ops: Vec<(Rank, OpId)> = Vec::new();
        // Rank and turn, as one number from 0 to 31; with a result and without one in turn.
        for (turn, rank) in (0..EACH).flat_map(|turn| (0..4).map(move |rank| (turn, rank))) {
            let bit = 1_u64 << (4 * turn + rank).min(30);
            for op in AtomicOp::ALL {
                let value = match op {
                    AtomicOp::And => ones & !bit,
                    AtomicOp::Min => ones - u64::from(4 * turn + rank),
                    AtomicOp::Max => u64::from(4 * turn + rank),
                    AtomicOp::Or | AtomicOp::Xor => bit,
                    AtomicOp::Add => 3,
                    AtomicOp::Swap => u64::from(100 + 4 * turn + rank),
                    other => panic!("no value to change words by with {other:?}"),
                };
                let id =
                    bench.node(rank).atomic(2, place(op), Atomic::new(word, Change::Apply(op, value)), None);
                if turn % 2 == 0 {
                    ops.push((rank, id));
                } else {
                    bench.node(rank).detach(id);
                }
            }
        }
        for (rank, id) in ops {
            bench.outcome(rank, id).expect("an atomic");
        }
        bench.until("nothing is under way", |bench| (0..4).all(|rank| bench.node(rank).in_flight() == 0));
        let found: Vec<u64> = AtomicOp::ALL
            .iter()
            .map(|op| {
                let bytes = bench.bytes(2, place(*op), size);
                bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            })
            .collect();
        // Of the 32 bits the last two are one: an exclusive or takes it back.
        let bits = (1 << 31) - 1;
        let signed = matches!(word, WordType::I32 | WordType::I64);
        let least = if signed { ones - 31 } else { 0 };
        assert_eq!(found[..6], [3 * 32, ones & !bits, bits, bits >> 1, least, 31], "{word:?}");
        assert!((100..132).contains(&found[6]), "{word:?}: {} was never swapped in", found[6]);
    }
}

pub(crate) fn floats_of_several_ranks_add_up<C: Cluster>(make: Make<'_, C>) {
    const EACH: u32 = 10;
    let mut bench = Bench::new(make, 4);
    let base = bench.memory(2, MemId::Heap, 32);
    if skipped("atomics", atomic(&mut bench, 0, 2, base, Atomic::fetch_add(0))) {
        return;
    }
    for word in [WordType::F32, WordType::F64] {
        let bits = |value: f64| {
            if word == WordType::F32 { u64::from((value as f32).to_bits()) } else { value.to_bits() }
        };
        let of = |bits: u64| {
            if word == WordType::F32 { f32::from_bits(bits as u32).into() } else { f64::from_bits(bits) }
        };
        bench.cluster.poke(2, base, &[0; 32]);
        let apply = |op, value: f64| Atomic::new(word, Change::Apply(op, bits(value)));
        let mut ops: Vec<(Rank, OpId)> = Vec::new();
        for (turn, rank) in (0..EACH).flat_map(|turn| (0..4).map(move |rank: Rank| (turn, rank))) {
            // Sums that no rounding changes, whatever their order.
            ops.push((rank, bench.node(rank).atomic(2, base, apply(AtomicOp::Add, 0.25), None)));
            let far = f64::from(4 * turn + rank);
            for (at, op, value) in [(8, AtomicOp::Min, -far), (16, AtomicOp::Max, far - 0.5)] {
                let id = bench.node(rank).atomic(2, base.plus(at), apply(op, value), None);
                bench.node(rank).detach(id);
            }
        }
        let mut old: Vec<f64> =
            ops.iter().map(|(rank, id)| of(bench.outcome(*rank, *id).expect("an addition"))).collect();
        old.sort_by(f64::total_cmp);
        let due: Vec<f64> = (0..4 * EACH).map(|n| f64::from(n) * 0.25).collect();
        assert_eq!(old, due, "two additions saw the same word");
        bench.until("nothing is under way", |bench| (0..4).all(|rank| bench.node(rank).in_flight() == 0));
        let found: Vec<f64> = [0, 8, 16]
            .map(|at| {
                let bytes = bench.bytes(2, base.plus(at), word.size() as usize);
                of(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
            })
            .to_vec();
        assert_eq!(found, [10.0, -39.0, 38.5], "{word:?}");
    }
}

pub(crate) fn an_operation_that_a_type_lacks_is_refused_here<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let place = bench.memory(1, MemId::Heap, 8);
    if skipped("atomics", atomic(&mut bench, 0, 1, place, Atomic::fetch_add(7))) {
        return;
    }
    let bytes = bench.memory(1, MemId::Heap, 8);
    let local = bench.filled(0, MemId::Space, &[1; 8]);
    for (word, op) in WordType::ALL.iter().flat_map(|word| AtomicOp::ALL.map(|op| (*word, op))) {
        if op.is_for(word) {
            continue;
        }
        let none = Err(OpError::NoSuchAtomic { peer: 1, op, word });
        let change = Atomic::new(word, Change::Apply(op, u64::MAX));
        assert_eq!(atomic(&mut bench, 0, 1, place, change), none);
        let id = bench.node(0).transfer_then_signal(1, &[piece(bytes, local, 8)], place, change, None);
        assert_eq!(bench.outcome(0, id), none);
        assert_eq!((bench.node(0).in_flight(), bench.node(0).is_lost(1)), (0, false));
    }
    assert_eq!((word(&mut bench, 1, place), word(&mut bench, 1, bytes)), (7, 0));
    // And the peer goes on.
    assert_eq!(atomic(&mut bench, 0, 1, place, Atomic::fetch_add(1)), Ok(7));
}

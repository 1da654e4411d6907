//! Memory that is not there, at either end.

use engine::{Atomic, Direction, MemId, OpError, Outcome, Place, WordType};

use super::copies::BOTH;
use crate::bench::{Bench, Make, pattern, piece, skipped};
use crate::cluster::Cluster;

/// An offset in the heap that no heap reaches.
const BEYOND: Place = Place::new(MemId::Heap, 1 << 46);

/// Asserts that `outcome` is a fault at rank 1 in `[place, place + len)`.
pub(super) fn assert_fault(outcome: Outcome, place: Place, len: usize) {
    let Err(OpError::Fault { peer: 1, mem, addr, .. }) = outcome else {
        panic!("{outcome:?} where a fault of rank 1 was due");
    };
    assert_eq!(mem, place.mem);
    let end = place.offset + len as u64;
    assert!((place.offset..end).contains(&addr), "{addr:#x} is not in {:#x}..{end:#x}", place.offset);
}

/// Asserts that rank 0 can still put to rank 1 and get it back.
fn assert_served<C: Cluster>(bench: &mut Bench<C>) {
    let bytes = pattern(9, 10_000);
    let here = bench.filled(0, MemId::Space, &bytes);
    let there = bench.memory(1, MemId::Space, bytes.len());
    let back = bench.memory(0, MemId::Space, bytes.len());
    assert_eq!(bench.transfer(0, 1, Direction::Put, &[piece(there, here, bytes.len())]), Ok(0));
    assert_eq!(bench.transfer(0, 1, Direction::Get, &[piece(there, back, bytes.len())]), Ok(0));
    assert!(bench.bytes(0, back, bytes.len()) == bytes, "a transfer after the fault went wrong");
}

pub(crate) fn a_remote_fault_is_named_and_survived<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let Some(bad) = bench.cluster.inaccessible(1) else {
        testbed::skip("a remote fault: no inaccessible memory here");
        return;
    };
    for len in [1, 8, 4096] {
        let here = bench.filled(0, MemId::Space, &pattern(1, len));
        for direction in BOTH {
            let outcome = bench.transfer(0, 1, direction, &[piece(bad, here, len)]);
            assert_fault(outcome, bad, len);
            assert!(bench.bytes(0, here, len) == pattern(1, len), "a faulting transfer changed its buffer");
            assert_served(&mut bench);
        }
    }
}

pub(crate) fn an_offset_beyond_the_heap_is_a_fault<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.memory(0, MemId::Space, 4096);
    for len in [1, 4096] {
        for direction in BOTH {
            let outcome = bench.transfer(0, 1, direction, &[piece(BEYOND, here, len)]);
            assert_fault(outcome, BEYOND, len);
            assert_served(&mut bench);
        }
    }
}

pub(crate) fn a_fault_amid_a_list_is_named<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let bad = bench.cluster.inaccessible(1).unwrap_or(BEYOND);
    for direction in BOTH {
        let mut pieces = Vec::new();
        for index in 0..60 {
            let here = bench.filled(0, MemId::Space, &pattern(index, 3000));
            let there = bench.memory(1, MemId::Space, 3000);
            pieces.push(piece(if index == 30 { bad } else { there }, here, 3000));
        }
        let outcome = bench.transfer(0, 1, direction, &pieces);
        assert_fault(outcome, bad, 3000);
        assert_served(&mut bench);
    }
}

pub(crate) fn read_only_memory_is_got_but_not_put<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let Some(there) = bench.cluster.read_only(1) else {
        testbed::skip("a put to read-only memory: there is none here");
        return;
    };
    let before = bench.bytes(1, there, 64);
    let here = bench.filled(0, MemId::Space, &pattern(1, 64));
    let outcome = bench.transfer(0, 1, Direction::Put, &[piece(there, here, 64)]);
    assert_fault(outcome, there, 64);
    assert!(bench.bytes(1, there, 64) == before, "read-only memory has changed");
    assert_eq!(bench.transfer(0, 1, Direction::Get, &[piece(there, here, 64)]), Ok(0));
    assert!(bench.bytes(0, here, 64) == before, "other bytes than lie there");
    assert_served(&mut bench);
}

pub(crate) fn a_local_fault_is_named_and_survived<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let Some(bad) = bench.cluster.inaccessible(0) else {
        testbed::skip("a local fault: no inaccessible memory here");
        return;
    };
    for mem in [MemId::Space, MemId::Heap] {
        let there = bench.filled(1, mem, &pattern(1, 500));
        for direction in BOTH {
            let outcome = bench.transfer(0, 1, direction, &[piece(there, bad, 500)]);
            let Err(OpError::LocalFault { mem: MemId::Space, addr, .. }) = outcome else {
                panic!("{outcome:?} where a local fault was due ({direction:?} with {mem:?} there)");
            };
            assert!((bad.offset..bad.offset + 500).contains(&addr), "{addr:#x} is not in the buffer");
            assert!(bench.bytes(1, there, 500) == pattern(1, 500), "a put from nowhere left bytes");
            assert_served(&mut bench);
        }
    }
}

pub(crate) fn an_atomic_outside_memory_is_a_fault<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let word = bench.memory(1, MemId::Heap, 8);
    for atomic in [Atomic::fetch_add(1), Atomic::compare_swap(0, 1)] {
        let id = bench.node(0).atomic(1, BEYOND, atomic, None);
        let outcome = bench.outcome(0, id);
        if skipped("atomics outside memory", outcome) {
            return;
        }
        assert_fault(outcome, BEYOND, 8);
        // A word of 4 bytes, in the midst of one of 8 or not at all, is judged by its own size.
        let narrow = Atomic { word: WordType::I32, ..atomic };
        let id = bench.node(0).atomic(1, BEYOND, narrow, None);
        assert_fault(bench.outcome(0, id), BEYOND, 4);
        let id = bench.node(0).atomic(1, word.plus(2), narrow, None);
        assert_fault(bench.outcome(0, id), word.plus(2), 4);
        let id = bench.node(0).atomic(1, word, Atomic::fetch_add(1), None);
        assert!(bench.outcome(0, id).is_ok(), "an atomic after the fault failed");
    }
}

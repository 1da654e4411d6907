//! Atomics on heap words.

use standpipe::{AtomicOp, Error, GlobalPtr, Memory, Operation};

use super::*;

#[test]
fn all_ranks_count_in_one_word() {
    job(
        3,
        |_| config(),
        |node| {
            let word = node.heap().alloc_zeroed::<u64>(2).expect("room");
            tell(node, "word", word.ptr(0).to_words());
            let there = GlobalPtr::<u64>::from_words(ask(node, "word", 0));
            for _ in 0..1000 {
                node.fetch_add(there, 1).expect("fetch-add");
                // A counter by compare-swap beside it.
                let mut seen = node.get(there.add(1)).expect("get");
                loop {
                    let old = node.compare_swap(there.add(1), seen, seen + 2).expect("compare-swap");
                    if old == seen {
                        break;
                    }
                    seen = old;
                }
            }
            node.barrier().expect("barrier");
            if node.rank() == 0 {
                assert_eq!(word.to_vec(), [3000, 6000]);
            }
            assert!(node.stats().total(Operation::Atomic).count >= 2000);
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn words_that_cannot_be_are_refused() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u64>(2).expect("room");
    let odd = GlobalPtr::<u64>::new(0, array.ptr(0).offset() + 4);
    assert_eq!(
        node.fetch_add(odd, 1),
        Err(Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 8 })
    );
    assert_eq!(
        node.compare_swap(odd, 0, 1),
        Err(Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 8 })
    );
    for offset in [4 << 20, 1 << 40, u64::MAX - 7] {
        let fault = Error::Fault { peer: 0, memory: Memory::Heap, addr: offset, len: 8 };
        assert_eq!(node.fetch_add(GlobalPtr::<u64>::new(0, offset), 1), Err(fault));
    }
    assert_eq!(array.to_vec(), [0, 0]);
    assert_eq!(node.compare_swap(array.ptr(0), 5, 6), Ok(0), "another word was expected");
    assert_eq!(array.read(0), 0);
    assert_eq!(node.fetch_add(array.ptr(0), u64::MAX), Ok(0));
    assert_eq!(node.fetch_add(array.ptr(0), 2), Ok(u64::MAX), "additions wrap");
    assert_eq!(array.read(0), 1);
}

#[test]
fn words_of_all_types_and_changes_that_nobody_waits_for() {
    job(
        3,
        |_| config(),
        |node| {
            let (wide, narrow) = (node.heap().alloc_zeroed::<i64>(8), node.heap().alloc_zeroed::<u32>(8));
            let (wide, narrow) = (wide.expect("room"), narrow.expect("room"));
            tell(node, "wide", wide.ptr(0).to_words());
            tell(node, "narrow", narrow.ptr(0).to_words());
            node.barrier().expect("barrier");
            let next = (node.rank() + 1) % 3;
            let there: GlobalPtr<i64> = GlobalPtr::from_words(ask(node, "wide", next));
            assert_eq!(node.fetch(there, AtomicOp::Min, -5), Ok(0));
            assert_eq!(node.fetch(there, AtomicOp::Max, -7), Ok(-5));
            assert_eq!(node.fetch(there, AtomicOp::Swap, i64::MIN), Ok(-5));
            assert_eq!(node.fetch_add(there, -1), Ok(i64::MIN));
            assert_eq!(node.compare_swap(there, i64::MAX, 12), Ok(i64::MAX));
            // All at once on the words of rank 0.
            let zero: GlobalPtr<u32> = GlobalPtr::from_words(ask(node, "narrow", 0));
            for n in 0..300 {
                node.update_nbi(zero, AtomicOp::Add, 1).expect("add");
                node.update_nbi(zero.add(1), AtomicOp::Xor, 1 << node.rank()).expect("xor");
                node.update_nbi(zero.add(2), AtomicOp::Or, 1 << (n % 32)).expect("or");
                node.update_nbi(zero.add(3), AtomicOp::Max, 1000 * node.rank() + n).expect("max");
            }
            node.barrier().expect("barrier");
            if node.rank() == 0 {
                assert_eq!(narrow.to_vec()[..5], [900, 0, u32::MAX, 2299, 0]);
            }
            assert_eq!(wide.to_vec()[..2], [12, 0]);
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn narrow_words_are_aligned_to_themselves() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u32>(4).expect("room");
    let second = array.ptr(1);
    assert_eq!(node.fetch(second, AtomicOp::Or, 6), Ok(0), "4 bytes at a multiple of 4");
    let odd: GlobalPtr<i32> = GlobalPtr::new(0, second.offset() + 2);
    let unaligned = Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 4 };
    assert_eq!(node.fetch_add(odd, 1), Err(unaligned.clone()));
    assert_eq!(node.update_nbi(odd, AtomicOp::Add, 1), Err(unaligned));
    let fault = Error::Fault { peer: 0, memory: Memory::Heap, addr: u64::MAX - 3, len: 4 };
    assert_eq!(node.fetch_add(GlobalPtr::<u32>::new(0, u64::MAX - 3), 1), Err(fault));
    assert_eq!(array.to_vec(), [0, 6, 0, 0]);
}

#[test]
fn the_failure_of_a_change_that_nobody_waits_for_is_told_by_quiet() {
    job(
        2,
        |_| config(),
        |node| {
            node.barrier().expect("barrier");
            let beyond: GlobalPtr<u64> = GlobalPtr::new(1 - node.rank(), 1 << 40);
            let fault = Error::Fault { peer: beyond.peer(), memory: Memory::Heap, addr: 1 << 40, len: 8 };
            let told = node.update_nbi(beyond, AtomicOp::Add, 1).and_then(|()| node.quiet());
            assert_eq!(told, Err(fault));
            assert_eq!(node.quiet(), Ok(()), "it is told once");
            node.barrier().expect("barrier");
        },
    );
}

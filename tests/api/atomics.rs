//! Atomics on heap words.

use standpipe::{Error, GlobalPtr, Memory, Operation};

use super::*;

#[test]
fn all_ranks_count_in_one_word() {
    job(
        3,
        |_| config(),
        |node| {
            let word = node.heap().alloc_zeroed::<u64>(2).expect("room");
            tell(node, "word", word.ptr(0).to_words());
            let there = GlobalPtr::from_words(ask(node, "word", 0));
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
    let odd = GlobalPtr::new(0, array.ptr(0).offset() + 4);
    assert_eq!(node.fetch_add(odd, 1), Err(Error::Unaligned { offset: odd.offset() }));
    assert_eq!(node.compare_swap(odd, 0, 1), Err(Error::Unaligned { offset: odd.offset() }));
    for offset in [4 << 20, 1 << 40, u64::MAX - 7] {
        let fault = Error::Fault { peer: 0, memory: Memory::Heap, addr: offset, len: 8 };
        assert_eq!(node.fetch_add(GlobalPtr::new(0, offset), 1), Err(fault));
    }
    assert_eq!(array.to_vec(), [0, 0]);
    assert_eq!(node.compare_swap(array.ptr(0), 5, 6), Ok(0), "another word was expected");
    assert_eq!(array.read(0), 0);
    assert_eq!(node.fetch_add(array.ptr(0), u64::MAX), Ok(0));
    assert_eq!(node.fetch_add(array.ptr(0), 2), Ok(u64::MAX), "additions wrap");
    assert_eq!(array.read(0), 1);
}

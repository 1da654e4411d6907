//! The heap and its arrays.

use standpipe::{Error, GlobalPtr, Node};

use super::*;

#[test]
fn arrays_hold_what_is_written() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u32>(1000).expect("room");
    assert_eq!((array.len(), array.is_empty()), (1000, false));
    assert!(array.to_vec().iter().all(|value| *value == 0));
    array.write(999, 7);
    array.write_slice(10, &[1, 2, 3]);
    let mut three = [0; 3];
    array.read_slice(10, &mut three);
    assert_eq!((array.read(999), three), (7, [1, 2, 3]));
    let from = node.heap().alloc_from(&[[1u8; 3], [2; 3]]).expect("room");
    assert_eq!(from.to_vec(), [[1; 3], [2; 3]]);
    let none = node.heap().alloc_zeroed::<u64>(0).expect("room");
    assert!(none.is_empty() && none.to_vec().is_empty());
    assert_ne!(none.ptr(0), from.ptr(0).cast(), "even empty arrays have places of their own");
    let nothing = node.heap().alloc_zeroed::<[u64; 0]>(5).expect("room");
    assert_eq!(nothing.to_vec().len(), 5);
}

#[test]
fn indices_beyond_the_array_panic_and_harm_nothing() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u16>(4).expect("room");
    let caught = |run: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err();
    assert!(caught(&|| assert_eq!(array.read(4), 0)));
    assert!(caught(&|| array.write(4, 1)));
    assert!(caught(&|| assert_eq!(array.ptr(5).peer(), 0)));
    assert!(caught(&|| array.read_slice(2, &mut [0; 3])));
    assert!(caught(&|| array.write_slice(usize::MAX, &[0; 2])));
    assert_eq!(array.ptr(4).offset() - array.ptr(0).offset(), 8, "just at the end is allowed");
    assert_eq!(array.to_vec(), [0; 4]);
}

#[test]
fn the_heap_grows_on_demand_and_pages_go_back_when_freed() {
    const BYTES: usize = 4 << 20;
    use standpipe::host::{ShmemHugePages, shmem_huge_pages};
    let small = matches!(shmem_huge_pages(), None | Some(ShmemHugePages::Never | ShmemHugePages::Deny));
    let page = if small { 4096 } else { 2 << 20 };
    let node = alone(config());
    let before = node.heap().resident_bytes();
    assert_eq!(node.heap().size(), 8 << 20);
    let array = node.heap().alloc::<u8>(BYTES).expect("room");
    assert!(node.heap().resident_bytes() < before + 64 * 1024 || !small, "pages exist once they are touched");
    array.write_slice(0, &vec![1; BYTES]);
    assert!(node.heap().resident_bytes() >= before + BYTES as u64);
    drop(array);
    assert!(node.heap().resident_bytes() <= before + 2 * page, "freed pages stay in memory");
    let again = node.heap().alloc_zeroed::<u8>(BYTES).expect("what was freed");
    assert!(again.to_vec().iter().all(|byte| *byte == 0));
}

#[test]
fn a_full_heap_says_what_it_has() {
    let node = alone(config());
    let size = node.heap().size();
    let error = node.heap().alloc::<u64>(1 << 20).expect_err("as large as the heap");
    assert_full(error, 8 << 20, size);
    let error = node.heap().alloc::<u64>(usize::MAX).expect_err("more than there are addresses");
    assert_full(error, u64::MAX, size);
    let mut arrays = Vec::new();
    while let Ok(array) = node.heap().alloc::<u8>(100_000) {
        arrays.push(array);
    }
    assert!(arrays.len() > 70, "{} arrays of 100,000 bytes fit into 8 MiB", arrays.len());
    arrays.truncate(10);
    node.heap().alloc::<u8>(5_000_000).expect("what was freed is one piece again");
}

#[test]
fn peers_reach_what_has_grown_since_they_looked() {
    job(
        2,
        |_| config(),
        |node| {
            let mut arrays = Vec::new();
            for round in 0..6u64 {
                let array = node.heap().alloc_zeroed::<u64>(100_000).expect("room");
                let name = format!("round {round} ");
                tell(node, &name, array.ptr(0).to_words());
                let there = GlobalPtr::<u64>::from_words(ask(node, &name, right_of(node)));
                node.put(there.add(99_999), round + 1).expect("put");
                let beyond = node.put(there.add(200_000), 1);
                assert!(matches!(beyond, Err(Error::Fault { .. })), "beyond what is live: {beyond:?}");
                node.barrier().expect("barrier");
                assert_eq!(array.read(99_999), round + 1);
                arrays.push(array);
            }
        },
    );
}

#[test]
fn arrays_outlive_the_node() {
    let (array, late) = {
        let node = alone(config());
        (node.heap().alloc_from(&[1u64, 2]).expect("room"), node.heap().alloc::<u64>(5).expect("room"))
    };
    array.write(0, 9);
    assert_eq!(array.to_vec(), [9, 2]);
    drop(late);
    assert!(format!("{array:?}").contains("len: 2"));
}

#[test]
fn nodes_of_one_process_have_heaps_of_their_own() {
    let (one, two): (Node, Node) = (alone(config()), alone(config()));
    let (a, b) = (one.heap().alloc_from(&[1u8]).expect("room"), two.heap().alloc_from(&[2u8]).expect("room"));
    assert_eq!((a.ptr(0), a.read(0), b.read(0)), (b.ptr(0), 1, 2));
}

/// The heap of that size has not so much room, and is nearly empty.
#[track_caller]
fn assert_full(error: standpipe::HeapError, wanted: u64, size: u64) {
    let standpipe::HeapError::Full { wanted: asked, free, size: all } = error else { panic!("{error}") };
    assert_eq!((asked, all), (wanted, size));
    assert!(free < size && free > size - (1 << 20), "{error}");
}

/// A pointer that is moved too far faults, and reaches no other memory.
#[test]
fn pointers_that_are_moved_too_far_reach_nothing() {
    let node = alone(config());
    let array = node.heap().alloc_from(&[1_u64, 2]).expect("room");
    let end = array.ptr(1);
    for count in [1 << 40, 1 << 61, (1 << 61) - 1, usize::MAX] {
        assert!(matches!(node.get(end.add(count)), Err(Error::Fault { .. })), "{count}");
        assert!(matches!(node.put(end.add(count), 1), Err(Error::Fault { .. })), "{count}");
        let far = standpipe::Remote::from(end).plus(count as u64);
        assert!(matches!(node.get_bytes(far, &mut [0; 8]), Err(Error::Fault { .. })), "{count}");
    }
    assert_eq!(array.to_vec(), [1, 2]);
}

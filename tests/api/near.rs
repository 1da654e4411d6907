//! Near peers, their heaps as memory of this process, and blocks by pointers, aligned and huge.

use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{Code, Error, HeapError, Reduction};

use super::*;

/// Whether ranks of a job are near: over the network they are not.
fn are_near() -> bool {
    !std::env::var(TRANSPORT).is_ok_and(|name| name != "shm")
}

#[test]
fn near_ranks_are_known_and_have_a_team() {
    job(
        3,
        |_| config(),
        |node| {
            let (me, near) = (node.rank(), are_near());
            let all: Vec<u32> = if near { vec![0, 1, 2] } else { vec![me] };
            assert_eq!(node.near_ranks(), all);
            assert!(node.is_near(me) && !node.is_near(3) && !node.is_near(u32::MAX));
            let team = node.near_team().expect("a team");
            assert_eq!((team.size() as usize, team.job_rank(team.rank())), (all.len(), Some(me)));
            // Every call gives a handle on the same team, whose collectives are not the world's.
            let again = node.near_team().expect("a team");
            let mut sum = [u64::from(me) + 1];
            again.all_reduce(&mut sum, Reduction::Sum).expect("they come");
            assert_eq!(sum[0], if near { 6 } else { u64::from(me) + 1 });
            drop(again);
            team.barrier().expect("they come");
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn a_local_pointer_is_the_peers_memory() {
    job(
        2,
        |_| config(),
        |node| {
            let array = node.heap().alloc_zeroed::<u64>(4).expect("room");
            let theirs = exchange(node, array.ptr(0));
            let found = node.local_ptr(theirs, 4).expect("it is there");
            assert_eq!(found.is_some(), are_near());
            let own = node.local_ptr(array.ptr(0), 4).expect("it is there").expect("it is near to itself");
            assert_eq!(own, array.as_ptr());
            if let Some(found) = found {
                assert_ne!(found, own, "both are mapped here");
                // SAFETY: words of mapped memory that both processes reach by atomics only.
                let words = |at: *mut u64| unsafe { AtomicU64::from_ptr(at) };
                words(found).fetch_add(u64::from(node.rank()) + 5, Ordering::SeqCst);
                node.barrier().expect("barrier");
                assert_eq!(words(own).load(Ordering::SeqCst), 6 - u64::from(node.rank()));
                node.barrier().expect("barrier");
                assert_eq!(node.fetch_add(theirs, 1), Ok(5 + u64::from(node.rank())));
                assert_eq!(words(found).load(Ordering::SeqCst), 6 + u64::from(node.rank()));
                assert!(matches!(node.local_ptr(theirs, usize::MAX), Err(Error::Fault { .. })));
                assert!(matches!(node.local_ptr(theirs.add(1 << 40), 1), Err(Error::Fault { .. })));
                let odd = GlobalPtr::<u8>::new(theirs.peer(), theirs.offset() + 1).cast::<u64>();
                assert!(matches!(node.local_ptr(odd, 1), Err(Error::Unaligned { size: 8, .. })));
            }
            let nobody = node.local_ptr(GlobalPtr::<u8>::new(9, 0), 1);
            assert_eq!(nobody, Err(Error::NoSuchPeer { peer: 9, size: 2 }));
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn a_local_pointer_outlives_its_peer_and_the_nodes_closing() {
    if !are_near() {
        return;
    }
    let configs = || config().handler("h", |_| {});
    let (node, peer) = (alone(configs()), alone(configs()));
    let address = peer.address().expect("it listens");
    let number = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| node.connect_to(&address));
        while !connecting.is_finished() {
            peer.progress();
        }
        connecting.join().expect("no panic").expect("connected")
    });
    assert!(node.is_near(number) && node.near_ranks() == [0], "it is of no job");
    let array = peer.heap().alloc_from(&[7_u64, 8]).expect("room");
    let there = GlobalPtr::<u64>::new(number, array.ptr(0).offset());
    let found = node.local_ptr(there, 2).expect("it is there").expect("it is near");
    let kept = node.clone();
    let offset = array.into_ptr().offset();
    drop(peer);
    kept.wait_until(|| !node.lost_peers().is_empty()).expect("it is told");
    assert_eq!(node.local_ptr(there, 2), Err(Error::PeerLost { peer: number }));
    assert!(node.close(LIMIT).is_ok());
    assert!(matches!(kept.local_ptr(there, 2), Err(Error::Closed { .. })));
    // SAFETY: the heap is mapped as long as a handle on the node is there, and nobody writes there now.
    assert_eq!(unsafe { (found.read(), found.add(1).read()) }, (7, 8), "at {offset}");
}

#[test]
fn blocks_are_freed_by_their_pointers_once() {
    let node = alone(config());
    let heap = node.heap();
    let array = heap.alloc_from(&[1_u32, 2, 3]).expect("room");
    let kept = heap.alloc_from(&[9_u8]).expect("room");
    let at = array.as_ptr();
    let ptr = array.into_ptr();
    // SAFETY: the block is not freed yet, and nobody writes there.
    assert_eq!(unsafe { at.add(2).read() }, 3);
    assert_eq!(node.get(ptr.add(1)), Ok(2));
    let refused = |ptr: GlobalPtr<u8>| {
        let error = heap.free(ptr).unwrap_err();
        assert_eq!(error, HeapError::NotABlock { peer: ptr.peer(), offset: ptr.offset() });
        assert_eq!(error.code(), Code::Fault);
    };
    refused(kept.ptr(0));
    refused(ptr.cast::<u8>().add(1));
    refused(GlobalPtr::new(1, ptr.offset()));
    refused(GlobalPtr::new(0, u64::MAX));
    assert_eq!(heap.free(ptr), Ok(()));
    refused(ptr.cast());
    assert_eq!(heap.alloc::<u32>(3).expect("room").into_ptr(), ptr, "it is free");
    assert_eq!(kept.to_vec(), [9]);
    // Memory comes back by it.
    for _ in 0..100 {
        let much = heap.alloc::<u8>(6 << 20).expect("what was freed");
        assert_eq!(heap.free(much.into_ptr()), Ok(()));
    }
    let copy = node.clone();
    assert!(node.close(LIMIT).is_ok());
    assert_eq!(copy.heap().free(ptr), Err(HeapError::Closed));
}

#[test]
fn aligned_blocks_are_aligned_here_and_at_peers() {
    job(
        2,
        |_| config(),
        |node| {
            let heap = node.heap();
            for align in [1, 8, 64, 128, 4096, 1 << 16, 2 << 20] {
                let _other = heap.alloc::<u8>(1).expect("room");
                let array = heap.alloc_aligned::<u16>(33, align).expect("room");
                assert_eq!((array.as_ptr().addr() % align.max(64), array.len()), (0, 33), "{align}");
                array.write(32, 5);
                let mut all = [[0_u64; 2]; 2];
                node.world().all_gather(&[array.ptr(0).to_words()], &mut all).expect("they come");
                let theirs = GlobalPtr::<u16>::from_words(all[right_of(node) as usize]);
                if let Some(found) = node.local_ptr(theirs, 33).expect("it is there") {
                    assert_eq!(found.addr() % align, 0, "{align}");
                }
                assert_eq!(node.get(theirs.add(32)), Ok(5));
                node.barrier().expect("barrier");
            }
            for align in [0, 3, 4097, 4 << 20, 1 << 63] {
                let error = heap.alloc_aligned::<u8>(1, align).map(drop).unwrap_err();
                assert_eq!(error, HeapError::Align { align: align as u64, most: 2 << 20 });
            }
            assert!(matches!(heap.alloc_aligned::<u8>(8 << 20, 4096), Err(HeapError::Full { .. })));
            assert!(matches!(heap.alloc_aligned::<u64>(usize::MAX, 64), Err(HeapError::Full { .. })));
        },
    );
    let small = alone(Config::new().heap_bytes(64 << 10));
    assert!(small.heap().alloc_aligned::<u8>(1, 4096).is_ok());
    let refused =
        [small.heap().alloc_aligned::<u8>(1, 8192).map(drop), small.heap().alloc_huge::<u8>(1).map(drop)];
    for (refused, align) in refused.into_iter().zip([8192, 2 << 20]) {
        assert_eq!(refused, Err(HeapError::Align { align, most: 4096 }));
    }
}

/// Bytes of huge pages that shared memory of this process is mapped by.
fn huge_bytes() -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("it is there");
    let of_line =
        |line: &str| line.strip_prefix("ShmemPmdMapped:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
    smaps.lines().filter_map(of_line).sum::<u64>() << 10
}

#[test]
fn huge_blocks_lie_in_huge_pages_or_are_refused() {
    let node = alone(Config::new().heap_bytes(32 << 20));
    let (heap, before) = (node.heap(), huge_bytes());
    let array = match heap.alloc_huge::<u64>((2 << 20) / 8 + 1) {
        Ok(array) => array,
        Err(error @ HeapError::NoHugePages { .. }) => {
            assert_eq!((error.code(), heap.resident_bytes() < 2 << 20), (Code::NoMemory, true));
            return testbed::skip(error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(array.as_ptr().addr() % (2 << 20), 0);
    array.write(array.len() - 1, 9);
    assert!(huge_bytes() >= before + (4 << 20), "{} of huge pages, and {before} before", huge_bytes());
    assert_eq!(node.get(array.ptr(array.len() - 1)), Ok(9));
    let resident = heap.resident_bytes();
    drop(array);
    assert!(heap.resident_bytes() <= resident - (4 << 20), "they go back");
    assert!(matches!(heap.alloc_huge::<u8>(33 << 20), Err(HeapError::Full { .. })));
    assert!(matches!(heap.alloc_huge::<u64>(usize::MAX), Err(HeapError::Full { .. })));
}

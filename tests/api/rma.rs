//! Puts and gets: every way to say them, every kind of memory, and what is not there.

use standpipe::{
    Error, GetPiece, GlobalPtr, Mechanism, Memory, Node, Operation, PathReason, ProgressThread, PutPiece,
    Remote, Tally,
};

use super::*;

#[test]
fn values_travel_around_a_ring_of_heaps() {
    job(
        3,
        |_| config(),
        |node| {
            let mine = node.heap().alloc_zeroed::<u64>(64).expect("room");
            let theirs = exchange(node, mine.ptr(0));
            node.put(theirs.add(5), u64::from(node.rank()) + 100).expect("put");
            node.put_slice(theirs.add(6), &[7, 8, 9]).expect("put");
            assert_eq!(node.get(theirs.add(7)).expect("get"), 8);
            let mut three = [0; 3];
            node.get_slice(theirs.add(6), &mut three).expect("get");
            assert_eq!(three, [7, 8, 9]);
            node.barrier().expect("barrier");
            let left = (node.rank() + 2) % 3;
            assert_eq!(mine.read(5), u64::from(left) + 100);
            assert_eq!(mine.to_vec()[6..9], [7, 8, 9]);
            let puts = |mechanism| node.stats().get(Operation::Put, mechanism).count;
            assert!(
                [Mechanism::Mapped, Mechanism::Message, Mechanism::Registered].map(puts).iter().sum::<u64>()
                    >= 2
            );
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn private_memory_is_reached_by_attach_and_by_message() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = pattern(u64::from(node.rank()), 100_000);
                let theirs = exchange_private(node, &mut mine);
                let mut got = vec![0; 100_000];
                node.get_bytes(theirs, &mut got).expect("get");
                assert!(got == pattern(u64::from(right_of(node)), 100_000), "the peer's bytes");
                let attach = node.attach(right_of(node)).expect("known");
                let (mechanism, whys) = match (way, attach) {
                    // Heaps go by message, too; `network` looks at the figures.
                    (_, Err(PathReason::Network)) => return node.barrier().expect("barrier"),
                    (Way::Attach, Ok(())) => (Mechanism::Cma, 0),
                    (Way::Message, Err(PathReason::Configured)) => (Mechanism::Message, 1),
                    other => panic!("{other:?}"),
                };
                assert_eq!(node.stats().get(Operation::Get, mechanism).count, 1);
                assert_eq!(node.stats().get(Operation::Get, mechanism).bytes, 100_000);
                assert_eq!(node.stats().why(PathReason::Configured), whys);
                node.barrier().expect("barrier");
            },
        );
    }
}

/// Puts `bytes` at `to` in the `how`-th way that there is.
fn put_somehow(node: &Node, how: usize, to: Remote, bytes: &[u8]) {
    match how {
        0 => node.put_bytes(to, bytes).expect("put"),
        1 => {
            let (left, right) = bytes.split_at(bytes.len() / 3);
            let right = PutPiece { to: to.plus(left.len() as u64), from: right };
            node.put_list(&[right, PutPiece { to, from: left }]).expect("put");
        }
        2 => {
            let (result, back) = node.put_nb(to, bytes.to_vec()).wait();
            assert_eq!((result, back), (Ok(()), bytes.to_vec()));
        }
        3 => {
            node.put_nbi(to, bytes).expect("put");
            node.quiet().expect("all put");
        }
        _ => {
            let (buffer, rest) = node.put_nb(to, bytes.to_vec()).wait_local();
            assert!(buffer == bytes);
            assert_eq!(rest.wait().0, Ok(()));
        }
    }
}

fn get_somehow(node: &Node, how: usize, from: Remote, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    match how {
        0 => node.get_bytes(from, &mut bytes).expect("get"),
        1 => {
            let (left, right) = bytes.split_at_mut(len / 3);
            let right = GetPiece { from: from.plus(left.len() as u64), into: right };
            node.get_list(&mut [right, GetPiece { from, into: left }]).expect("get");
        }
        _ => {
            let (result, got) = node.get_nb(from, bytes).wait();
            result.expect("get");
            return got;
        }
    }
    bytes
}

#[test]
fn every_way_to_put_and_get_moves_the_same_bytes() {
    const ROOM: usize = 40_000;
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let heap = node.heap().alloc_zeroed::<u64>(ROOM / 8).expect("room");
                let mut private = vec![0; ROOM];
                let there: [Remote; 2] =
                    [exchange(node, heap.ptr(0)).into(), exchange_private(node, &mut private)];
                for (round, len) in [0, 1, 7, 8, 9, 4096, 8192, 8193, 30_001].into_iter().enumerate() {
                    for remote in there {
                        for how in 0..5 {
                            let bytes = pattern((round * 5 + how) as u64, len);
                            put_somehow(node, how, remote.plus(3), &bytes);
                            let back = get_somehow(node, how % 3, remote.plus(3), len);
                            assert!(back == bytes, "{way:?}: {len} bytes in way {how}");
                        }
                    }
                }
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn lists_go_to_many_peers_and_kinds_of_memory_at_once() {
    for way in WAYS {
        job(
            3,
            |_| way.config(),
            |node| {
                let heap = node.heap().alloc_zeroed::<u64>(400).expect("room");
                let mut private = vec![0; 3200];
                tell(node, "array", heap.ptr(0).to_words());
                tell(node, "memory", [private.as_mut_ptr().expose_provenance() as u64, 0]);
                let me = u64::from(node.rank());
                let bytes = pattern(me, 100);
                let mut pieces = Vec::new();
                for peer in [0, 1, 2, 1, 0] {
                    let array = GlobalPtr::<u64>::from_words(ask(node, "array", peer));
                    // SAFETY: the ranks leave the bytes that they tell alone until the barrier, as for
                    // `exchange_private`.
                    let memory = unsafe { Remote::raw(peer, ask(node, "memory", peer)[0]) };
                    pieces.push(PutPiece { to: array.add((me * 50) as usize).into(), from: &bytes });
                    pieces.push(PutPiece { to: memory.plus(me * 400), from: &bytes });
                }
                node.put_list(&pieces).expect("put");
                node.barrier().expect("barrier");
                let found: Vec<u8> = bytemuck::cast_slice(&heap.to_vec()).to_vec();
                for from in 0..3 {
                    let at = from as usize * 400;
                    assert!(found[at..at + 100] == pattern(from, 100), "{way:?}: heap, from {from}");
                    assert!(private[at..at + 100] == pattern(from, 100), "{way:?}: private, from {from}");
                }
            },
        );
    }
}

#[test]
fn a_list_counts_each_byte_by_the_mechanism_that_moved_it() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u8>(100).expect("room");
    let mut private = vec![0u8; 300];
    // SAFETY: this process's own vector, which nothing else touches until it is dropped.
    let memory = unsafe { Remote::raw(0, private.as_mut_ptr().expose_provenance() as u64) };
    let tally = |mechanism| node.stats().get(Operation::Put, mechanism);
    let (mapped, cma) = (tally(Mechanism::Mapped), tally(Mechanism::Cma));
    let bytes = [7; 300];
    let pieces =
        [PutPiece { to: array.ptr(0).into(), from: &bytes[..100] }, PutPiece { to: memory, from: &bytes }];
    node.put_list(&pieces).expect("put");
    assert_eq!(tally(Mechanism::Mapped), Tally { count: mapped.count + 1, bytes: mapped.bytes + 100 });
    assert_eq!(tally(Mechanism::Cma), Tally { count: cma.count + 1, bytes: cma.bytes + 300 });
    node.put_list(&pieces[..1]).expect("put");
    assert_eq!(tally(Mechanism::Cma).count, cma.count + 1, "no private memory, no attach");
}

#[test]
fn what_is_not_there_is_a_fault_that_names_it() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let peer = right_of(node);
                node.connect(peer).expect("it joins");
                let faults = [
                    (nowhere(peer), Memory::Private, 4096),
                    (GlobalPtr::<u8>::new(peer, 7 << 20).into(), Memory::Heap, 7 << 20),
                    (GlobalPtr::<u8>::new(peer, 1 << 46).into(), Memory::Heap, 1 << 46),
                    (GlobalPtr::<u8>::new(peer, u64::MAX - 1).into(), Memory::Heap, u64::MAX - 1),
                ];
                for (remote, memory, addr) in faults {
                    let fault = Error::Fault { peer, memory, addr, len: 3 };
                    assert_eq!(node.put_bytes(remote, &[1, 2, 3]), Err(fault.clone()), "{way:?}");
                    assert_eq!(node.get_bytes(remote, &mut [0; 3]), Err(fault.clone()), "{way:?}");
                    assert_eq!(node.put_nb(remote, vec![0u8; 3]).wait().0, Err(fault.clone()), "{way:?}");
                    assert_eq!(node.get_nb(remote, vec![0u8; 3]).wait().0, Err(fault.clone()), "{way:?}");
                    let late = node.put_nbi(remote, &[1u8, 2, 3]).and_then(|()| node.quiet());
                    assert_eq!(late, Err(fault), "{way:?}");
                }
                assert_eq!(node.quiet(), Ok(()), "a failure is told once");
                node.barrier().expect("the target lives");
            },
        );
    }
}

#[test]
fn a_fault_amid_a_list_leaves_the_node_usable() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = vec![0; 1000];
                let theirs = exchange_private(node, &mut mine);
                let bytes = [7; 100];
                let good = PutPiece { to: theirs, from: &bytes };
                let bad = PutPiece { to: nowhere(right_of(node)), from: &bytes };
                let fault = node.put_list(&[good, bad, good]).expect_err("nothing is there");
                assert!(matches!(fault, Error::Fault { addr: 4096, .. }), "{way:?}: {fault:?}");
                node.put_list(&[good, PutPiece { to: theirs.plus(900), ..good }]).expect("put");
                node.barrier().expect("barrier");
                assert_eq!((mine[99], mine[100], mine[999]), (7, 0, 7));
            },
        );
    }
}

#[test]
fn a_node_talks_to_itself() {
    for way in WAYS {
        let node = alone(way.config());
        let array = node.heap().alloc_from(&[1u64, 2, 3]).expect("room");
        assert_eq!(node.get(array.ptr(1)), Ok(2));
        node.put(array.ptr(2), 9).expect("put");
        assert_eq!(array.to_vec(), [1, 2, 9]);
        let mut private = vec![5u8; 20_000];
        // SAFETY: this process's own vector, untouched otherwise while the transfers below run.
        let there = unsafe { Remote::raw(0, private.as_mut_ptr().expose_provenance() as u64) };
        node.put_bytes(there.plus(1), &[6; 15_000]).expect("put");
        let mut got = vec![0; 20_000];
        node.get_bytes(there, &mut got).expect("get");
        assert_eq!((got[0], got[1], got[15_000], got[15_001]), (5, 6, 6, 5), "{way:?}");
        assert!(got == private);
        node.barrier().expect("nobody else is waited for");
    }
}

#[test]
fn ranks_that_do_not_exist_are_named() {
    let node = alone(config());
    let missing = Err(Error::NoSuchPeer { peer: 1, size: 1 });
    assert_eq!(node.put(GlobalPtr::new(1, 0), 1u64), missing);
    assert_eq!(node.connect(1), missing);
    assert_eq!(node.fetch_add(GlobalPtr::<u64>::new(1, 0), 1).map(|_| ()), missing);
    assert_eq!(node.put_nb(GlobalPtr::<u8>::new(1, 0), vec![1u8]).wait().0, missing);
    assert_eq!(node.attach(1), None);
}

#[test]
fn who_does_not_answer_is_named_when_time_is_up() {
    if skipped_over_the_network() {
        return;
    }
    let configure = |_| Way::Message.config().progress(ProgressThread::Off);
    job(2, configure, |node| {
        let mut mine = vec![1u8; 50_000];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        if node.rank() == 0 {
            let hasty = node.within(Duration::from_millis(50));
            let started = Instant::now();
            let timeout: Result<(), Error> = Err(Error::Timeout { peer: 1, unattended: true });
            let mut buffer = vec![9u8; 50_000];
            assert_eq!(hasty.get_bytes(theirs, &mut buffer), timeout);
            assert_eq!(hasty.put_bytes(theirs, &[2; 50_000]), timeout);
            let (result, kept) = hasty.get_nb(theirs, vec![3u8; 10]).wait();
            assert_eq!((&result, kept), (&timeout, vec![3; 10]));
            assert!(started.elapsed() < Duration::from_secs(5));
            // Chunks of the put may still be stored there: it does not arrive before.
            assert_eq!(hasty.barrier(), timeout);
            buffer.fill(8);
            node.directory().publish("done", &[]).expect("published");
            node.barrier().expect("all has settled, and all come");
            assert!(buffer.iter().all(|byte| *byte == 8), "a late answer wrote to a buffer given back");
        } else {
            await_idly(node, "done");
            node.barrier().expect("barrier");
        }
        node.barrier().expect("barrier");
    });
}

#[test]
fn fence_orders_puts_by_message_too() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut data = vec![0u8; 30_000];
                let theirs = exchange_private(node, &mut data);
                let flag = node.heap().alloc_zeroed::<u64>(1).expect("room");
                tell(node, "flag", flag.ptr(0).to_words());
                let their_flag = GlobalPtr::from_words(ask(node, "flag", right_of(node)));
                node.put_nbi(theirs, &pattern(4, 30_000)).expect("put");
                node.fence().expect("fence");
                node.put(their_flag, 1u64).expect("put");
                node.wait_until(|| flag.read(0) == 1).expect("the neighbour's flag");
                assert!(data == pattern(4, 30_000), "{way:?}: the flag came before the bytes");
                node.barrier().expect("barrier");
            },
        );
    }
}

/// No bytes are moved without a fault, wherever they would go: programs compute places of empty blocks beyond
/// all that there is.
#[test]
fn no_bytes_fault_nowhere() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let peer = right_of(node);
                // SAFETY: what goes there has no bytes, so nothing of the peer is read or written, whatever
                // lies at the address.
                let private = [0, 16, u64::MAX].map(|addr| unsafe { Remote::raw(peer, addr) });
                let heap = [0, 1 << 40, u64::MAX].map(|offset| GlobalPtr::<u8>::new(peer, offset).into());
                for to in heap.into_iter().chain(private) {
                    let bytes: [u8; 0] = [];
                    assert_eq!(node.put_bytes(to, &bytes), Ok(()), "{way:?} {to:?}");
                    assert_eq!(node.get_bytes(to, &mut []), Ok(()), "{way:?} {to:?}");
                    assert_eq!(node.put_nbi(to, &bytes), Ok(()), "{way:?} {to:?}");
                    assert_eq!(node.put_nb(to, Vec::<u8>::new()).wait().0, Ok(()), "{way:?} {to:?}");
                    assert_eq!(node.get_nb(to, Vec::<u8>::new()).wait().0, Ok(()), "{way:?} {to:?}");
                    let pieces = [PutPiece { to, from: &bytes }, PutPiece { to, from: &bytes }];
                    assert_eq!(node.put_list(&pieces), Ok(()), "{way:?} {to:?}");
                    assert_eq!(
                        node.get_list(&mut [GetPiece { from: to, into: &mut [] }]),
                        Ok(()),
                        "{way:?} {to:?}"
                    );
                }
                assert_eq!(node.quiet(), Ok(()), "{way:?}");
                node.barrier().expect("barrier");
            },
        );
    }
}

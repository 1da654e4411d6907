//! Groups: operations that are waited for together, and for no others.

use standpipe::{AtomicOp, Error, Group, PathReason, ProgressThread, PutPiece};

use super::*;

#[test]
fn a_group_waits_for_its_own_and_gives_buffers_back_in_order() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = vec![0_u8; 100 * 500];
                let theirs = exchange_private(node, &mut mine);
                let mut puts = node.group();
                assert_eq!((puts.len(), puts.left(), puts.is_complete()), (0, 0, true));
                for i in 0..100 {
                    puts.add(node.put_nb(theirs.plus(500 * i), vec![i as u8 + 1; 500]));
                }
                let (result, buffers) = puts.wait();
                assert_eq!(result, Ok(()), "{way:?}");
                assert!(buffers.iter().zip(1..).all(|(buffer, byte)| *buffer == vec![byte; 500]), "{way:?}");
                let mut gets = node.group();
                for i in (0..100).rev() {
                    gets.add(node.get_nb(theirs.plus(500 * i), vec![0_u8; 500]));
                }
                assert_eq!(gets.wait_at_most(LIMIT), Ok(true));
                assert_eq!((gets.len(), gets.left(), gets.failure()), (100, 0, None));
                let (result, buffers) = gets.wait();
                assert_eq!(result, Ok(()), "{way:?}");
                assert!(buffers.iter().zip((1..=100).rev()).all(|(buffer, byte)| *buffer == vec![byte; 500]));
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn what_is_started_into_a_group_may_be_reused_at_once() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let heap = node.heap().alloc_zeroed::<u64>(8).expect("room");
                let word = exchange(node, heap.ptr(0));
                let mut mine = vec![0_u8; 30_000];
                let theirs = exchange_private(node, &mut mine);
                let mut group = node.group();
                let mut source = vec![1_u8; 10_000];
                group.put(theirs, &source);
                source.fill(2);
                group.put_list(&[
                    PutPiece { to: theirs.plus(10_000), from: &source },
                    PutPiece { to: theirs.plus(20_000), from: &source[..5000] },
                ]);
                source.fill(3);
                group.put(word.add(1), &[7_u64, 8]);
                group.add(node.update_nb(word, AtomicOp::Add, 5));
                assert_eq!(group.len(), 4);
                assert_eq!(group.wait().0, Ok(()), "{way:?}");
                node.barrier().expect("barrier");
                assert_eq!(heap.to_vec()[..4], [5, 7, 8, 0]);
                let model = [vec![1; 10_000], vec![2; 15_000], vec![0; 5000]].concat();
                assert!(mine == model, "{way:?}");
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn a_group_tells_the_first_failure_and_leaves_none_to_quiet() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = vec![0_u8; 100];
                let theirs = exchange_private(node, &mut mine);
                let right = right_of(node);
                let mut group = node.group();
                group.put(theirs, &[1_u8; 10]);
                group.put(nowhere(right), &[1_u8; 7]);
                group.put(nowhere(9), &[1_u8; 7]);
                group.put(theirs.plus(10), &[1_u8; 10]);
                assert_eq!(group.wait_at_most(LIMIT), Ok(true));
                let told = group.failure().cloned();
                let (result, _) = group.wait();
                assert!(
                    matches!(result, Err(Error::Fault { peer, len: 7, .. }) if peer == right),
                    "{way:?} {result:?}"
                );
                assert_eq!(result.err(), told);
                assert_eq!(node.quiet(), Ok(()), "the group has told");
                node.barrier().expect("barrier");
                assert_eq!(mine[..20], [1; 20], "the others were put");
                node.barrier().expect("barrier");
            },
        );
    }
}

/// Two nodes, the second of which answers nothing by itself, and bytes of its.
fn with_a_mute() -> (Broker, Node, Node, Remote) {
    let config = || Way::Message.config().progress(ProgressThread::Off);
    let broker = Broker::start(2).expect("a broker");
    let zero = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    let one = Node::open_in(config(), Some(&broker.env(1))).expect("a node");
    zero.connect(1).expect("joined");
    let bytes = vec![0_u8; 1000].leak().as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the bytes are leaked, and nobody else knows where they are.
    (broker, zero, one, unsafe { Remote::raw(1, bytes) })
}

#[test]
fn a_group_counts_what_is_left_and_ends_at_a_deadline_or_a_loss() {
    let (_broker, zero, one, there) = with_a_mute();
    let mut group: Group = zero.group();
    for i in 0..10 {
        group.put(there.plus(i * 100), &[1_u8; 100]);
    }
    if group.left() == 10 {
        // Others are under way, and nobody waits for those.
        drop(zero.put_nb(there, vec![1_u8; 10]));
        assert_eq!(group.wait_at_most(Duration::from_millis(20)), Ok(false));
        while group.left() > 0 {
            one.progress();
        }
    }
    assert_eq!(group.wait().0, Ok(()));

    let hurried = zero.within(Duration::from_millis(20));
    let mut late: Group<Vec<u8>> = hurried.group();
    late.add(zero.get_nb(there, vec![0; 10]));
    if late.left() == 1 {
        late.add(zero.get_nb(there, vec![0; 10]));
        let (result, buffers) = late.wait();
        assert_eq!((result, buffers.len()), (Err(Error::Timeout { peer: 1, unattended: true }), 2));
    }
    let mut lost = zero.group();
    lost.add(zero.get_nb(there, vec![0_u8; 10]));
    let pending = lost.left() == 1;
    drop(one);
    let result = lost.wait().0;
    // Over the network who leaves may still answer.
    let may_be_answered = zero.attach(1) == Some(Err(PathReason::Network));
    let is_lost = result == Err(Error::PeerLost { peer: 1 });
    assert!(is_lost || result == Ok(()) && (!pending || may_be_answered), "{result:?}");
}

#[test]
fn a_wait_for_a_signal_ends_when_its_sender_is_lost() {
    let broker = Broker::start(2).expect("a broker");
    let zero = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    let one = Node::open_in(config(), Some(&broker.env(1))).expect("a node");
    let counter = zero.heap().alloc_zeroed::<u64>(1).expect("room");
    let count = counter.ptr(0);
    one.fetch_add(count, 1).expect("an atomic");
    assert_eq!(zero.wait_signal_from(1, count, 1), Ok(1));
    let late = zero.within(Duration::from_millis(20)).wait_signal_from(1, count, 2);
    assert!(matches!(late, Err(Error::SignalTimeout { .. })), "{late:?}");
    assert_eq!(zero.wait_signal_from(7, count, 2), Err(Error::NoSuchPeer { peer: 7, size: 2 }));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| zero.wait_signal_from(1, count, 3));
        std::thread::sleep(Duration::from_millis(30));
        one.fetch_add(count, 1).expect("an atomic");
        drop(one);
        assert_eq!(waits.join().expect("no panic"), Err(Error::PeerLost { peer: 1 }));
    });
    assert_eq!(zero.wait_signal_from(1, count, 2), Ok(2), "what was put before is there");
    assert_eq!(zero.wait_signal_from(1, count, 3), Err(Error::PeerLost { peer: 1 }));
}

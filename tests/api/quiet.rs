//! Quiet and order with one peer.

use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{AtomicOp, Error, Memory, ProgressThread};

use super::*;

/// Beyond every heap.
fn beyond(peer: u32) -> GlobalPtr<u64> {
    GlobalPtr::new(peer, 1 << 40)
}

fn fault(peer: u32) -> Error {
    Error::Fault { peer, memory: Memory::Heap, addr: 1 << 40, len: 8 }
}

/// A rank that makes progress only when it is told to, and what it has been told to put into.
fn nodes(size: u32) -> (Broker, Vec<Node>) {
    let broker = Broker::start(size).expect("a broker");
    let configure = || Way::Message.config().progress(ProgressThread::Off);
    let open = |rank| Node::open_in(configure(), Some(&broker.env(rank))).expect("a node");
    let nodes: Vec<Node> = (0..size).map(open).collect();
    let (zero, others) = nodes.split_first().expect("there are some");
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| (1..size).try_for_each(|peer| zero.connect(peer)));
        while !connects.is_finished() {
            others.iter().for_each(|other| _ = other.progress());
        }
        connects.join().expect("no panic").expect("connected");
    });
    (broker, nodes)
}

fn private(peer: u32) -> Remote {
    let bytes = vec![0_u8; 1000].leak().as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the bytes are leaked, and nobody else knows where they are.
    unsafe { Remote::raw(peer, bytes) }
}

#[test]
fn quiet_with_one_waits_for_nobody_else() {
    let (_broker, nodes) = nodes(3);
    let (zero, one, two) = (&nodes[0], &nodes[1], &nodes[2]);
    let (to_one, to_two) = (private(1), private(2));
    let mut mute = zero.put_nb(to_one, vec![1_u8; 100]);
    let is_pending = !mute.is_complete();
    zero.put_nbi(to_one, &[1_u8; 100]).expect("started");
    for _ in 0..20 {
        zero.put_nbi(to_two, &[2_u8; 100]).expect("started");
    }
    let calls: [&(dyn Fn(u32) -> Result<(), Error> + Sync); 2] =
        [&|peer| zero.quiet_with(peer), &|peer| zero.fence_with(peer)];
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| calls.map(|call| call(2)));
        while !waits.is_finished() {
            two.progress();
        }
        assert_eq!(waits.join().expect("no panic"), [Ok(()), Ok(())], "the other is mute");
    });
    let hurried = zero.within(Duration::from_millis(20));
    if is_pending && !mute.is_complete() {
        assert_eq!(hurried.quiet_with(1), Err(Error::Timeout { peer: 1, unattended: true }));
        assert_eq!(hurried.fence_with(1), Err(Error::Timeout { peer: 1, unattended: true }));
        assert_eq!(hurried.quiet(), Err(Error::Timeout { peer: 1, unattended: true }), "that is for all");
        // What is started later is not waited for, and nothing was given up.
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| zero.quiet_with(1));
            while !waits.is_finished() {
                one.progress();
            }
            assert_eq!(waits.join().expect("no panic"), Ok(()));
        });
        assert!(mute.is_complete());
    }
    assert_eq!([0, 1, 2].map(|peer| zero.quiet_with(peer)), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn failures_with_others_stay_for_later_calls() {
    job(
        3,
        |_| config(),
        |node| {
            node.barrier().expect("barrier");
            let fail = |peer| drop(node.update_nb(beyond(peer), AtomicOp::Add, 1));
            let others: Vec<u32> = (0..3).filter(|peer| *peer != node.rank()).collect();
            let (one, two) = (others[0], others[1]);
            fail(one);
            fail(two);
            assert_eq!(node.quiet_with(node.rank()), Ok(()), "nothing failed with itself");
            assert_eq!(node.quiet_with(two), Err(fault(two)));
            assert_eq!(node.quiet_with(two), Ok(()), "told once");
            node.wait_until(|| node.has_failed()).expect("that with the other one is kept");
            assert_eq!(node.fence_with(two), Ok(()));
            assert_eq!(node.quiet(), Err(fault(one)));
            assert_eq!((node.quiet(), node.has_failed()), (Ok(()), false));
            fail(one);
            assert_eq!(node.quiet(), Err(fault(one)));
            assert_eq!(node.quiet_with(one), Ok(()), "it has been told");
            fail(one);
            fail(two);
            assert_eq!(node.fence_with(one), Err(fault(one)));
            assert_eq!(node.fence_with(two), Err(fault(two)));
            // All at once is told once.
            fail(one);
            let event = node.fetch_nb(beyond(two), AtomicOp::Add, 1);
            assert_eq!(
                event.wait(),
                (Err(fault(two)), None),
                "whoever waits for it is told, and nobody else"
            );
            assert_eq!(node.quiet_with(two), Ok(()));
            assert_eq!(node.quiet_with(one), Err(fault(one)));
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn a_lost_peer_is_a_failure_where_something_failed_with_it() {
    let (_broker, mut nodes) = nodes(3);
    let two = nodes.pop().expect("three");
    let one = nodes.pop().expect("three");
    let zero = &nodes[0];
    assert_eq!(zero.quiet_with(3), Err(Error::NoSuchPeer { peer: 3, size: 3 }));
    assert_eq!(zero.fence_with(u32::MAX), Err(Error::NoSuchPeer { peer: u32::MAX, size: 3 }));
    let to_one = private(1);
    let mut put = zero.put_nb(to_one, vec![1_u8; 100]);
    let is_pending = !put.is_complete();
    drop(put);
    drop((one, two));
    zero.wait_until(|| zero.is_lost(1) && zero.is_lost(2)).expect("they have left");
    assert_eq!(zero.quiet_with(2), Ok(()), "nothing was started with it");
    let told = zero.quiet_with(1);
    // Over the network who leaves may still answer.
    assert!(told == Ok(()) || is_pending && told == Err(Error::PeerLost { peer: 1 }), "{told:?}");
    assert_eq!(zero.quiet_with(1), Ok(()), "told once");
    drop(zero.put_nb(to_one, vec![1_u8; 100]));
    assert_eq!(zero.quiet_with(2), Ok(()));
    assert_eq!(zero.quiet_with(1), Err(Error::PeerLost { peer: 1 }));
    assert_eq!(zero.quiet(), Ok(()));
}

#[test]
fn handlers_are_quiet_with_those_that_they_need_not_wait_for() {
    let seen = Arc::new(AtomicU64::new(0));
    let here = Arc::clone(&seen);
    let (_broker, nodes) = nodes(3);
    let (zero, to_one) = (&nodes[0], private(1));
    let look = move |call: &mut standpipe::Call<'_>| {
        let node = call.node();
        let mut put = node.put_nb(to_one, vec![1_u8; 100]);
        let told = [node.quiet_with(1), node.fence_with(1)];
        if !put.is_complete() {
            assert!(told.iter().all(|told| matches!(told, Err(Error::InHandler { .. }))), "{told:?}");
        }
        assert_eq!((node.quiet_with(0), node.fence_with(2)), (Ok(()), Ok(())));
        here.store(1, Ordering::SeqCst);
    };
    let quiet = zero.register("handlers", "quiet", look).expect("a free name");
    zero.request(0, quiet, [0; 4]).expect("sent");
    zero.wait_until(|| seen.load(Ordering::SeqCst) == 1).expect("it runs");
}

#[test]
fn order_with_one_peer_is_kept() {
    job(
        2,
        |_| Way::Message.config(),
        |node| {
            let mut mine = vec![0_u8; 100_000];
            let there = exchange_private(node, &mut mine);
            let flag = node.heap().alloc_zeroed::<u64>(1).expect("room");
            let theirs = exchange(node, flag.ptr(0));
            node.put_nbi(there, &vec![9_u8; 100_000]).expect("started");
            node.fence_with(right_of(node)).expect("nothing failed");
            node.update_nbi(theirs, AtomicOp::Add, 1).expect("started");
            node.wait_signal(flag.ptr(0), 1).expect("the other has done the same");
            let mut found = vec![0_u8; 100_000];
            // SAFETY: the bytes live to the end of the job, and nobody writes them any more.
            let own = unsafe { Remote::raw(node.rank(), mine.as_mut_ptr().expose_provenance() as u64) };
            node.get_bytes(own, &mut found).expect("its own memory");
            assert!(found.iter().all(|byte| *byte == 9));
            node.barrier().expect("barrier");
        },
    );
}

/// `quiet` tells one of two failures, of which one came at once and one later. A collective's failure is no
/// one peer's.
#[test]
fn failures_are_told_once_and_those_of_collectives_by_quiet_alone() {
    let (_broker, mut nodes) = nodes(3);
    let (zero, bad) = (nodes[0].clone(), nowhere(0));
    drop(zero.update_nb(beyond(0), AtomicOp::Add, 1));
    drop(zero.put_nb(bad, vec![1_u8; 8]));
    while zero.progress() {}
    assert!(zero.quiet_with(0).is_err());
    assert_eq!((zero.quiet_with(0), zero.quiet()), (Ok(()), Ok(())));

    let started = |node: &Node| node.world().all_gather_nb(vec![1_u64]);
    let (pending, mut ended) = (started(&zero), started(&nodes[1]));
    // The engine knows how it ended, and nobody has asked yet.
    let unseen = started(&zero);
    drop(pending);
    drop(nodes.pop());
    for node in &nodes {
        let begun = Instant::now();
        while node.lost_peers().is_empty() || !node.has_failed() && node.rank() == 0 {
            nodes.iter().for_each(|node| _ = node.progress());
            assert!(begun.elapsed() < LIMIT, "rank {} is told of no loss", node.rank());
        }
    }
    drop(unseen);
    while !ended.is_complete() {
        nodes.iter().for_each(|node| _ = node.progress());
    }
    drop(ended);
    for node in &nodes {
        assert_eq!([0, 1, 2].map(|peer| node.quiet_with(peer)), [Ok(()), Ok(()), Ok(())]);
        assert_eq!((node.quiet(), node.quiet()), (Err(Error::PeerLost { peer: 2 }), Ok(())));
    }
}

//! Peers that leave.

use standpipe::{Error, GlobalPtr, ProgressThread};

use super::*;

/// Two nodes that know each other.
fn two(config: impl Fn() -> Config) -> (Broker, Node, Node) {
    let config = || config().handler("note", |_| {});
    let broker = Broker::start(2).expect("a broker");
    let zero = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    let one = Node::open_in(config(), Some(&broker.env(1))).expect("a node");
    zero.connect(1).expect("joined");
    one.connect(0).expect("joined");
    (broker, zero, one)
}

#[test]
fn nothing_is_started_with_who_has_left() {
    for way in WAYS {
        let (_broker, zero, one) = two(|| way.config());
        let array = one.heap().alloc_from(&[1u64; 8]).expect("room");
        assert_eq!(zero.get(array.ptr(0)), Ok(1));
        drop(one);
        zero.wait_until(|| zero.lost_peers() == [1]).expect("told within the limit");
        let lost: Result<(), Error> = Err(Error::PeerLost { peer: 1 });
        let word = array.ptr(0);
        assert_eq!(zero.put(word, 2), lost, "{way:?}");
        assert_eq!(zero.get(word).map(|_| ()), lost);
        assert_eq!(zero.fetch_add(word, 1).map(|_| ()), lost);
        assert_eq!(zero.put_bytes(nowhere(1), &[1]), lost);
        assert_eq!(zero.put_nb(word, vec![1u8]).wait().0, lost);
        assert_eq!(zero.get_nb(nowhere(1), vec![1u8]).wait().0, lost);
        assert_eq!(zero.put_nbi(word, &[1u8]), lost);
        assert_eq!(zero.connect(1), lost);
        let note = zero.handler("note").expect("registered");
        assert_eq!(zero.request(1, note, [0; 4]), lost);
        assert_eq!(zero.request_long(note, [0; 4], word, &[1]), lost);
        assert_eq!(zero.barrier(), lost);
        assert_eq!(zero.barrier(), lost, "then and ever after");
        assert_eq!(array.read(0), 1, "nothing was put");
        zero.quiet().expect("nothing is under way");
        let own = zero.heap().alloc_zeroed::<u64>(1).expect("room");
        zero.put(own.ptr(0), 3).expect("the living go on");
    }
}

#[test]
fn what_is_under_way_with_who_leaves_ends() {
    let configure = || Way::Message.config().progress(ProgressThread::Off);
    let (_broker, zero, one) = two(configure);
    let mut memory = vec![0u8; 100_000];
    // SAFETY: the vector is not touched until its bytes are looked at, when rank 1 is gone.
    let there = unsafe { Remote::raw(1, memory.as_mut_ptr().expose_provenance() as u64) };
    std::thread::scope(|scope| {
        let get = scope.spawn(|| zero.get_bytes(there, &mut vec![0; 100_000]));
        let barrier = scope.spawn(|| zero.barrier());
        std::thread::sleep(Duration::from_millis(50));
        drop(one);
        let lost = Err(Error::PeerLost { peer: 1 });
        assert_eq!(get.join().expect("no panic"), lost);
        assert_eq!(barrier.join().expect("no panic"), lost);
    });
    assert!(memory.iter().all(|byte| *byte == 0));
}

#[test]
fn a_flood_to_who_leaves_ends() {
    let (_broker, zero, one) = two(|| config().progress(ProgressThread::Off));
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let note = zero.handler("note").expect("registered");
            loop {
                if let Err(error) = zero.request_medium(1, note, [0; 4], &[1; 8000]) {
                    return error;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(one);
        assert_eq!(flood.join().expect("no panic"), Error::PeerLost { peer: 1 });
    });
}

#[test]
fn a_job_without_its_launcher_has_nobody_left() {
    let (broker, zero, one) = two(config);
    let array = one.heap().alloc_zeroed::<u64>(1).expect("room");
    drop(broker);
    zero.wait_until(|| zero.lost_peers() == [1]).expect("told within the limit");
    assert_eq!(zero.get(array.ptr(0)), Err(Error::PeerLost { peer: 1 }));
    assert_eq!(zero.get(GlobalPtr::<u64>::new(0, 0)).map(|_| ()), Ok(()), "itself is never lost");
}

#[test]
fn who_has_not_joined_is_waited_for_no_longer_than_asked() {
    let broker = Broker::start(2).expect("a broker");
    let one = Node::open_in(config(), Some(&broker.env(1))).expect("a node");
    let hasty = one.within(Duration::from_millis(50));
    let started = Instant::now();
    let timeout = Err(Error::Timeout { peer: 0, unattended: false });
    assert_eq!(hasty.connect(0), timeout);
    assert_eq!(hasty.put(GlobalPtr::new(0, 0), 1u64), timeout);
    assert_eq!(hasty.barrier(), timeout);
    assert!(started.elapsed() < Duration::from_secs(5), "three calls took {:?}", started.elapsed());
    let zero = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    std::thread::scope(|scope| {
        scope.spawn(|| zero.barrier().expect("barrier"));
        one.barrier().expect("the one that was waited for before");
    });
}

#[test]
fn waiting_for_one_to_join_does_not_keep_others_from_it() {
    let broker = Broker::start(3).expect("a broker");
    let open = |rank| Node::open_in(config(), Some(&broker.env(rank))).expect("a node");
    let (zero, one) = (open(0), open(1));
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| zero.within(Duration::from_secs(2)).connect(2));
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        assert_eq!(zero.connect(1), Ok(()));
        assert!(started.elapsed() < Duration::from_secs(1), "connecting took {:?}", started.elapsed());
        assert_eq!(patient.join().expect("no panic"), Err(Error::Timeout { peer: 2, unattended: false }));
    });
    drop(one);
}

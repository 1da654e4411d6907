//! Puts that signal, and waiting for them.

use standpipe::{
    AtomicOp, Error, GlobalPtr, HeapArray, ProgressThread, Signal, SignalWait, SignalWord, UnmetSignal, Until,
};

use super::*;

/// A way to put with a signal.
type Put<'a> = &'a dyn Fn(&[u8], Signal) -> Result<(), Error>;

/// Bytes, and a counter, of the next rank.
fn next_ranks(
    node: &Node,
    bytes: &HeapArray<u8>,
    counter: &HeapArray<u64>,
) -> (GlobalPtr<u8>, GlobalPtr<u64>) {
    tell(node, "bytes", bytes.ptr(0).to_words());
    tell(node, "counter", counter.ptr(0).to_words());
    let next = (node.rank() + 1) % node.size();
    (GlobalPtr::from_words(ask(node, "bytes", next)), GlobalPtr::from_words(ask(node, "counter", next)))
}

#[test]
fn bytes_are_there_when_the_counter_says_so() {
    const SIZES: [usize; 5] = [0, 8, 1000, 30_000, 300_000];
    job(
        2,
        |_| config(),
        |node| {
            let bytes = node.heap().alloc_zeroed::<u8>(300_000).expect("room");
            let counter = node.heap().alloc_zeroed::<u64>(2).expect("room");
            let mut private = vec![0_u8; 300_000];
            let (there, count) = next_ranks(node, &bytes, &counter);
            let raw = exchange_private(node, &mut private);
            let (mine, mut told) = (counter.ptr(0), 0);
            let mut turn = |len: usize, put: Put<'_>| {
                let fill = told as u8 + 1;
                put(&vec![fill; len], Signal::add(count, 1)).expect("put with a signal");
                assert_eq!(node.wait_signal(mine, told + 1), Ok(told + 1));
                told += 1;
                assert!(bytes.to_vec()[..len].iter().all(|byte| *byte == fill), "{len} bytes");
                // Each writes again only once the other has looked.
                node.barrier().expect("barrier");
            };
            for len in SIZES {
                turn(len, &|from, signal| node.put_signal(there, from, signal));
                turn(len, &|from, signal| node.put_signal_nb(there, from.to_vec(), signal).wait().0);
                turn(len, &|from, signal| node.put_signal_nbi(there, from, signal));
            }
            // Nothing but the signal, and so to nowhere.
            for offset in [0, 1 << 40, u64::MAX] {
                let nowhere = GlobalPtr::<u8>::new(there.peer(), offset);
                turn(0, &|from, signal| node.put_signal(nowhere, from, signal));
                turn(0, &|from, signal| node.put_signal_nb(nowhere, from.to_vec(), signal).wait().0);
                turn(0, &|from, signal| node.put_signal_nbi(nowhere, from, signal));
            }
            for (at, len) in (1..).zip(SIZES) {
                let from = vec![at as u8; len];
                node.put_signal(raw, &from, Signal::set(count.add(1), at)).expect("put with a signal");
                assert_eq!(node.wait_signal(counter.ptr(1), at), Ok(at));
                let mut found = vec![0; len];
                // SAFETY: the bytes stay until the job ends, and nobody writes them until the next barrier.
                let own =
                    unsafe { Remote::raw(node.rank(), private.as_mut_ptr().expose_provenance() as u64) };
                node.get_bytes(own, &mut found).expect("get");
                assert_eq!(found, from);
                node.barrier().expect("barrier");
            }
            node.quiet().expect("nothing failed");
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn a_signal_wakes_who_sleeps() {
    // Without polling, only the doorbell wakes in time.
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        job(
            2,
            |_| config().spin(spin),
            |node| {
                let bytes = node.heap().alloc_zeroed::<u8>(64).expect("room");
                let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
                let (there, count) = next_ranks(node, &bytes, &counter);
                node.barrier().expect("barrier");
                let begun = Instant::now();
                let rounds = 100;
                for round in 1..=rounds {
                    let signal = || node.put_signal(there, &[7_u8; 8], Signal::add(count, 1)).expect("put");
                    if node.rank() == 0 {
                        std::thread::sleep(Duration::from_millis(2));
                        signal();
                    }
                    node.wait_signal(counter.ptr(0), round).expect("a signal");
                    if node.rank() == 1 {
                        signal();
                    }
                }
                // A sleep that nothing ends takes 100 ms.
                let took = begun.elapsed();
                assert!(
                    took < Duration::from_secs(4),
                    "{took:?} for {rounds} round trips, each begun after 2 ms"
                );
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn counters_that_cannot_be_are_refused_and_waits_end() {
    job(
        2,
        |_| config(),
        |node| {
            let bytes = node.heap().alloc_zeroed::<u8>(64).expect("room");
            let counter = node.heap().alloc_zeroed::<u64>(2).expect("room");
            let (there, count) = next_ranks(node, &bytes, &counter);
            let (own, other) = (node.rank(), 1 - node.rank());
            let elsewhere = Err(Error::Elsewhere { peer: own, expected: other });
            assert_eq!(node.put_signal(there, &[1_u8], Signal::add(counter.ptr(0), 1)), elsewhere);
            assert_eq!(node.wait_signal(count, 1), Err(Error::Elsewhere { peer: other, expected: own }));
            let odd = GlobalPtr::new(other, count.offset() + 4);
            let unaligned = Err(Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 8 });
            assert_eq!(node.put_signal(there, &[1_u8], Signal::set(odd, 1)), unaligned);
            let beyond = node.wait_signal(GlobalPtr::<u64>::new(own, 1 << 40), 1);
            assert!(matches!(beyond, Err(Error::Fault { len: 8, .. })), "{beyond:?}");
            let late = Error::SignalTimeout {
                unmet: vec![UnmetSignal { offset: counter.ptr(0).offset(), until: Until::Ge(1), seen: 0 }],
            };
            let hurried = node.within(Duration::from_millis(20));
            assert_eq!(hurried.wait_signal(counter.ptr(0), 1), Err(late));
            assert_eq!(node.wait_signal(counter.ptr(0), 0), Ok(0), "that is so already");
            node.barrier().expect("barrier");
            assert_eq!(bytes.to_vec(), [0; 64]);
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn every_comparison_of_every_type_of_counter() {
    fn turn<T: SignalWord + std::fmt::Debug>(node: &Node, [less, here, more]: [T; 3]) {
        let array = node.heap().alloc_from(&[here]).expect("room");
        let word = array.ptr(0);
        let others = [less, more];
        let met = [
            Until::Eq(here),
            Until::Ne(less),
            Until::Ne(more),
            Until::Lt(more),
            Until::Le(here),
            Until::Le(more),
            Until::Gt(less),
            Until::Ge(less),
            Until::Ge(here),
            Until::from(here),
        ];
        for until in met {
            assert_eq!(node.wait_signal(word, until), Ok(here));
            assert_eq!(node.test_signal(word, until), Ok(Some(here)));
            assert_eq!(node.wait_any_signal(&[SignalWait::new(word, until)]), Ok(Some(0)));
        }
        let unmet = [
            Until::Eq(less),
            Until::Eq(more),
            Until::Ne(here),
            Until::Lt(here),
            Until::Lt(less),
            Until::Le(less),
            Until::Gt(here),
            Until::Gt(more),
            Until::Ge(more),
        ];
        let hurried = node.within(Duration::from_millis(1));
        for until in unmet {
            assert_eq!(node.test_signal(word, until), Ok(None));
            assert_eq!(node.test_signals(&[SignalWait::new(word, until)]), Ok(vec![]));
            let Err(Error::SignalTimeout { unmet }) = hurried.wait_signal(word, until) else {
                panic!("{until:?} of {here:?} is not so");
            };
            assert_eq!((unmet.len(), unmet[0].offset, unmet[0].seen), (1, word.offset(), here.into()));
            let wanted = format!("{:?}", unmet[0].until);
            assert!(
                others
                    .map(Into::into)
                    .iter()
                    .chain([&here.into()])
                    .any(|n: &i128| wanted.contains(&n.to_string()))
            );
        }
    }
    let node = alone(config());
    turn(&node, [1_u64, 1 << 63, u64::MAX]);
    turn(&node, [i64::MIN, -1, i64::MAX]);
    turn(&node, [0_u32, 1 << 31, u32::MAX]);
    turn(&node, [i32::MIN, -7, 0]);
}

#[test]
fn one_waits_for_any_some_and_all_of_many() {
    const EACH: u64 = 20;
    job(
        3,
        |_| config().spin(Duration::ZERO),
        |node| {
            let bytes = node.heap().alloc_zeroed::<u8>(64).expect("room");
            let counters = node.heap().alloc_zeroed::<u64>(3).expect("room");
            tell(node, "bytes", bytes.ptr(0).to_words());
            tell(node, "counters", counters.ptr(0).to_words());
            let (rank, size) = (node.rank(), node.size());
            let targets: Vec<(GlobalPtr<u8>, GlobalPtr<u64>)> = (0..size)
                .map(|to| {
                    let counters: GlobalPtr<u64> = GlobalPtr::from_words(ask(node, "counters", to));
                    (GlobalPtr::from_words(ask(node, "bytes", to)), counters.add(rank as usize))
                })
                .collect();
            let signal_all = || {
                for (at, counter) in &targets {
                    node.put_signal(*at, &[1_u8], Signal::add(*counter, 1)).expect("a signal");
                }
            };
            let waits = |value: u64| -> Vec<SignalWait> {
                (0..size).map(|from| SignalWait::new(counters.ptr(from as usize), value).by(from)).collect()
            };
            for round in 1..=EACH {
                signal_all();
                match round % 3 {
                    0 => node.wait_all_signals(&waits(round)).expect("all come"),
                    // Each is heard of once, whatever the order.
                    1 => {
                        let (mut waits, mut heard) = (waits(round), Vec::new());
                        while let Some(at) = node.wait_any_signal(&waits).expect("all come") {
                            heard.push(at);
                            waits[at].skip(true);
                        }
                        heard.sort_unstable();
                        assert_eq!(heard, [0, 1, 2]);
                    }
                    _ => {
                        let (mut waits, mut heard) = (waits(round), Vec::new());
                        loop {
                            let some = node.wait_some_signals(&waits).expect("all come");
                            if some.is_empty() {
                                break;
                            }
                            assert!(some.is_sorted());
                            some.iter().for_each(|at| waits[*at].skip(true));
                            heard.extend(some);
                        }
                        heard.sort_unstable();
                        assert_eq!(heard, [0, 1, 2]);
                    }
                }
                assert_eq!(counters.to_vec(), [round; 3], "nobody is ahead");
                node.barrier().expect("barrier");
            }
            assert_eq!(node.test_signals(&waits(EACH)), Ok(vec![0, 1, 2]));
            assert_eq!(node.test_signals(&waits(EACH + 1)), Ok(vec![]));
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn lists_that_hold_nothing_are_waited_for_no_longer_and_bad_ones_refused() {
    let node = alone(config());
    let counters = node.heap().alloc_from(&[3_u64, 4]).expect("room");
    let mut never = SignalWait::new(counters.ptr(0), 100);
    never.skip(true);
    for waits in [&[][..], &[never], &[never, never]] {
        assert_eq!(node.wait_any_signal(waits), Ok(None));
        assert_eq!(node.wait_some_signals(waits), Ok(vec![]));
        assert_eq!(node.wait_all_signals(waits), Ok(()));
        assert_eq!(node.test_signals(waits), Ok(vec![]));
    }
    let four = SignalWait::new(counters.ptr(1), Until::Eq(4));
    assert_eq!(node.wait_any_signal(&[never, four]), Ok(Some(1)), "places are as in the list");
    assert_eq!(node.wait_some_signals(&[four, never, four]), Ok(vec![0, 2]));
    assert_eq!(node.wait_all_signals(&[never, four]), Ok(()));
    never.skip(false);
    let hurried = node.within(Duration::from_millis(5));
    let unmet =
        |n: usize, seen| UnmetSignal { offset: counters.ptr(n).offset(), until: Until::Ge(100), seen };
    let late = |unmet| Error::SignalTimeout { unmet };
    assert_eq!(
        hurried.wait_all_signals(&[never, four]),
        Err(late(vec![unmet(0, 3)])),
        "only what is missing"
    );
    let both = [never, SignalWait::new(counters.ptr(1), 100)];
    assert_eq!(hurried.wait_any_signal(&both), Err(late(vec![unmet(0, 3), unmet(1, 4)])));
    assert_eq!(hurried.wait_some_signals(&both), Err(late(vec![unmet(0, 3), unmet(1, 4)])));
    assert!(late(vec![unmet(0, 3)]).is_timeout());

    let nobody = Error::NoSuchPeer { peer: 7, size: 1 };
    let odd = GlobalPtr::<u32>::new(0, 6);
    for (bad, error) in [
        (SignalWait::new(GlobalPtr::new(1, 8), 0), Error::Elsewhere { peer: 1, expected: 0 }),
        (SignalWait::new(GlobalPtr::new(0, 4), 0), Error::Unaligned { peer: 0, offset: 4, size: 8 }),
        (four.by(7), nobody.clone()),
    ] {
        assert_eq!(node.wait_any_signal(&[four, bad]), Err(error.clone()));
        assert_eq!(node.wait_some_signals(&[four, bad]), Err(error.clone()));
        assert_eq!(node.wait_all_signals(&[four, bad]), Err(error.clone()));
        assert_eq!(node.test_signals(&[four, bad]), Err(error));
    }
    assert_eq!(node.test_signal(odd, 0), Err(Error::Unaligned { peer: 0, offset: 6, size: 4 }));
    assert_eq!(node.wait_signal_from(7, counters.ptr(0), 0), Err(nobody));
    for offset in [1 << 40, u64::MAX - 7] {
        let beyond = node.test_signal(GlobalPtr::<u64>::new(0, offset), 0);
        assert!(matches!(beyond, Err(Error::Fault { len: 8, .. })), "{beyond:?}");
    }
}

#[test]
fn waits_for_several_end_once_their_senders_cannot_signal_any_more() {
    let broker = Broker::start(3).expect("a broker");
    let open = |rank| Node::open_in(config(), Some(&broker.env(rank))).expect("a node");
    let (zero, one, two) = (open(0), open(1), open(2));
    let counters = zero.heap().alloc_zeroed::<u64>(2).expect("room");
    let [a, b] = [0, 1].map(|n| SignalWait::new(counters.ptr(n), 1));
    two.fetch_add(counters.ptr(1), 0).expect("they meet");
    one.fetch_add(counters.ptr(0), 0).expect("they meet");
    drop(one);
    zero.wait_until(|| zero.is_lost(1)).expect("it has left");
    let hurried = zero.within(Duration::from_millis(20));
    let lost = |peer| Error::PeerLost { peer };
    // The other one may still signal; or anybody may.
    for waits in [[a.by(1), b.by(2)], [a.by(1), b]] {
        let late = hurried.wait_any_signal(&waits);
        assert!(matches!(late, Err(Error::SignalTimeout { .. })), "{late:?}");
        assert_eq!(zero.wait_all_signals(&waits), Err(lost(1)), "not all can come");
    }
    assert_eq!(zero.wait_any_signal(&[a.by(1)]), Err(lost(1)));
    two.fetch_add(counters.ptr(1), 1).expect("an atomic");
    assert_eq!(zero.wait_any_signal(&[a.by(1), b.by(2)]), Ok(Some(1)));
    let more = [a.by(1), SignalWait::new(counters.ptr(1), 2).by(2)];
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| (zero.wait_some_signals(&more), zero.wait_any_signal(&more)));
        std::thread::sleep(Duration::from_millis(30));
        drop(two);
        assert_eq!(waits.join().expect("no panic"), (Err(lost(1)), Err(lost(1))));
    });
    // What has come counts, whoever has gone.
    assert_eq!(zero.wait_all_signals(&[b.by(2)]), Ok(()));
    assert_eq!(zero.wait_some_signals(&[a.by(1), b.by(2)]), Ok(vec![1]));
}

#[test]
fn handlers_look_for_signals_and_do_not_wait() {
    let seen = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let configure = |_| {
        let seen = Arc::clone(&seen);
        config().progress(ProgressThread::Off).handler("look", move |call| {
            let (node, counter) =
                (call.node(), GlobalPtr::<i32>::from_words([call.args()[0], call.args()[1]]));
            let [met, unmet] = [Until::Lt(0), Until::Gt(0)].map(|until| SignalWait::new(counter, until));
            assert_eq!(node.test_signal(counter, Until::Lt(0)), Ok(Some(-5)));
            assert_eq!(node.test_signal(counter, Until::Gt(0)), Ok(None));
            assert_eq!(node.test_signals(&[unmet, met]), Ok(vec![1]));
            assert_eq!(node.wait_any_signal(&[unmet, met]), Ok(Some(1)));
            assert_eq!(node.wait_signal(counter, Until::Lt(0)), Ok(-5));
            let refused =
                |error: Option<Error>| assert!(matches!(error, Some(Error::InHandler { .. })), "{error:?}");
            refused(node.wait_signal(counter, Until::Gt(0)).err());
            refused(node.wait_any_signal(&[unmet]).err());
            refused(node.wait_some_signals(&[unmet]).err());
            refused(node.wait_all_signals(&[unmet, met]).err());
            seen.store(true, std::sync::atomic::Ordering::SeqCst);
        })
    };
    let node = alone(configure(0));
    let counter = node.heap().alloc_zeroed::<i32>(1).expect("room");
    node.update_nbi(counter.ptr(0), AtomicOp::Add, -5).expect("its own");
    let [rank, at] = counter.ptr(0).to_words();
    node.request(0, node.handler("look").expect("registered"), [rank, at, 0, 0]).expect("sent");
    node.wait_until(|| seen.load(std::sync::atomic::Ordering::SeqCst)).expect("it runs");
}

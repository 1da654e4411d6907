//! Active Messages.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{Error, GlobalPtr, Landed, MEDIUM_MAX, ProgressThread};

use super::*;

#[test]
fn requests_run_handlers_and_replies_come_back() {
    let count = Arc::new(AtomicU64::new(0));
    let configure = |_| {
        let count = Arc::clone(&count);
        config()
            .handler("ping", |call| {
                let pong = call.node().handler("pong").expect("registered below");
                let payload: Vec<u8> = call.payload().iter().rev().copied().collect();
                call.reply_medium(pong, call.args(), &payload).expect("reply");
                assert_eq!(call.reply(pong, [0; 4]), Err(Error::NoReplyDue));
                assert!(matches!(call.node().barrier(), Err(Error::InHandler { .. })));
            })
            .handler("pong", move |call| {
                assert_eq!(call.payload(), [3, 2, 1]);
                count.fetch_add(call.args()[0], Ordering::SeqCst);
            })
    };
    job(2, configure, |node| {
        let ping = node.handler("ping").expect("registered");
        for n in 1..=1000 {
            node.request_medium(right_of(node), ping, [n, 0, 0, 0], &[1, 2, 3]).expect("request");
        }
        node.wait_until(|| count.load(Ordering::SeqCst) == 1_001_000).expect("all replies of both ranks");
        node.barrier().expect("barrier");
    });
}

#[test]
fn long_messages_land_before_their_handler_runs() {
    const LEN: usize = 20_000;
    for way in WAYS {
        let seen = Mutex::new(Vec::new());
        let seen: Arc<Mutex<Vec<(u32, Landed, u64)>>> = Arc::new(seen);
        let configure = |rank| {
            let seen = Arc::clone(&seen);
            way.config().handler("landed", move |call| {
                let (landed, len) = call.landed().expect("a long message");
                assert!(call.payload().is_empty());
                if let Landed::Heap(at) = landed {
                    // Where the transport says that it is, it already lies.
                    let last = call.node().get(at.add((len - 1) as usize)).expect("its own heap");
                    assert_eq!(u64::from(last), call.args()[1]);
                }
                seen.lock().expect("no panic").push((rank, landed, len));
            })
        };
        job(2, configure, |node| {
            let heap = node.heap().alloc_zeroed::<u64>(LEN / 8).expect("room");
            let mut private = vec![0u8; LEN];
            let landed = node.handler("landed").expect("registered");
            let bytes = pattern(5, LEN);
            let last = u64::from(bytes[LEN - 1]);
            let there = exchange(node, heap.ptr(0));
            let their_private = exchange_private(node, &mut private);
            node.request_long(landed, [0, last, 0, 0], there, &bytes).expect("request");
            node.request_long(landed, [0, last, 0, 0], their_private, &bytes).expect("request");
            node.wait_until(|| seen.lock().expect("no panic").len() == 4).expect("all four");
            node.barrier().expect("barrier");
            assert!(bytemuck::cast_slice::<u64, u8>(&heap.to_vec()) == bytes);
            assert!(private == bytes, "{way:?}");
            let own = private.as_ptr().expose_provenance() as u64;
            let heap_start = GlobalPtr::new(node.rank(), heap.ptr(0).offset());
            let seen = seen.lock().expect("no panic");
            for landed in [Landed::Heap(heap_start), Landed::Private(own)] {
                assert!(seen.contains(&(node.rank(), landed, LEN as u64)), "{landed:?} in {seen:?}");
            }
        });
    }
}

#[test]
fn replies_can_be_long_too() {
    for way in WAYS {
        let answered = Arc::new(AtomicU64::new(0));
        let configure = |_| {
            let answered = Arc::clone(&answered);
            way.config()
                .handler("ask", |call| {
                    let answer = call.node().handler("answer").expect("registered below");
                    let [heap, private, ..] = call.args();
                    let to: Remote = if heap == 0 {
                        // SAFETY: the requester tells the address of bytes that it leaves alone until
                        // answered.
                        unsafe { Remote::raw(call.from(), private) }
                    } else {
                        GlobalPtr::<u8>::new(call.from(), heap).into()
                    };
                    call.reply_long(answer, [1; 4], to, &pattern(8, 12_000)).expect("reply");
                })
                .handler("answer", move |call| {
                    assert!(!call.is_request() && call.landed().is_some());
                    answered.fetch_add(1, Ordering::SeqCst);
                })
        };
        job(2, configure, |node| {
            let ask = node.handler("ask").expect("registered");
            let heap = node.heap().alloc_zeroed::<u8>(12_000).expect("room");
            let mut private = vec![0u8; 12_000];
            let addr = private.as_mut_ptr().expose_provenance() as u64;
            node.request(right_of(node), ask, [heap.ptr(0).offset(), 0, 0, 0]).expect("request");
            node.request(right_of(node), ask, [0, addr, 0, 0]).expect("request");
            node.wait_until(|| answered.load(Ordering::SeqCst) == 4).expect("all answers");
            node.barrier().expect("barrier");
            assert!(heap.to_vec() == pattern(8, 12_000) && private == pattern(8, 12_000), "{way:?}");
        });
    }
}

#[test]
fn a_reply_that_failed_leaves_room_for_another() {
    let answers = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answers);
    let node = alone(
        config()
            .handler("ask", |call| {
                let answer = call.node().handler("answer").expect("registered below");
                let nowhere = GlobalPtr::<u8>::new(call.from(), 1 << 46);
                let fault = call.reply_long(answer, [7; 4], nowhere, &[1]);
                assert!(matches!(fault, Err(Error::Fault { .. })), "{fault:?}");
                assert_eq!(call.reply(answer, [9; 4]), Ok(()));
                assert_eq!(call.reply_long(answer, [7; 4], nowhere, &[1]), Err(Error::NoReplyDue));
            })
            .handler("answer", move |call| {
                count.fetch_add(call.args()[0], Ordering::SeqCst);
            }),
    );
    node.request(0, node.handler("ask").expect("registered"), [0; 4]).expect("request");
    node.wait_until(|| answers.load(Ordering::SeqCst) == 9).expect("the answer");
}

#[test]
fn payloads_have_a_limit() {
    let node = alone(config().handler("note", |_| {}));
    let note = node.handler("note").expect("registered");
    assert_eq!(node.handler("nothing"), None);
    // A node is near to itself.
    let most = node.medium_max(0);
    assert_eq!(most, 64 << 10);
    let large = vec![0; most + 1];
    let length = Error::PayloadTooLong { given: most as u64 + 1, most: most as u64 };
    assert_eq!(node.request_medium(0, note, [0; 4], &large), Err(length));
    node.request_medium(0, note, [0; 4], &large[1..]).expect("just at the limit");
}

#[test]
fn a_node_requests_of_itself() {
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let node = alone(
        config()
            .handler("ask", |call| {
                let answer = call.node().handler("answer").expect("registered below");
                let payload = call.payload().to_vec();
                call.reply_medium(answer, call.args(), &payload).expect("reply");
            })
            .handler("answer", move |call| {
                assert_eq!((call.from(), call.payload().len() as u64), (0, call.args()[0]));
                count.fetch_add(1, Ordering::SeqCst);
            }),
    );
    let ask = node.handler("ask").expect("registered");
    for n in 0..500 {
        node.request_medium(0, ask, [n * 13, 0, 0, 0], &vec![1; n as usize * 13]).expect("request");
    }
    node.wait_until(|| heard.load(Ordering::SeqCst) == 500).expect("all answers");
}

#[test]
fn a_flood_in_both_directions_is_answered() {
    const EACH: u64 = 3000;
    for way in WAYS {
        let answers = Arc::new([const { AtomicU64::new(0) }; 3]);
        let configure = |rank: u32| {
            let answers = Arc::clone(&answers);
            way.config()
                .handler("ask", |call| {
                    let answer = call.node().handler("answer").expect("registered below");
                    let payload = call.payload().to_vec();
                    call.reply_medium(answer, call.args(), &payload).expect("reply");
                })
                .handler("answer", move |call| {
                    let [n, len, ..] = call.args();
                    assert_eq!(call.payload().len() as u64, len);
                    assert!(call.payload().iter().all(|byte| *byte == n as u8));
                    answers[rank as usize].fetch_add(1, Ordering::SeqCst);
                })
        };
        job(3, configure, |node| {
            let ask = node.handler("ask").expect("registered");
            for n in 0..EACH {
                for peer in 0..3 {
                    let len = n * 37 % (MEDIUM_MAX as u64 + 1);
                    let payload = vec![n as u8; if n % 4 == 0 { len as usize } else { 0 }];
                    let args = [n, payload.len() as u64, 0, 0];
                    node.request_medium(peer, ask, args, &payload).expect("request");
                }
            }
            let mine = &answers[node.rank() as usize];
            node.wait_until(|| mine.load(Ordering::SeqCst) == 3 * EACH).expect("all answers");
            node.barrier().expect("barrier");
        });
    }
}

#[test]
fn requests_of_one_peer_stay_in_order() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let configure = |rank| {
        let seen = Arc::clone(&seen);
        config().handler("note", move |call| {
            if rank == 0 {
                seen.lock().expect("no panic").push((call.from(), call.args()[0]));
            }
        })
    };
    job(3, configure, |node| {
        let note = node.handler("note").expect("registered");
        for n in 0..2000 {
            // All sizes: through the line that changes hands, and through the ring.
            node.request_medium(0, note, [n; 4], &vec![0; n as usize * 7 % 3000]).expect("request");
        }
        node.wait_until(|| node.rank() != 0 || seen.lock().expect("no panic").len() == 6000).expect("all");
        node.barrier().expect("barrier");
    });
    for peer in 0..3 {
        let seen = seen.lock().expect("no panic");
        let numbers = seen.iter().filter(|(from, _)| *from == peer).map(|(_, n)| *n);
        assert!(numbers.eq(0..2000), "requests of rank {peer} arrived out of order");
    }
}

/// A handler that panics when it is told to, and counts otherwise.
fn touchy(config: Config, count: &Arc<AtomicU64>) -> Config {
    let count = Arc::clone(count);
    config.handler("touchy", move |call| {
        assert!(call.args()[0] != 13, "it was told to");
        count.fetch_add(1, Ordering::SeqCst);
    })
}

#[test]
fn a_panicking_handler_ends_the_call_and_leaves_the_node_usable() {
    let count = Arc::new(AtomicU64::new(0));
    let node = alone(touchy(config(), &count));
    let touchy = node.handler("touchy").expect("registered");
    let array = node.heap().alloc_zeroed::<u64>(1).expect("room");
    for round in 1..=3 {
        node.request(0, touchy, [13, 0, 0, 0]).expect("request");
        let wait = std::panic::AssertUnwindSafe(|| node.wait_until(|| false));
        std::panic::catch_unwind(wait).expect_err("the handler's panic ends the wait");
        node.request(0, touchy, [0; 4]).expect("request");
        node.wait_until(|| count.load(Ordering::SeqCst) == round).expect("handlers run as before");
        node.put(array.ptr(0), round).expect("put");
        node.barrier().expect("what waits is refused in handlers only");
    }
}

#[test]
fn a_panicking_handler_does_not_end_the_progress_thread() {
    let count = Arc::new(AtomicU64::new(0));
    job(
        2,
        |_| touchy(config().progress(ProgressThread::On), &count),
        |node| {
            let touchy = node.handler("touchy").expect("registered");
            if node.rank() == 0 {
                for _ in 0..3 {
                    node.request(1, touchy, [13, 0, 0, 0]).expect("request");
                }
                node.request(1, touchy, [0; 4]).expect("request");
            }
            // No call of the library, so that only the progress thread can run handlers.
            let started = Instant::now();
            while count.load(Ordering::SeqCst) == 0 {
                assert!(started.elapsed() < LIMIT, "nobody runs handlers any more");
                std::thread::yield_now();
            }
        },
    );
}

#[test]
fn what_may_wait_is_refused_in_a_handler() {
    let refused = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&refused);
    let node = alone(Way::Message.config().handler("try", move |call| {
        let node = call.node();
        let again = node.handler("try").expect("this very handler");
        let mut bytes = [0; 8];
        let results = [
            node.request(0, again, [0; 4]),
            node.request_long(again, [0; 4], nowhere(0), &[1]),
            node.barrier(),
            node.wait_until(|| false),
            node.put_bytes(nowhere(0), &[1]),
            node.get_bytes(nowhere(0), &mut bytes),
            node.get_nb(nowhere(0), vec![0u8; 8]).wait_at_most(LIMIT).map(|_| ()),
        ];
        for (index, result) in results.into_iter().enumerate() {
            assert!(matches!(result, Err(Error::InHandler { .. })), "call {index}: {result:?}");
        }
        assert_eq!(node.wait_until(|| true), Ok(()), "this need not wait");
        let array = node.heap().alloc_from(&[5u64]).expect("room");
        assert_eq!((node.get(array.ptr(0)), node.fetch_add(array.ptr(0), 1)), (Ok(5), Ok(5)));
        count.fetch_add(1, Ordering::SeqCst);
    }));
    node.request(0, node.handler("try").expect("registered"), [0; 4]).expect("request");
    node.wait_until(|| refused.load(Ordering::SeqCst) == 1).expect("the handler has run");
    let late = node.quiet();
    assert!(matches!(late, Ok(()) | Err(Error::Fault { .. })), "the get that was dropped: {late:?}");
}

#[test]
fn a_handler_does_not_wait_for_a_first_contact() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let broker = Broker::start(2).expect("a broker");
    // Rank 1 never joins.
    let config = config().handler("reach", move |call| {
        let node = call.node();
        let started = Instant::now();
        let there = GlobalPtr::<u64>::new(1, 0);
        let results = [node.put(there, 1), node.fetch_add(there, 1).map(|_| ()), node.connect(1)];
        keep.lock().expect("no panic").push((results, started.elapsed()));
    });
    let node = Node::open_in(config.timeout(Duration::from_secs(3)), Some(&broker.env(0))).expect("a node");
    node.request(0, node.handler("reach").expect("registered"), [0; 4]).expect("request");
    node.wait_until(|| !seen.lock().expect("no panic").is_empty()).expect("the handler has run");
    let (results, took) = seen.lock().expect("no panic").pop().expect("one");
    for result in results {
        assert!(matches!(result, Err(Error::InHandler { .. })), "{result:?}");
    }
    assert!(took < Duration::from_secs(2), "the handler took {took:?}");
}

#[test]
fn a_progress_thread_serves_while_nobody_waits() {
    let count = Arc::new(AtomicU64::new(0));
    let configure = |_| touchy(Way::Message.config(), &count);
    // By message a node has such a thread by itself.
    job(2, configure, |node| {
        let mut mine = vec![3u8; 30_000];
        let theirs = exchange_private(node, &mut mine);
        if node.rank() == 0 {
            let mut got = vec![0; 30_000];
            node.get_bytes(theirs, &mut got).expect("get");
            assert!(got.iter().all(|byte| *byte == 3));
            node.request(1, node.handler("touchy").expect("registered"), [0; 4]).expect("request");
        }
        let started = Instant::now();
        while count.load(Ordering::SeqCst) == 0 {
            assert!(started.elapsed() < LIMIT, "nobody serves");
            std::thread::sleep(Duration::from_millis(1));
        }
        node.barrier().expect("barrier");
    });
}

#[test]
fn a_wait_ends_in_time_though_its_handlers_take_long() {
    // No more than find room over any transport while nobody takes them.
    const MESSAGES: u64 = 12;
    let (ran, all_sent) = (Arc::new(AtomicU64::new(0)), Barrier::new(2));
    let configure = |_| {
        let ran = Arc::clone(&ran);
        config().progress(ProgressThread::Off).handler("slow", move |_| {
            std::thread::sleep(Duration::from_millis(20));
            ran.fetch_add(1, Ordering::SeqCst);
        })
    };
    job(2, configure, |node| {
        let slow = node.handler("slow").expect("registered");
        node.barrier().expect("barrier");
        if node.rank() == 0 {
            (0..MESSAGES).for_each(|_| node.request(1, slow, [0; 4]).expect("request"));
            all_sent.wait();
        } else {
            all_sent.wait();
            // Some may have run before it left the barrier.
            let before = ran.load(Ordering::SeqCst);
            let waited = node.within(Duration::from_millis(50)).wait_until(|| false);
            assert!(waited.as_ref().is_err_and(Error::is_timeout), "{waited:?}");
            // After four of them more than the time is over; a few other messages may have come.
            let handled = ran.load(Ordering::SeqCst) - before;
            assert!(
                handled <= 8 && before + handled > 0,
                "{handled} handlers of 20 ms ran in a wait of 50 ms"
            );
            node.wait_until(|| ran.load(Ordering::SeqCst) == MESSAGES).expect("the others");
        }
        node.barrier().expect("barrier");
    });
}

/// Nobody but closing has to make progress there.
#[test]
fn what_came_before_a_barrier_is_handled_before_the_node_closes() {
    if skipped_over_the_network() {
        return;
    }
    for progress in [ProgressThread::Off, ProgressThread::Auto] {
        let count = Arc::new(AtomicU64::new(0));
        let configure = |_| {
            let count = Arc::clone(&count);
            config().progress(progress).handler("count", move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            })
        };
        job(2, configure, |node| {
            if node.rank() == 0 {
                let counts = node.handler("count").expect("registered");
                (0..10).for_each(|_| node.request(1, counts, [0; 4]).expect("request"));
            }
            node.barrier().expect("barrier");
            if node.rank() == 1 {
                assert_eq!(node.clone().close(Duration::from_secs(10)), Ok(()));
                assert_eq!(count.load(Ordering::SeqCst), 10, "{progress:?}");
            }
        });
    }
}

//! Queues of completions: each operation comes out once, by whichever way it is taken, and the descriptor
//! says when there is something.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use standpipe::{AtomicOp, Completion, Completions, Error, Permit, ProgressThread};

use super::*;
use crate::events::block_on;

const OPERATIONS: u64 = 200;
const LEN: usize = 3000;

/// Whether the descriptor can be read within that time.
fn can_be_read(queue: &impl AsFd, within: Duration) -> bool {
    let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    loop {
        match poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&within)) {
            Ok(ready) => return ready == 1,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A place, as soon as there is one.
fn reserve(queue: &Completions<Vec<u8>>) -> Permit<'_, Vec<u8>> {
    let started = Instant::now();
    loop {
        match queue.reserve() {
            Ok(place) => return place,
            Err(error) => assert!(started.elapsed() < LIMIT, "{error}"),
        }
        std::thread::yield_now();
    }
}

/// How completions are taken.
#[derive(Clone, Copy, Debug)]
enum How {
    Take,
    WaitAny,
    WaitSome,
    Await,
    Descriptor,
}

const HOWS: [How; 5] = [How::Take, How::WaitAny, How::WaitSome, How::Await, How::Descriptor];

/// Takes at least one.
fn next(queue: &Completions<Vec<u8>>, how: How, into: &mut Vec<Completion<Vec<u8>>>) {
    match how {
        How::Take => {
            let started = Instant::now();
            while queue.take_some(7, into).expect("no failure") == 0 {
                assert!(started.elapsed() < LIMIT);
            }
        }
        How::WaitAny => into.extend(queue.wait_any().expect("in time")),
        How::WaitSome => assert!(queue.wait_some(5, into).expect("in time") > 0),
        How::Await => into.extend(block_on(queue.next()).expect("no failure")),
        How::Descriptor => {
            assert!(can_be_read(queue, LIMIT), "nothing has ended");
            into.extend(queue.take().expect("no failure"));
            assert!(!into.is_empty(), "it can be read only while something is there");
        }
    }
}

#[test]
fn each_operation_comes_out_once_with_its_token_and_buffer() {
    for way in WAYS {
        for how in HOWS {
            let configure = |_| way.config().progress(ProgressThread::On);
            job(2, configure, |node| {
                let mut mine = pattern(u64::from(node.rank()), OPERATIONS as usize * LEN);
                let theirs = exchange_private(node, &mut mine);
                node.barrier().expect("barrier");
                let expected = pattern(u64::from(right_of(node)), OPERATIONS as usize * LEN);
                let queue = node.completions(32).expect("a descriptor");
                let (mut started, mut seen, mut taken) = (0, BTreeSet::new(), Vec::new());
                while seen.len() < OPERATIONS as usize {
                    while started < OPERATIONS
                        && let Ok(place) = queue.reserve()
                    {
                        let from = theirs.plus(started * LEN as u64);
                        place.get(started, from, vec![0; LEN]);
                        started += 1;
                    }
                    next(&queue, how, &mut taken);
                    for done in taken.drain(..) {
                        assert_eq!((done.result, done.peer), (Ok(()), right_of(node)), "{way:?} {how:?}");
                        let at = done.token as usize * LEN;
                        assert!(done.buffer == expected[at..at + LEN], "{way:?} {how:?}");
                        assert!(seen.insert(done.token), "{} came out twice", done.token);
                    }
                }
                assert!(queue.is_empty() && queue.take().expect("no failure").is_none());
                assert!(queue.wait_any().expect("at once").is_none());
                assert!(block_on(queue.next()).expect("at once").is_none());
                assert!(!can_be_read(&queue, Duration::ZERO));
                node.barrier().expect("barrier");
            });
        }
    }
}

/// Where no thread of the library makes progress, the descriptor can be read when there is some to make.
#[test]
fn a_descriptor_wakes_who_makes_progress_itself() {
    let configure = |_| Way::Message.config().progress(ProgressThread::Off);
    job(2, configure, |node| {
        let mut mine = vec![node.rank() as u8; LEN];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        let queue = node.completions(8).expect("a descriptor");
        queue.as_fd();
        for token in 0..8 {
            queue.reserve().expect("room").start(token, node.get_nb(theirs, vec![9; LEN]));
        }
        let started = Instant::now();
        while !queue.is_empty() {
            if !can_be_read(&queue, LIMIT) {
                panic!("{} are under way, and the descriptor has not been readable", queue.len());
            }
            while let Some(done) = queue.take().expect("no failure") {
                assert_eq!(done.result, Ok(()));
                assert!(done.buffer.iter().all(|byte| *byte == right_of(node) as u8));
            }
            assert!(started.elapsed() < LIMIT);
        }
        node.barrier().expect("barrier");
    });
}

#[test]
fn a_full_queue_starts_nothing_until_something_is_taken() {
    job(
        1,
        |_| config(),
        |node| {
            let words = node.heap().alloc_zeroed::<u64>(1).expect("room");
            let queue = node.completions(2).expect("a descriptor");
            for token in 0..2 {
                let event = node.update_nb(words.ptr(0), AtomicOp::Add, 1);
                queue.reserve().expect("room").start(token, event);
            }
            assert_eq!(queue.reserve().err(), Some(Error::QueueFull { capacity: 2 }));
            assert_eq!((words.read(0), queue.len(), queue.capacity()), (2, 2, 2));
            assert_eq!(queue.take().expect("no failure").map(|done| done.token), Some(0));
            drop(queue.reserve().expect("a place that is given back"));
            let kept = queue.reserve().expect("room");
            assert!(queue.reserve().is_err(), "a place that is kept is nobody else's");
            kept.start(7, node.update_nb(words.ptr(0), AtomicOp::Add, 1));
            let tokens: Vec<u64> =
                std::iter::from_fn(|| queue.take().expect("no failure")).map(|done| done.token).collect();
            assert_eq!(tokens, [1, 7]);
            let none = node.completions::<()>(0).expect("a descriptor");
            assert_eq!(none.reserve().err(), Some(Error::QueueFull { capacity: 0 }));
        },
    );
}

#[test]
fn cancelled_operations_come_out_with_their_buffers() {
    if skipped_over_the_network() {
        return;
    }
    let configure = |_| Way::Message.config().progress(ProgressThread::Off);
    job(2, configure, |node| {
        let mut mine = vec![5u8; LEN];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        if node.rank() == 0 {
            // Rank 1 makes no progress for now.
            let queue = node.completions(8).expect("a descriptor");
            for token in [1, 2, 1, 3] {
                queue.reserve().expect("room").start(token, node.get_nb(theirs, vec![0u8; LEN]));
            }
            assert!(!can_be_read(&queue, Duration::ZERO));
            assert_eq!((queue.cancel(9), queue.cancel(1)), (0, 2));
            assert!(can_be_read(&queue, Duration::ZERO));
            for _ in 0..2 {
                let done = queue.take().expect("no failure").expect("it was cancelled");
                assert_eq!((done.token, done.result), (1, Err(Error::Cancelled { peer: 1 })));
                assert_eq!(done.buffer.len(), LEN);
            }
            assert!(queue.wait_at_most(Duration::from_millis(20)).expect("no failure").is_none());
            assert_eq!((queue.cancel_all(), queue.cancel_all(), queue.len()), (2, 0, 2));
            let late =
                node.within(Duration::from_millis(20)).completions::<Vec<u8>>(1).expect("a descriptor");
            late.reserve().expect("room").start(4, node.get_nb(theirs, vec![0u8; LEN]));
            let refused = late.wait_any().err();
            assert_eq!(refused, Some(Error::WaitTimeout { waited_for: "a completion" }));
            node.directory().publish("go on", &[]).expect("published");
            let done = late.wait_at_most(LIMIT).expect("no failure").expect("in time");
            assert_eq!((done.token, done.result), (4, Ok(())));
        } else {
            await_idly(node, "go on");
        }
        node.barrier().expect("barrier");
    });
}

/// Some threads start, others take.
#[test]
fn many_threads_share_a_queue() {
    const STARTERS: u64 = 3;
    for way in WAYS {
        let configure = |_| way.config().progress(ProgressThread::On);
        job(2, configure, |node| {
            let mut mine = vec![3u8; 64];
            let theirs = exchange_private(node, &mut mine);
            node.barrier().expect("barrier");
            let queue = node.completions(16).expect("a descriptor");
            let (seen, over) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for starter in 0..STARTERS {
                    let queue = &queue;
                    scope.spawn(move || {
                        for token in 0..OPERATIONS {
                            let place = reserve(queue);
                            place.start(starter * OPERATIONS + token, node.get_nb(theirs, vec![0u8; 64]));
                        }
                    });
                }
                for taker in 0..2 {
                    let (queue, seen, over) = (&queue, &seen, &over);
                    scope.spawn(move || {
                        let started = Instant::now();
                        while !over.load(Ordering::SeqCst) {
                            assert!(started.elapsed() < LIMIT, "some do not come out");
                            let done = match taker {
                                0 => queue.wait_at_most(Duration::from_millis(50)),
                                _ => queue.take(),
                            };
                            let Some(done) = done.expect("no failure") else { continue };
                            assert_eq!((done.result, &done.buffer[..]), (Ok(()), &[3u8; 64][..]));
                            let mut seen = seen.lock().expect("no panic");
                            assert!(seen.insert(done.token));
                            over.store(seen.len() as u64 == STARTERS * OPERATIONS, Ordering::SeqCst);
                        }
                    });
                }
            });
            assert!(queue.is_empty());
            node.barrier().expect("barrier");
        });
    }
}

/// Whoever sleeps takes what another thread has started, which ended at once, without any progress.
#[test]
fn what_ends_at_once_comes_to_who_sleeps() {
    job(
        1,
        |_| config(),
        |node| {
            let words = node.heap().alloc_zeroed::<u64>(1).expect("room");
            let queue = &node.completions(2).expect("a descriptor");
            // Without it the queue would be empty, and nobody would wait.
            let kept = queue.reserve().expect("room");
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| queue.wait_any().expect("in time").map(|done| done.token));
                std::thread::sleep(Duration::from_millis(20));
                queue.reserve().expect("room").start(1, node.update_nb(words.ptr(0), AtomicOp::Add, 1));
                assert_eq!(waiting.join().expect("no panic"), Some(1));
            });
            drop(kept);
        },
    );
}

#[test]
fn a_queue_that_is_dropped_leaves_its_operations_to_quiet() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = vec![0u8; LEN];
                let theirs = exchange_private(node, &mut mine);
                let queue = node.completions(4).expect("a descriptor");
                queue.reserve().expect("room").put(0, theirs, vec![8u8; LEN]);
                queue.reserve().expect("room").start(1, node.put_nb(nowhere(right_of(node)), vec![8u8; 8]));
                drop(queue);
                assert!(matches!(node.quiet(), Err(Error::Fault { .. })), "{way:?}");
                node.barrier().expect("barrier");
                assert!(mine.iter().all(|byte| *byte == 8), "{way:?}");
                node.barrier().expect("barrier");
            },
        );
    }
}

/// An event that a task has awaited without success goes on in a queue.
#[test]
fn an_awaited_event_moves_into_a_queue() {
    let configure = |_| Way::Message.config().progress(ProgressThread::On);
    job(2, configure, |node| {
        let mut mine = vec![6u8; LEN];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        let queue = node.completions(64).expect("a descriptor");
        for token in 0..64 {
            let mut event = node.get_nb(theirs, vec![0u8; LEN]);
            let polled = std::future::Future::poll(
                std::pin::Pin::new(&mut event),
                &mut std::task::Context::from_waker(std::task::Waker::noop()),
            );
            match polled {
                std::task::Poll::Ready((result, _)) => assert_eq!(result, Ok(())),
                std::task::Poll::Pending => queue.reserve().expect("room").start(token, event),
            }
        }
        while let Some(done) = queue.wait_any().expect("in time") {
            assert!(done.result == Ok(()) && done.buffer.iter().all(|byte| *byte == 6));
        }
        node.barrier().expect("barrier");
    });
}

/// Tasks that await one queue: each end wakes one, and all go when nothing is to come.
#[test]
fn many_tasks_await_one_queue() {
    let configure = |_| Way::Message.config().progress(ProgressThread::On);
    job(2, configure, |node| {
        let mut mine = vec![6u8; 64];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        let queue: &Completions<Vec<u8>> = &node.completions(16).expect("a descriptor");
        let kept = queue.reserve().expect("room");
        std::thread::scope(|scope| {
            let tasks: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        let mut taken = 0;
                        while let Some(done) = block_on(queue.next()).expect("no failure") {
                            assert_eq!((done.result, &done.buffer[..]), (Ok(()), &[6u8; 64][..]));
                            taken += 1;
                        }
                        taken
                    })
                })
                .collect();
            for token in 0..OPERATIONS {
                let place = reserve(queue);
                place.get(token, theirs, vec![0u8; 64]);
            }
            // What they wait for now is this place alone.
            drop(kept);
            let taken: u64 = tasks.into_iter().map(|task| task.join().expect("no panic")).sum();
            assert_eq!(taken, OPERATIONS);
        });
        node.barrier().expect("barrier");
    });
}

/// Closing the node ends what is under way, whoever waits for it, and how.
#[test]
fn a_closed_node_gives_its_operations_back() {
    for how in [How::Take, How::WaitAny, How::WaitSome, How::Await, How::Descriptor] {
        let configure = || Config::new().heap_bytes(1 << 20).handler("h", |_| {});
        let configure = || configure().progress(ProgressThread::Off);
        let (node, owner) =
            (Node::open(configure()).expect("opened"), Node::open(configure()).expect("opened"));
        let address = owner.address().expect("it listens");
        let peer = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| node.connect_to(&address));
            while !connecting.is_finished() {
                owner.progress();
            }
            connecting.join().expect("no panic").expect("connected")
        });
        let words = [7u8; 64];
        // SAFETY: the words live to the end of the test, and are only read.
        let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
        // Its owner makes no progress, and does not expose it.
        let queue = node.completions(8).expect("a descriptor");
        for token in 0..8 {
            queue.reserve().expect("room").get(token, there, vec![0u8; 64]);
        }
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                let _ = node.clone().close(Duration::from_millis(20));
            });
            let started = Instant::now();
            while taken.len() < 8 && started.elapsed() < LIMIT {
                match how {
                    How::Descriptor => {
                        can_be_read(&queue, LIMIT);
                        taken.extend(queue.take().expect("no failure"));
                    }
                    how => next(&queue, how, &mut taken),
                }
            }
        });
        assert_eq!(taken.len(), 8, "{how:?}");
        for done in taken {
            assert!(matches!(done.result, Err(Error::Closed { .. })), "{how:?}: {:?}", done.result);
        }
        assert!(queue.is_empty() && queue.take().expect("no failure").is_none());
        let place = queue.reserve().expect("room");
        place.get(9, there, vec![0u8; 64]);
        let refused = queue.take().expect("no failure").expect("it is told");
        assert!(matches!(refused.result, Err(Error::Closed { .. })));
    }
}

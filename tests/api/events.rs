//! Events: testing, waiting, awaiting, dropping and forgetting.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use standpipe::{Error, Event, ProgressThread};

use super::*;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, which sleeps in between.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let started = Instant::now();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                std::thread::park_timeout(LIMIT);
                assert!(started.elapsed() < LIMIT, "the task was not woken");
            }
        }
    }
}

#[test]
fn events_are_awaited() {
    for way in WAYS {
        let configure = |_| way.config().progress(ProgressThread::On);
        job(2, configure, |node| {
            let mut mine = vec![0u8; 60_000];
            let theirs = exchange_private(node, &mut mine);
            let bytes = pattern(6, 30_000);
            let (put, got) = block_on(async {
                let (result, buffer) = node.put_nb(theirs, bytes.clone()).await;
                assert!(buffer == bytes);
                let first = node.get_nb(theirs, vec![0u8; 30_000]);
                let second = node.get_nb(theirs.plus(30_000), vec![1u8; 30_000]);
                let (second, first) = (second.await, first.await);
                assert!(second.0.is_ok() && second.1.iter().all(|byte| *byte == 0));
                (result, first)
            });
            assert_eq!((put, got.0), (Ok(()), Ok(())), "{way:?}");
            assert!(got.1 == bytes, "{way:?}");
            let failed = block_on(node.get_nb(nowhere(right_of(node)), vec![0u8; 8]));
            assert!(matches!(failed.0, Err(Error::Fault { .. })));
            node.barrier().expect("barrier");
        });
    }
}

#[test]
fn events_are_tested_without_waiting() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = vec![4u8; 40_000];
                let theirs = exchange_private(node, &mut mine);
                let mut event = node.get_nb(theirs, vec![0u8; 40_000]);
                assert_eq!(event.peer(), right_of(node));
                let started = Instant::now();
                while !event.is_complete() {
                    assert!(started.elapsed() < LIMIT);
                }
                assert!(event.is_complete(), "it stays so");
                let (result, got) = event.wait();
                assert!(result.is_ok() && got.iter().all(|byte| *byte == 4), "{way:?}");
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn a_wait_for_a_time_ends_and_the_operation_goes_on() {
    if skipped_over_the_network() {
        return;
    }
    let configure = |_| Way::Message.config().progress(ProgressThread::Off);
    job(2, configure, |node| {
        let mut mine = vec![5u8; 40_000];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        if node.rank() == 0 {
            // Rank 1 makes no progress for now.
            let mut event = node.get_nb(theirs, vec![0u8; 40_000]);
            assert_eq!(event.wait_at_most(Duration::from_millis(30)), Ok(false));
            assert_eq!(
                node.within(Duration::from_millis(5)).quiet(),
                Err(Error::Timeout { peer: 1, unattended: true })
            );
            let early: Event<Vec<u8>> = node.put_nb(theirs, vec![5u8; 100]);
            let (buffer, rest) = early.wait_local();
            assert_eq!(buffer, [5; 100], "the bytes have left");
            node.directory().publish("go on", &[]).expect("published");
            assert_eq!(event.wait_at_most(LIMIT), Ok(true));
            let (result, got) = event.wait();
            assert!(result.is_ok() && got.iter().all(|byte| *byte == 5));
            assert_eq!(rest.wait().0, Ok(()));
        } else {
            await_idly(node, "go on");
        }
        node.barrier().expect("barrier");
    });
}

/// A task that is polled by whoever wakes it, at once; by who is at it already, if it is woken meanwhile.
struct Inline<F> {
    task: Mutex<Option<Pin<Box<F>>>>,
    woken: AtomicBool,
}

impl<F: Future<Output = ()> + Send + 'static> Wake for Inline<F> {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        while self.woken.load(Ordering::SeqCst) {
            let Ok(mut task) = self.task.try_lock() else { return };
            self.woken.store(false, Ordering::SeqCst);
            let waker = Arc::clone(&self).into();
            let over = task.as_mut().map(|task| task.as_mut().poll(&mut Context::from_waker(&waker)));
            if over == Some(Poll::Ready(())) {
                *task = None;
            }
        }
    }
}

#[test]
fn a_task_may_be_polled_by_whoever_wakes_it() {
    if skipped_over_the_network() {
        return;
    }
    let arrived = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&arrived);
    let configure = move |_| {
        let arrived = Arc::clone(&arrived);
        let count = move |_: &mut standpipe::Call<'_>| _ = arrived.fetch_add(1, Ordering::SeqCst);
        Way::Message.config().progress(ProgressThread::Off).handler("count", count)
    };
    job(2, configure, move |node| {
        let mut mine = vec![5u8; 40_000];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        if node.rank() == 0 {
            let got = Arc::new(Mutex::new(Vec::new()));
            let (event, into) = (node.get_nb(theirs, vec![0u8; 40_000]), Arc::clone(&got));
            let task = async move {
                let (result, buffer) = event.await;
                assert_eq!(result, Ok(()));
                *into.lock().expect("no panic") = buffer;
            };
            Arc::new(Inline { task: Mutex::new(Some(Box::pin(task))), woken: AtomicBool::new(false) }).wake();
            // Messages come and wake the task while there is nothing for it, as rank 1 serves nobody yet.
            node.directory().publish("send", &[]).expect("published");
            node.wait_until(|| counts.load(Ordering::SeqCst) == 3).expect("they come");
            assert!(got.lock().expect("no panic").is_empty());
            node.directory().publish("go on", &[]).expect("published");
            node.wait_until(|| !got.lock().expect("no panic").is_empty()).expect("it ends");
            assert!(got.lock().expect("no panic").iter().all(|byte| *byte == 5));
        } else {
            await_idly(node, "send");
            for _ in 0..3 {
                node.request(0, node.handler("count").expect("registered"), [0; 4]).expect("request");
            }
            await_idly(node, "go on");
        }
        node.barrier().expect("barrier");
    });
}

#[test]
fn dropped_events_go_on_and_their_failure_is_told() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = vec![0u8; 200_000];
                let theirs = exchange_private(node, &mut mine);
                for part in 0..20 {
                    drop(node.put_nb(theirs.plus(part * 10_000), pattern(part, 10_000)));
                    drop(node.get_nb(theirs, vec![0u8; 10_000]));
                }
                node.quiet().expect("all went well");
                drop(node.put_nb(nowhere(right_of(node)), vec![1u8; 10]));
                let failed = node.quiet();
                assert!(
                    matches!(failed, Err(Error::Fault { addr: 4096, len: 10, .. })),
                    "{way:?}: {failed:?}"
                );
                assert_eq!(node.quiet(), Ok(()));
                node.barrier().expect("barrier");
                for part in 0..20 {
                    let at = part as usize * 10_000;
                    assert!(mine[at..at + 10_000] == pattern(part, 10_000), "{way:?}: part {part}");
                }
            },
        );
    }
}

#[test]
fn forgotten_events_harm_nothing() {
    for way in WAYS {
        job(
            2,
            |_| way.config(),
            |node| {
                let mut mine = vec![0u8; 10_000];
                let theirs = exchange_private(node, &mut mine);
                std::mem::forget(node.put_nb(theirs, pattern(1, 10_000)));
                std::mem::forget(node.get_nb(theirs, vec![0u8; 10_000]));
                node.quiet().expect("they go on");
                node.barrier().expect("barrier");
                assert!(mine == pattern(1, 10_000), "{way:?}");
            },
        );
    }
}

#[test]
fn empty_buffers_are_buffers() {
    let node = alone(config());
    let array = node.heap().alloc_from(&[1u64]).expect("room");
    assert_eq!(node.put_nb(array.ptr(0), ()).wait(), (Ok(()), ()));
    assert_eq!(node.put_nb(array.ptr(0), vec![[7u32; 2]]).wait().0, Ok(()));
    assert_eq!(array.read(0), 7 << 32 | 7);
}

#[test]
fn an_event_shows_all_but_its_buffer() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u64>(1).expect("room");
    let event = node.put_nb(array.ptr(0), vec![0x5eed_5eed_5eed_u64]);
    let shown = format!("{event:?}");
    assert!(shown.contains("peer: 0") && !shown.contains(&0x5eed_5eed_5eed_u64.to_string()), "{shown}");
}

#[test]
fn a_cancelled_operation_gives_its_buffer_back_at_once() {
    // The owner makes no progress but when it says so.
    job(
        2,
        |_| Way::Message.config().progress(ProgressThread::Off),
        |node| {
            let mut mine = vec![7u8; 60_000];
            let theirs = exchange_private(node, &mut mine);
            let mut event = node.get_nb(theirs, vec![1u8; 30_000]);
            if node.rank() == 0 {
                assert!(!event.is_locally_complete(), "the other waits at a barrier of its own making");
                let (result, buffer) = event.cancel();
                assert_eq!(result, Err(Error::Cancelled { peer: right_of(node) }));
                let seen = buffer.clone();
                node.barrier().expect("barrier");
                assert!(buffer == seen, "it is touched no more");
                let (result, buffer) = node.get_nb(theirs, vec![1u8; 3]).wait();
                assert_eq!((result, buffer), (Ok(()), vec![7; 3]));
            } else {
                std::thread::sleep(std::time::Duration::from_millis(50));
                event.wait().0.expect("the other serves it in its barrier");
                node.barrier().expect("barrier");
            }
            node.barrier().expect("both are done");
            let (ended, _) = node.put_nb(heap_word(node), vec![1_u64]).cancel();
            assert_eq!(ended, Ok(()), "it had ended");
        },
    );
}

/// A word of this rank's own heap.
fn heap_word(node: &Node) -> standpipe::GlobalPtr<u64> {
    standpipe::GlobalPtr::new(node.rank(), node.heap().alloc_zeroed::<u64>(1).expect("room").ptr(0).offset())
}

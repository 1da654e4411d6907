//! Many threads on each node.

use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{GetPiece, GlobalPtr, PutPiece};

use super::*;

const THREADS: u64 = 8;
const ROUNDS: u64 = 60;
/// Bytes that belong to one thread, twice: once for what it waits for, once for what it does not.
const ROOM: usize = 20_000;

/// Everything at once, on memory that only this thread uses.
fn work(node: &Node, thread: u64, heap: GlobalPtr<u64>, private: Remote, counter: GlobalPtr<u64>) {
    let mine: Remote = heap.add((thread * ROOM as u64 / 8) as usize).into();
    let other = private.plus(thread * 2 * ROOM as u64);
    let unwatched = other.plus(ROOM as u64);
    let add = node.handler("add").expect("registered");
    for round in 0..ROUNDS {
        let seed = thread * 1000 + round;
        let len = (seed * 7919) as usize % ROOM;
        let bytes = pattern(seed, len);
        node.put_bytes(mine, &bytes).expect("put");
        node.put_list(&[PutPiece { to: other, from: &bytes }]).expect("put");
        let mut back = vec![0; len];
        node.get_list(&mut [GetPiece { from: mine, into: &mut back }]).expect("get");
        assert!(back == bytes, "thread {thread}, round {round}: heap");
        let (result, back) = node.get_nb(other, back).wait();
        assert!(result.is_ok() && back == bytes, "thread {thread}, round {round}: private");
        drop(node.put_nb(unwatched, bytes));
        node.fetch_add(counter, 1).expect("fetch-add");
        node.request_medium(right_of(node), add, [1, 0, 0, 0], &back[..len.min(500)]).expect("request");
        if round % 16 == 0 {
            node.quiet().expect("all put");
            let name = format!("{thread} of {}", node.rank());
            node.directory().publish(&name, &seed.to_le_bytes()).expect("published");
            assert_eq!(node.directory().lookup(&name), Ok(Some(seed.to_le_bytes().to_vec())));
            drop(node.heap().alloc_from(&[seed; 300]).expect("room"));
        }
    }
}

#[test]
fn eight_threads_do_everything_at_once() {
    for way in WAYS {
        let handled = Arc::new([const { AtomicU64::new(0) }; 2]);
        let configure = |rank: u32| {
            let handled = Arc::clone(&handled);
            way.config().handler("add", move |call| {
                handled[rank as usize].fetch_add(call.args()[0], Ordering::SeqCst);
            })
        };
        job(2, configure, |node| {
            let heap = node.heap().alloc_zeroed::<u64>(THREADS as usize * ROOM / 8).expect("room");
            let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
            let mut private = vec![0u8; THREADS as usize * 2 * ROOM];
            let there = exchange(node, heap.ptr(0));
            let their_private = exchange_private(node, &mut private);
            tell(node, "counter", counter.ptr(0).to_words());
            let counting = GlobalPtr::from_words(ask(node, "counter", 0));
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let node = node.clone();
                    scope.spawn(move || work(&node, thread, there, their_private, counting));
                }
            });
            let mine = &handled[node.rank() as usize];
            node.wait_until(|| mine.load(Ordering::SeqCst) == THREADS * ROUNDS).expect("all requests");
            node.barrier().expect("barrier");
            if node.rank() == 0 {
                assert_eq!(counter.read(0), 2 * THREADS * ROUNDS, "{way:?}");
            }
        });
    }
}

#[test]
fn a_change_by_another_thread_is_seen_when_woken() {
    let node = alone(config());
    let flag = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| node.wait_until(|| flag.load(Ordering::SeqCst) == 1));
        std::thread::sleep(Duration::from_millis(20));
        flag.store(1, Ordering::SeqCst);
        node.wake();
        assert_eq!(waiting.join().expect("no panic"), Ok(()));
    });
}

//! The public API within one process: whole jobs of several nodes, each on threads of this test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use standpipe::bootstrap::Broker;
use standpipe::{Config, Error, GlobalPtr, Mechanism, Node, Operation, Remote, Why};

const LIMIT: Duration = Duration::from_secs(20);

fn config() -> Config {
    Config::new().heap_bytes(8 << 20).timeout(LIMIT)
}

/// Runs `body` at every rank of a job of `size`, one thread each.
fn job(size: u32, config: impl Fn(u32) -> Config + Sync, body: impl Fn(Node) + Sync) {
    let broker = Broker::start(size).expect("a broker");
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (env, config, body) = (broker.env(rank), &config, &body);
            scope.spawn(move || body(Node::open_in(config(rank), Some(&env)).expect("a node")));
        }
    });
}

fn right_of(node: &Node) -> u32 {
    (node.rank() + 1) % node.size()
}

fn exchange(node: &Node, words: [u64; 2]) -> GlobalPtr<u64> {
    node.directory()
        .publish(&format!("array {}", node.rank()), bytemuck::bytes_of(&words))
        .expect("published");
    let name = format!("array {}", right_of(node));
    let bytes = node.directory().wait(&name, LIMIT).expect("the neighbour publishes too");
    GlobalPtr::from_words(bytemuck::pod_read_unaligned(&bytes))
}

#[test]
fn values_travel_around_a_ring_of_heaps() {
    job(
        3,
        |_| config(),
        |node| {
            let mine = node.heap().alloc_zeroed::<u64>(64).expect("room");
            let theirs = exchange(&node, mine.ptr(0).to_words());
            node.put(theirs.add(5), u64::from(node.rank()) + 100).expect("put");
            node.put_slice(theirs.add(6), &[7, 8, 9]).expect("put");
            assert_eq!(node.fetch_add(theirs, 11).expect("fetch-add"), 0);
            assert_eq!(node.get(theirs.add(7)).expect("get"), 8);
            node.barrier().expect("barrier");
            let left = (node.rank() + 2) % 3;
            assert_eq!(mine.read(5), u64::from(left) + 100);
            assert_eq!(mine.to_vec()[6..9], [7, 8, 9]);
            assert_eq!(mine.read(0), 11);
            assert!(node.stats().get(Operation::Put, Mechanism::Mapped).count >= 2);
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn private_memory_is_reached_by_attach_and_by_message() {
    for never in [false, true] {
        let configure = |_| if never { config().attach_never() } else { config() };
        job(2, configure, |node| {
            let mut mine: Vec<u8> = (0..100_000u32).map(|i| (i * 7 + node.rank()) as u8).collect();
            let words = [mine.as_mut_ptr().expose_provenance() as u64, 0];
            let there = exchange(&node, words).to_words()[0];
            let _ = there;
            node.barrier().expect("barrier");
            let name = format!("array {}", right_of(&node));
            let bytes = node.directory().wait(&name, LIMIT).expect("published before the barrier");
            let [addr, _]: [u64; 2] = bytemuck::pod_read_unaligned(&bytes);
            // SAFETY: the peer's vector is only read, and lives until the barrier below.
            let remote = unsafe { Remote::raw(right_of(&node), addr) };
            let mut got = vec![0; 100_000];
            node.get_bytes(remote, &mut got).expect("get");
            let expected: Vec<u8> = (0..100_000u32).map(|i| (i * 7 + right_of(&node)) as u8).collect();
            assert!(got == expected, "the peer's bytes");
            let mechanism = if never { Mechanism::Message } else { Mechanism::Cma };
            assert_eq!(node.stats().get(Operation::Get, mechanism).count, 1);
            assert_eq!(node.stats().why(Why::Configured), u64::from(never));
            // SAFETY: nothing is mapped at so low an address, so nothing can be harmed.
            let nowhere = unsafe { Remote::raw(right_of(&node), 64) };
            let fault = node.put_bytes(nowhere, &[1, 2, 3]).expect_err("nothing is there");
            assert!(matches!(fault, Error::Fault { addr: 64, len: 3, .. }), "{fault:?}");
            node.barrier().expect("barrier");
            drop(mine);
        });
    }
}

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
            node.request_medium(right_of(&node), ping, [n, 0, 0, 0], &[1, 2, 3]).expect("request");
        }
        node.wait_until(|| count.load(Ordering::SeqCst) == 1_001_000).expect("all replies of both ranks");
        node.barrier().expect("barrier");
    });
}

//! A node over channels does what it does over any other network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::api::config::{Config, Transport};
use crate::api::node::Node;
use crate::api::ops::active_message::Call;
use crate::base::error::Error;
use crate::base::pointers::{GlobalPtr, Remote};
use crate::job::launched::Broker;

const LIMIT: Duration = Duration::from_secs(20);

fn config() -> Config {
    Config::new().heap_bytes(1 << 20).transport(Transport::parse("channels").expect("it is in the list"))
}

/// Runs a job of two in this process, each rank in a thread of its own.
fn job(config: impl Fn() -> Config + Sync, rank: impl Fn(&Node) + Sync) {
    let broker = Broker::start(2).expect("a broker");
    std::thread::scope(|scope| {
        for own in 0..2 {
            let (env, config, rank) = (broker.env(own), &config, &rank);
            scope.spawn(move || {
                let node = Node::open_in(config(), Some(&env)).expect("a node").within(LIMIT);
                rank(&node);
                node.barrier().expect("both are there");
            });
        }
    });
}

#[test]
fn memory_of_every_kind_is_reached() {
    job(config, |node| {
        let other = 1 - node.rank();
        assert_eq!(node.provider().as_deref(), Some("channels"));
        let block = node.heap().alloc::<u64>(1).expect("room");
        let mut private = vec![0_u8; 100_000];
        let words = [block.ptr(0).offset(), private.as_mut_ptr().expose_provenance() as u64];
        let name = |rank| format!("of {rank}");
        node.directory().publish(&name(node.rank()), bytemuck::bytes_of(&words)).expect("room");
        let told = node.directory().wait(&name(other), LIMIT).expect("it comes");
        let [heap, theirs]: [u64; 2] = bytemuck::pod_read_unaligned(&told);
        // SAFETY: the other rank leaves its bytes alone until the barrier after the last access.
        let theirs = unsafe { Remote::raw(other, theirs) };
        let bytes: Vec<u8> = (0..private.len()).map(|at| at as u8 ^ other as u8).collect();
        node.put_bytes(theirs, &bytes).expect("it lives");
        let mut back = vec![0; bytes.len()];
        node.get_bytes(theirs, &mut back).expect("it lives");
        assert!(back == bytes);
        let heap = GlobalPtr::<u64>::new(other, heap);
        assert_eq!(node.fetch_add(heap, 5), Ok(0));
        node.put(heap, 7).expect("it lives");
        assert_eq!(node.get(heap), Ok(7));
        node.barrier().expect("both are there");
    });
}

#[test]
fn messages_arrive_while_their_receiver_sleeps() {
    let answered = AtomicU64::new(0);
    let answered = Arc::new(answered);
    let config = || {
        let answers = Arc::clone(&answered);
        let ask = |call: &mut Call<'_>| {
            let answer = call.node().handler("answer").expect("registered");
            call.reply(answer, [7; 4]).expect("it lives");
        };
        config().handler("ask", ask).handler("answer", move |call| {
            answers.fetch_add(call.args()[0], SeqCst);
        })
    };
    job(config, |node| {
        if node.rank() == 0 {
            for _ in 0..1000 {
                node.request(1, node.handler("ask").expect("registered"), [0; 4]).expect("it lives");
            }
            node.wait_until(|| answered.load(SeqCst) == 7000).expect("answered");
        }
    });
}

#[test]
fn a_peer_that_ends_is_lost() {
    let broker = Broker::start(2).expect("a broker");
    let open = |rank| Node::open_in(config(), Some(&broker.env(rank))).expect("a node").within(LIMIT);
    let (stays, ends) = (open(0), open(1));
    let block = stays.heap().alloc::<u64>(1).expect("room");
    ends.put(block.ptr(0), 3).expect("it lives");
    drop(ends);
    stays.wait_until(|| stays.lost_peers() == [1]).expect("it is told");
    assert_eq!(stays.put_bytes(block.ptr(0).at(1), &[1]), Err(Error::PeerLost { peer: 1 }));
}

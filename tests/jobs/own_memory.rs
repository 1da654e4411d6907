//! The memory that a process has to itself once it has a network: as much as its limits need, and for each
//! peer a little more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::Node;

use crate::support::{Heard, config, job_of, network, own_bytes, role, say};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A process that has talked to one peer has less: 8.4 MiB with libfabric 1.17, in a debug build.
const ONE_PEER_MAX: u64 = 14 * MIB;

/// Bytes that each further peer adds, at most.
const FURTHER_PEER_MAX: u64 = 64 * KIB;

/// How many ranks have one peer, and many.
const RANKS: [u32; 2] = [2, 18];

/// Messages to one peer, so that buffers that are made for the first ones are there.
const MESSAGES: u64 = 200;

/// Devices of which providers need the buffers that are left out elsewhere.
const DEVICES: &str = "/sys/class/infiniband";

#[test]
fn over_tcp_a_process_has_the_memory_that_its_limits_need() {
    let Some(transport) = network() else { return };
    if std::fs::read_dir(DEVICES).is_ok_and(|mut devices| devices.next().is_some()) {
        return testbed::skip("libfabric keeps large buffers where there are RDMA devices");
    }
    let [one, many] = RANKS.map(|ranks| {
        let heard = Heard::default();
        heard.run_well(job_of(ranks, "talks to all").env("STANDPIPE_TRANSPORT", transport));
        heard.said(0)[0].parse::<u64>().expect("a number")
    });
    let peers = u64::from(RANKS[1] - RANKS[0]);
    println!("{} KiB with one peer, {} KiB with {peers} more", one / KIB, many / KIB);
    assert!(one <= ONE_PEER_MAX, "{} KiB with one peer", one / KIB);
    let each = many.saturating_sub(one) / peers;
    assert!(each <= FURTHER_PEER_MAX, "each further peer adds {} KiB", each / KIB);
}

/// Not a test: what the ranks of the test above do.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "talks to all" => talk_to_all(),
        other => panic!("no role {other}"),
    }
}

fn talk_to_all() {
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let config = config()
        .handler("ask", |call| {
            let answer = call.node().handler("answer").expect("registered below");
            call.reply(answer, [0; 4]).expect("it is taken");
        })
        .handler("answer", move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
    let node = Node::open(config).expect("it opens");
    let ask = node.handler("ask").expect("registered above");
    if node.rank() == 0 {
        let peers = (1..node.size()).chain((0..MESSAGES).map(|_| 1));
        for (answered, peer) in (1..).zip(peers) {
            node.request(peer, ask, [0; 4]).expect("it is taken");
            node.wait_until(|| answers.load(Ordering::Relaxed) == answered).expect("it answers");
        }
        say(own_bytes());
    }
    node.barrier().expect("all come");
}

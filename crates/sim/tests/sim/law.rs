//! Who hears of new memory uses no registration of the old.

use engine::node::AmBody;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::{AmSend, Direction, Lane, Place, SendError};
use sim::{Access, Cluster, Costs, Plan, Reach, Step};

use crate::drive::{piece, wait};

const PAGE: u64 = 4096;

fn settings() -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 1,
        peers_bytes: 16 * PAGE,
        victims_bytes: 16 * PAGE,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 4 * PAGE },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 1_000_000_000,
    }
}

/// Rank 0 puts to rank 1's page twice; between the two, the page is mapped anew, and rank 0 hears of it by
/// a message.
fn put_around_a_change(seed: u64) {
    let faults = "delay=0.3,reorder".parse().expect("two faults");
    let plan = Plan {
        handlers: 1,
        reach: Reach::Heap,
        registration: Some(settings()),
        faults,
        seed,
        ..Plan::new(2, Costs::infiniband_modern())
    };
    let mut cluster = Cluster::new(plan);
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, PAGE, Access::Full));
    put(&mut cluster, here, there, b"old");
    cluster.map_at(1, there.offset, PAGE, Access::Full);
    cluster.node(1).invalidate(there.offset, PAGE);
    let note = AmSend { peer: 0, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
    while cluster.node(1).send_am(&note) == Err(SendError::Busy) {
        cluster.step().expect("what is held back goes on");
    }
    while !matches!(cluster.step().expect("the message arrives"), Step::Deliver(0, _)) {}
    put(&mut cluster, here, there, b"new");
    let violations = cluster.take_violations();
    assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    let mut bytes = [0; 3];
    cluster.peek(1, there, &mut bytes).expect("the page is mapped");
    assert_eq!(&bytes, b"new", "seed {seed}");
}

fn put(cluster: &mut Cluster, here: Place, there: Place, bytes: &[u8]) {
    cluster.poke(0, here, bytes).expect("the page is mapped");
    let id = cluster.node(0).transfer(1, Direction::Put, &[piece(there, here, 3)], None);
    assert_eq!(wait(cluster, 0, id), Ok(0));
}

#[test]
fn who_hears_by_message_has_lost_the_old_key() {
    (0..200).for_each(put_around_a_change);
}

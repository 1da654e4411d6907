//! Who hears of new memory uses no registration of the old.

use engine::node::AmBody;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::{AmSend, Atomic, Direction, Lane, Place, SendError};
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

/// How rank 0 hears that rank 1 has new memory.
#[derive(Clone, Copy, Debug)]
enum By {
    Message,
    Barrier,
    Word,
}

/// Rank 0 puts to rank 1's page twice; between the two, the page is mapped anew, and rank 0 hears of it.
fn put_around_a_change(by: By, seed: u64) {
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
    match by {
        By::Message => {
            let note = AmSend { peer: 0, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
            while cluster.node(1).send_am(&note) == Err(SendError::Busy) {
                cluster.step().expect("what is held back goes on");
            }
            while !matches!(cluster.step().expect("the message arrives"), Step::Deliver(0, _)) {}
        }
        By::Barrier => {
            let first = cluster.node(1).barrier(None);
            let second = cluster.node(0).barrier(None);
            assert_eq!(wait(&mut cluster, 0, second), Ok(0));
            let _ = first;
        }
        By::Word => {
            let word = cluster.heap(0, 8);
            let set = cluster.node(1).atomic(0, word, Atomic::fetch_add(1), None);
            let mut seen = 0;
            while seen == 0 {
                let id = cluster.node(0).atomic(0, word, Atomic::fetch_add(0), None);
                seen = wait(&mut cluster, 0, id).expect("the word is there");
            }
            let _ = set;
        }
    }
    put(&mut cluster, here, there, b"new");
    let violations = cluster.take_violations();
    assert!(violations.is_empty(), "{by:?}, seed {seed}: {violations:?}");
    let mut bytes = [0; 3];
    cluster.peek(1, there, &mut bytes).expect("the page is mapped");
    assert_eq!(&bytes, b"new", "{by:?}, seed {seed}");
}

fn put(cluster: &mut Cluster, here: Place, there: Place, bytes: &[u8]) {
    cluster.poke(0, here, bytes).expect("the page is mapped");
    let id = cluster.node(0).transfer(1, Direction::Put, &[piece(there, here, 3)], None);
    assert_eq!(wait(cluster, 0, id), Ok(0));
}

#[test]
fn who_hears_by_message_has_lost_the_old_key() {
    (0..200).for_each(|seed| put_around_a_change(By::Message, seed));
}

#[test]
fn who_hears_by_barrier_has_lost_the_old_key() {
    (0..200).for_each(|seed| put_around_a_change(By::Barrier, seed));
}

#[test]
fn who_hears_by_word_has_lost_the_old_key() {
    (0..200).for_each(|seed| put_around_a_change(By::Word, seed));
}

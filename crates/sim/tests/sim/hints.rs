//! Hints: what was named before is there when it is used, and no more than fits is asked for.

use engine::Direction;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use sim::{Access, Cluster, Costs, Plan, Reach};

use crate::drive::{piece, wait};

const PAGE: u64 = 4096;

/// Two ranks, of which each lets the other hold 16 pages, and whose local ends must be registered.
fn pair() -> Cluster {
    let settings = Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 1,
        peers_bytes: 16 * PAGE,
        victims_bytes: 16 * PAGE,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 16 * PAGE },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 1_000_000_000,
    };
    let costs = Costs { unregistered_max_bytes: 0, ..Costs::infiniband_modern() };
    Cluster::new(Plan { reach: Reach::Heap, registration: Some(settings), ..Plan::new(2, costs) })
}

fn settle(cluster: &mut Cluster) {
    while cluster.step().is_some() {}
}

#[test]
fn what_was_prefetched_and_prepared_is_a_hit() {
    let mut cluster = pair();
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, 8 * PAGE, Access::Full));
    cluster.node(0).prefetch(1, there, 8 * PAGE);
    cluster.node(0).prepare(here.offset, 8 * PAGE);
    settle(&mut cluster);
    let before = cluster.node(0).registration_counters();
    assert_eq!((before.misses, before.moves, before.table.registrations), (0, 1, 8));
    assert_eq!(cluster.node(1).registration_counters().table.registrations, 8);
    cluster.poke(1, there.plus(5 * PAGE), b"there").expect("it is mapped");
    let id = cluster.node(0).transfer(1, Direction::Get, &[piece(there, here, 8 * PAGE)], None);
    assert_eq!(wait(&mut cluster, 0, id), Ok(0));
    let mut bytes = [0; 5];
    cluster.peek(0, here.plus(5 * PAGE), &mut bytes).expect("it is mapped");
    assert_eq!(&bytes, b"there");
    let after = cluster.node(0).registration_counters();
    assert_eq!((after.misses, after.moves, after.table.registrations), (0, 1, 8), "all was there");
    // What is there is not asked for again.
    cluster.node(0).prefetch(1, there.plus(PAGE), 3 * PAGE);
    cluster.node(0).prepare(here.offset, 8 * PAGE);
    settle(&mut cluster);
    assert_eq!(cluster.node(0).registration_counters().moves, 1);
    assert!(cluster.take_violations().is_empty());
}

#[test]
fn a_transfer_waits_for_what_was_asked_for_and_asks_not_again() {
    let mut cluster = pair();
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, 8 * PAGE, Access::Full));
    cluster.node(0).prefetch(1, there, 8 * PAGE);
    let id = cluster.node(0).transfer(1, Direction::Put, &[piece(there, here, 8 * PAGE)], None);
    assert_eq!(wait(&mut cluster, 0, id), Ok(0));
    assert_eq!(cluster.node(0).registration_counters().moves, 1);
    assert!(cluster.take_violations().is_empty());
}

/// What is not used any more makes room for what is going to be, in as many moves as that takes.
#[test]
fn what_was_used_before_makes_room() {
    let mut cluster = pair();
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, 32 * PAGE, Access::Full));
    let id = cluster.node(0).transfer(1, Direction::Get, &[piece(there, here, 16 * PAGE)], None);
    assert_eq!(wait(&mut cluster, 0, id), Ok(0));
    // Two hints in a row, of which neither has been answered when the other comes.
    cluster.node(0).prefetch(1, there.plus(16 * PAGE), 8 * PAGE);
    cluster.node(0).prefetch(1, there.plus(24 * PAGE), 8 * PAGE);
    settle(&mut cluster);
    let before = cluster.node(0).registration_counters();
    let all = piece(there.plus(16 * PAGE), here, 16 * PAGE);
    let id = cluster.node(0).transfer(1, Direction::Get, &[all], None);
    assert_eq!(wait(&mut cluster, 0, id), Ok(0));
    let after = cluster.node(0).registration_counters();
    assert_eq!((after.misses, after.moves), (before.misses, before.moves), "all of it was there");
    assert!(cluster.take_violations().is_empty());
}

#[test]
fn no_more_is_asked_for_than_may_be_held() {
    let mut cluster = pair();
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, 64 * PAGE, Access::Full));
    cluster.node(0).prefetch(1, there, 64 * PAGE);
    cluster.node(0).prepare(here.offset, 64 * PAGE);
    settle(&mut cluster);
    for rank in [0, 1] {
        let table = cluster.node(rank).registration_counters().table;
        assert_eq!((table.registrations, table.pinned), (16, 16 * PAGE), "rank {rank}");
    }
    // Memory that is not there is asked for in vain, and nobody is the worse for it.
    cluster.node(0).prefetch(1, engine::Place::new(there.mem, 1 << 40), 8 * PAGE);
    cluster.node(0).prefetch(1, engine::Place::new(there.mem, u64::MAX - 10), 8 * PAGE);
    cluster.node(0).prepare(1 << 40, 8 * PAGE);
    cluster.node(0).prepare(u64::MAX - PAGE, u64::MAX);
    cluster.node(0).prefetch(0, here, PAGE);
    settle(&mut cluster);
    let id = cluster.node(0).transfer(1, Direction::Put, &[piece(there, here, 64 * PAGE)], None);
    assert_eq!(wait(&mut cluster, 0, id), Ok(0));
    assert!(cluster.take_violations().is_empty());
}

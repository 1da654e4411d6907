//! Programs in virtual time.

use engine::Direction;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use sim::{Access, Act, Cluster, Costs, Plan, Ran, Reach, ReplayError, replay};

/// The Firehose paper's settings on its machine.
fn paper() -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 16,
        peers_bytes: 450 << 20,
        victims_bytes: 150 << 20,
        victims_borrow: false,
        quota: Quota::Even,
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: u64::MAX,
    }
}

fn puts(settings: Settings, len: u64, places: u64, rounds: u64) -> Ran {
    let plan = Plan {
        handlers: 1,
        registration: Some(settings),
        reach: Reach::Heap,
        ..Plan::new(2, Costs::myrinet_gm_2003())
    };
    let mut cluster = Cluster::new(plan);
    let local = cluster.map(0, 64 << 10, Access::Full).offset;
    let remote = cluster.map(1, places * len.max(4096), Access::Full).offset;
    let direction = Direction::Put;
    let put = |i| Act::Transfer { direction, peer: 1, remote: remote + i * len.max(4096), local, len };
    let acts: Vec<Act> = (0..rounds).flat_map(|_| (0..places).map(put)).collect();
    replay(&mut cluster, vec![acts.into_iter(), Vec::new().into_iter()]).expect("nothing goes wrong")
}

#[test]
fn the_second_put_to_a_place_hits_and_takes_what_the_paper_says() {
    let ran = puts(paper(), 8, 100, 2);
    assert_eq!((ran.hits.count, ran.misses.count), (100, 100));
    let hit_us = ran.hits.mean_ns() / 1e3;
    assert!((12.0..=17.0).contains(&hit_us), "14 and 15 us in the paper, {hit_us} here");
}

#[test]
fn rendezvous_that_never_unpins_asks_each_time_and_takes_what_the_paper_says() {
    let ran = puts(Settings { keep: Keep::Registrations, ..paper() }, 8, 1, 500);
    assert_eq!(ran.hits.count, 0);
    let put_us = ran.transfers().mean_ns() / 1e3;
    assert!((27.0..=41.0).contains(&put_us), "34 and 33 us in the paper, {put_us} here");
}

#[test]
fn a_signal_orders_what_two_ranks_do() {
    let mut cluster = Cluster::new(Plan { handlers: 1, ..Plan::new(2, Costs::infiniband_modern()) });
    let first = vec![Act::Compute(1_000_000), Act::Signal(1), Act::Barrier];
    let second = vec![Act::Wait(0), Act::Compute(1_000_000), Act::Barrier];
    let ran = replay(&mut cluster, vec![first.into_iter(), second.into_iter()]).expect("both end");
    assert!((2_000_000..2_100_000).contains(&ran.runtime_ns), "one after the other: {} ns", ran.runtime_ns);
}

#[test]
fn who_waits_for_ever_is_named() {
    let mut cluster = Cluster::new(Plan { handlers: 1, ..Plan::new(2, Costs::infiniband_modern()) });
    let stuck = replay(&mut cluster, vec![Vec::new().into_iter(), vec![Act::Wait(0)].into_iter()]);
    assert_eq!(stuck, Err(ReplayError::Stuck { rank: 1 }));
}

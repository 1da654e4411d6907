//! The suite over registered memory: every strategy, ample budgets and hardly any.

mod polled;

use engine::registration::{Keep, Order, Quota, Settings, Strategy};
use engine::span::BucketSize;
use sim::{Cluster, Costs, Plan, Reach};

use polled::{Polled, faults_of};

/// Buckets of a page, so many for peers and for victims.
fn firehose(peers: u64, victims: u64) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 8,
        peers_bytes: peers << 12,
        victims_bytes: victims << 12,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 4 << 12 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 512,
        recall_within: 10_000_000_000,
    }
}

/// A simulated cluster whose nodes register.
fn registering(size: u32, settings: Settings, costs: Costs, faults: &str, seed: u64) -> Polled {
    let (reach, registration, faults) = (Reach::Heap, Some(settings), faults_of(faults));
    Polled::of(Plan { reach, registration, faults, seed, ..Plan::new(size, costs) }, check)
}

/// No table's books differ from its card's, and no card has met memory that it must not.
fn check(cluster: &mut Cluster) {
    for rank in 0..cluster.size() {
        cluster.node(rank).audit().unwrap_or_else(|what| panic!("rank {rank}: {what}"));
        let pinned = cluster.node(rank).registration_counters().table.pinned;
        assert_eq!(pinned, cluster.pinned(rank), "rank {rank}: the table's books and the card's");
    }
    let violations = cluster.take_violations();
    assert!(violations.is_empty(), "{violations:?}");
}

macro_rules! settings {
    ($($name:ident: $settings:expr, $costs:expr, $faults:expr, $seed:expr;)*) => {$(
        mod $name {
            use super::*;
            conformance::conformance_tests!(|size| registering(size, $settings, $costs, $faults, $seed));
        }
    )*};
}

/// The settings that make a budget into this strategy.
fn as_strategy(strategy: Strategy) -> Settings {
    strategy.settings(firehose(64, 64)).expect("one that registers")
}

settings! {
    ample: firehose(1 << 16, 1 << 14), Costs::infiniband_modern(), "", 1;
    tight: firehose(16, 12), Costs::infiniband_modern(), "delay,reorder", 2;
    hardly_any: firehose(2, 1), Costs::myrinet_gm_2003(), "delay", 3;
    nothing_for_peers: firehose(0, 8), Costs::infiniband_modern(), "", 4;
    even_shares: Settings { quota: Quota::Even, ..firehose(64, 16) }, Costs::infiniband_modern(), "reorder", 5;
    sieve_and_borrowing:
        Settings { order: Order::Sieve, victims_borrow: true, ..firehose(24, 8) }, Costs::infiniband_modern(), "delay", 6;
    pin_everything: as_strategy(Strategy::PinEverything), Costs::infiniband_modern(), "", 7;
    bounce: as_strategy(Strategy::Bounce), Costs::infiniband_modern(), "", 8;
    rendezvous_unpin: as_strategy(Strategy::RendezvousUnpin), Costs::infiniband_modern(), "delay", 9;
    rendezvous_keep: as_strategy(Strategy::RendezvousKeep), Costs::infiniband_modern(), "", 10;
    pin_down: as_strategy(Strategy::PinDown), Costs::infiniband_modern(), "delay,reorder", 11;
    what_registers_may_fail: firehose(64, 64), Costs::infiniband_modern(), "register-fail=0.2,delay", 12;
}

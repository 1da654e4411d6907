//! The suite over registered memory: every strategy, ample budgets and hardly any.

use engine::registration::{Keep, Order, Quota, Settings, Strategy};
use engine::span::BucketSize;
use engine::{Counters, Nanos, Node, Place, Rank};
use sim::{Access, Cluster, Costs, Faults, Plan, Reach, SimTransport, Step};

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

/// A simulated cluster whose nodes register, polled by the suite and looked at as a whole every now and then.
struct Registering {
    cluster: Cluster,
    seed: u64,
    steps: u64,
}

impl Registering {
    fn new(size: u32, settings: Settings, costs: Costs, faults: &str, seed: u64) -> Registering {
        let plan = Plan {
            handlers: conformance::cluster::HANDLERS,
            reach: Reach::Heap,
            registration: Some(settings),
            faults: faults.parse::<Faults>().expect("the faults below are faults"),
            seed,
            ..Plan::new(size, costs)
        };
        Registering { cluster: Cluster::new(plan), seed, steps: 0 }
    }

    fn check(&mut self) {
        for rank in 0..self.cluster.size() {
            self.cluster.node(rank).audit().unwrap_or_else(|what| panic!("rank {rank}: {what}"));
            let pinned = self.cluster.node(rank).registration_counters().table.pinned;
            assert_eq!(pinned, self.cluster.pinned(rank), "rank {rank}: the table's books and the card's");
        }
        let violations = self.cluster.take_violations();
        assert!(violations.is_empty(), "{violations:?}");
    }
}

impl Drop for Registering {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

impl conformance::Cluster for Registering {
    type Transport = SimTransport;

    fn size(&self) -> u32 {
        self.cluster.size()
    }

    fn node(&mut self, rank: Rank) -> &mut Node<SimTransport> {
        self.cluster.node(rank)
    }

    fn private(&mut self, rank: Rank, len: usize) -> Place {
        self.cluster.map(rank, len as u64, Access::Full)
    }

    fn heap(&mut self, rank: Rank, len: usize) -> Place {
        self.cluster.heap(rank, len as u64)
    }

    fn inaccessible(&mut self, rank: Rank) -> Option<Place> {
        Some(self.cluster.map(rank, 4096, Access::None))
    }

    fn read_only(&mut self, rank: Rank) -> Option<Place> {
        Some(self.cluster.map(rank, 4096, Access::Read))
    }

    fn peek(&mut self, rank: Rank, from: Place, into: &mut [u8]) {
        self.cluster.peek(rank, from, into).expect("the suite reads what it allocated");
    }

    fn poke(&mut self, rank: Rank, to: Place, from: &[u8]) {
        self.cluster.poke(rank, to, from).expect("the suite writes what it allocated");
    }

    fn step(&mut self) {
        for _ in 0..=self.seed % 5 {
            match self.cluster.pass() {
                Some(Step::Network | Step::Lost { .. }) | None => {}
                Some(other) => panic!("{other:?} without such a fault"),
            }
        }
        self.steps += 1;
        if self.steps.is_multiple_of(100) {
            self.check();
        }
    }

    fn kill(&mut self, rank: Rank) {
        self.cluster.kill(rank);
    }

    fn now(&self) -> Nanos {
        self.cluster.now()
    }

    fn counters(&mut self, rank: Rank) -> Counters {
        let node = self.cluster.node(rank);
        let mut counters = node.counters().clone();
        counters.merge(node.transport().counters());
        counters
    }
}

macro_rules! settings {
    ($($name:ident: $settings:expr, $costs:expr, $faults:expr, $seed:expr;)*) => {$(
        mod $name {
            use super::*;
            conformance::conformance_tests!(|size| Registering::new(size, $settings, $costs, $faults, $seed));
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

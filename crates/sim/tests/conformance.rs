//! The suite that every transport passes, over the simulator: every machine, cards that reach everything or
//! only the heap, and faults that delay and reorder.

use conformance::cases;
use engine::{Counters, Nanos, Node, Place, Rank};
use sim::{Access, Cluster, Costs, Faults, Plan, Reach, SimTransport, Step};

/// A simulated cluster whose nodes are polled by the suite.
struct Polled {
    cluster: Cluster,
    seed: u64,
}

impl Polled {
    fn new(size: u32, costs: Costs, reach: Reach, faults: &str, seed: u64) -> Polled {
        let faults: Faults = faults.parse().expect("the faults below are faults");
        let handlers = conformance::cluster::HANDLERS;
        Polled {
            cluster: Cluster::new(Plan { handlers, reach, faults, seed, ..Plan::new(size, costs) }),
            seed,
        }
    }
}

impl conformance::Cluster for Polled {
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

    /// A few events at once, so that nodes look at different times.
    fn step(&mut self) {
        for _ in 0..=self.seed % 5 {
            match self.cluster.pass() {
                Some(Step::Network | Step::Lost { .. }) | None => {}
                Some(other) => panic!("{other:?} without such a fault"),
            }
        }
    }

    fn kill(&mut self, rank: Rank) {
        self.cluster.kill(rank);
    }

    fn restart(&mut self, rank: Rank) -> bool {
        self.cluster.restart(rank) == Step::Restarted(rank)
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

mod gm {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(
        size,
        Costs::myrinet_gm_2003(),
        Reach::Everything,
        "",
        1
    ));
}

mod heap_only {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, Costs::myrinet_gm_2003(), Reach::Heap, "", 2));
}

mod infiniband_in_bad_weather {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(
        size,
        Costs::infiniband_modern(),
        Reach::Everything,
        "delay,reorder",
        3
    ));
}

/// Lanes of this kind are full all the time.
fn narrow() -> Costs {
    Costs { lane_messages: 1, payload_max_bytes: 300, ..Costs::myrinet_pm_1998() }
}

mod narrow_lanes {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, narrow(), Reach::Heap, "delay,reorder", 4));
}

mod through_stages {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, narrow(), Reach::Stages, "delay,reorder", 5));
}

/// The case that moves megabytes; the settings above run it.
const LONG: &str = "transfers_of_every_size_between_all_kinds_of_memory";

/// Without optimisation a seed takes a while.
const SEEDS: u64 = if cfg!(debug_assertions) { 8 } else { 100 };

#[test]
fn many_seeds_hold() {
    for seed in 0..SEEDS {
        let costs = || match seed % 4 {
            0 => Costs::myrinet_gm_2003(),
            1 => Costs::infiniband_modern(),
            2 => narrow(),
            _ => Costs { lane_messages: 3, payload_max_bytes: 1000, ..Costs::myrinet_pm_1998() },
        };
        let reach = [Reach::Everything, Reach::Heap, Reach::Stages][seed as usize % 3];
        let all = cases::<Polled>();
        assert!(all.iter().any(|(name, _)| *name == LONG), "the long case has another name now");
        for (name, case) in all.into_iter().filter(|(name, _)| *name != LONG) {
            let run = || case(&mut |size| Polled::new(size, costs(), reach, "delay=0.05,reorder", seed));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("{name} failed with seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

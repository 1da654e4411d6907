//! A simulated cluster as the suite has one.

use engine::{Counters, Nanos, Node, Place, Rank};
use sim::{Access, Cluster, Costs, Faults, Plan, Reach, SimTransport, Step};

/// A simulated cluster whose nodes are polled by the suite.
pub(crate) struct Polled {
    cluster: Cluster,
    seed: u64,
    steps: u64,
    /// Looks at the cluster as a whole, every hundred steps and at the end.
    check: fn(&mut Cluster),
}

impl Polled {
    #[allow(dead_code, reason = "each test program uses one of the two")]
    pub(crate) fn new(size: u32, costs: Costs, reach: Reach, faults: &str, seed: u64) -> Polled {
        Polled::of(Plan { reach, faults: faults_of(faults), seed, ..Plan::new(size, costs) }, |_| {})
    }

    /// Of this plan, but for its handlers, which are the suite's.
    pub(crate) fn of(plan: Plan, check: fn(&mut Cluster)) -> Polled {
        let (seed, handlers) = (plan.seed, conformance::cluster::HANDLERS);
        Polled { cluster: Cluster::new(Plan { handlers, ..plan }), seed, steps: 0, check }
    }
}

pub(crate) fn faults_of(text: &str) -> Faults {
    text.parse().expect("the tests name faults that there are")
}

impl Drop for Polled {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            (self.check)(&mut self.cluster);
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
        self.steps += 1;
        if self.steps.is_multiple_of(100) {
            (self.check)(&mut self.cluster);
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

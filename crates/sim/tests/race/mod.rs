//! Nodes that register, steered into the moment that matters, and looked at whole after every step.
#![allow(dead_code, reason = "each test file uses its own part of this module")]

use engine::node::AmBody;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::{AmSend, Direction, Lane, OpId, Outcome, Piece, Place, Rank, SendError};
use sim::{Access, Breach, Cluster, Costs, Faults, Plan, Reach, Step};

pub(crate) const PAGE: u64 = 4096;

/// More than anything below takes.
const STEPS_MAX: usize = 50_000;

/// Buckets of a page, so many for peers and for victims; no data goes with moves.
pub(crate) fn settings(peers: u64, victims: u64) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 8,
        peers_bytes: peers * PAGE,
        victims_bytes: victims * PAGE,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 1_000_000,
    }
}

/// Nodes that register, and what the rules say of them.
pub(crate) struct Race {
    pub(crate) cluster: Cluster,
    budget: u64,
    /// Who has something to say to whom, and could not yet.
    unsaid: Vec<(Rank, Rank)>,
}

impl Race {
    pub(crate) fn new(size: u32, settings: Settings, faults: &str, seed: u64) -> Race {
        let plan = Plan {
            handlers: 1,
            reach: Reach::Heap,
            registration: Some(settings),
            faults: faults.parse::<Faults>().expect("the tests name real faults"),
            seed,
            ..Plan::new(size, Costs::infiniband_modern())
        };
        let budget = settings.peers_bytes + settings.victims_bytes;
        Race { cluster: Cluster::new(plan), budget, unsaid: Vec::new() }
    }

    /// Pages of a rank's private memory, all bytes `fill`.
    pub(crate) fn pages(&mut self, rank: Rank, pages: u64, fill: u8) -> Place {
        let place = self.cluster.map(rank, pages * PAGE, Access::Full);
        self.fill(rank, place, pages * PAGE, fill);
        place
    }

    pub(crate) fn fill(&mut self, rank: Rank, place: Place, len: u64, fill: u8) {
        self.cluster.poke(rank, place, &vec![fill; len as usize]).expect("it is mapped");
    }

    pub(crate) fn bytes(&self, rank: Rank, place: Place, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.cluster.peek(rank, place, &mut bytes).expect("it is mapped");
        bytes
    }

    pub(crate) fn start(
        &mut self,
        rank: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[(Place, Place, u64)],
    ) -> OpId {
        let piece = |&(remote, local, len)| Piece::new(remote, local, len).expect("inside the memory");
        let pieces: Vec<Piece> = pieces.iter().map(piece).collect();
        self.cluster.node(rank).transfer(peer, direction, &pieces, None)
    }

    /// Sends an Active Message, as soon as the node takes it.
    pub(crate) fn say(&mut self, rank: Rank, peer: Rank) {
        let note = AmSend { peer, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
        match self.cluster.node(rank).send_am(&note) {
            Err(SendError::Busy) => self.unsaid.push((rank, peer)),
            sent => sent.expect("nobody is lost who is spoken to"),
        }
    }

    /// The next thing happens, and every rule holds after it.
    pub(crate) fn step(&mut self) -> Option<Step> {
        let step = self.cluster.step();
        for rank in 0..self.cluster.size() {
            let pinned = self.cluster.pinned(rank);
            assert!(pinned <= self.budget, "rank {rank} has pinned {pinned} of {}", self.budget);
            self.cluster.node(rank).audit().unwrap_or_else(|what| panic!("rank {rank}: {what}"));
        }
        let mut violations = self.cluster.take_violations();
        // What was under way when the memory changed may end in what it was.
        violations.retain(|violation| !matches!(violation.breach, Breach::Stale { knew: false, .. }));
        assert_eq!(violations, []);
        for (rank, peer) in std::mem::take(&mut self.unsaid) {
            self.say(rank, peer);
        }
        step
    }

    /// Steps until `reached`, which must be in time.
    pub(crate) fn until(&mut self, what: &str, mut reached: impl FnMut(&mut Race, Option<Step>) -> bool) {
        for _ in 0..STEPS_MAX {
            let step = self.step();
            if reached(self, step) {
                return;
            }
            assert!(step.is_some(), "nothing will ever happen any more, and not: {what}");
        }
        panic!("not in {STEPS_MAX} steps: {what}");
    }

    pub(crate) fn wait(&mut self, rank: Rank, op: OpId) -> Outcome {
        self.until("the operation ends", |race, _| race.cluster.node(rank).is_done(op));
        self.cluster.node(rank).outcome(op).expect("it is done")
    }

    /// Goes on until nothing happens any more.
    pub(crate) fn rest(&mut self) {
        self.until("all comes to rest", |_, step| step.is_none());
    }

    pub(crate) fn counters(&mut self, rank: Rank) -> engine::node::RegistrationCounters {
        self.cluster.node(rank).registration_counters()
    }
}

//! How much memory, and how many misses, jobs of ever more nodes take of which few or many put to one.

use engine::Direction;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::cluster::{Cluster, Plan};
use crate::costs::Costs;
use crate::replay::{Act, Ran, ReplayError, replay};
use crate::space::Access;
use crate::transport::Reach;

/// A job of which some nodes put to the memory of one.
#[derive(Clone, Debug)]
pub struct Scale {
    /// All nodes of the job.
    pub nodes: u32,
    /// Nodes that put, to memory of the first node; at most all others.
    pub active_peers: u32,
    /// Whether the first node leases its M to whoever asks; else it is split evenly among all other nodes.
    pub leases: bool,
    /// Memory that is put to, by all together, in percent of M.
    pub working_set_percent: u64,
    /// How often each bucket of it is put to, on average.
    pub rounds: u64,
    /// What everything costs.
    pub costs: Costs,
}

/// M, the memory that peers may hold, in bytes.
const PEERS_BYTES: u64 = 64 << 20;
const BUCKET_BYTES: u64 = 4096;

impl Scale {
    /// Puts to nine tenths of M, on average ten times to each bucket.
    pub fn new(nodes: u32, active_peers: u32, leases: bool) -> Scale {
        Scale {
            nodes,
            active_peers: active_peers.min(nodes - 1),
            leases,
            working_set_percent: 90,
            rounds: 10,
            costs: Costs::infiniband_modern(),
        }
    }

    /// M of every node, in bytes.
    pub fn peers_bytes(&self) -> u64 {
        PEERS_BYTES
    }

    /// Has every active peer put 8 bytes to random buckets of its own part of the first node's memory.
    ///
    /// # Errors
    /// If a put fails, which nothing makes it do.
    pub fn run(&self) -> Result<Ran, ReplayError> {
        let plan = Plan {
            handlers: 1,
            reach: Reach::Heap,
            registration: Some(self.settings()),
            ..Plan::new(self.nodes, self.costs.clone())
        };
        let mut cluster = Cluster::new(plan);
        let buckets = self.working_set_percent * PEERS_BYTES / 100 / BUCKET_BYTES;
        let own = (buckets / u64::from(self.active_peers.max(1))).max(1);
        let remote = cluster.map(0, own * u64::from(self.active_peers) * BUCKET_BYTES, Access::Full).offset;
        let program = |cluster: &mut Cluster, rank: u32| {
            let is_active = (1..=self.active_peers).contains(&rank);
            is_active.then(|| {
                let local = cluster.map(rank, BUCKET_BYTES, Access::Full).offset;
                let first = remote + u64::from(rank - 1) * own * BUCKET_BYTES;
                puts(u64::from(rank), local, first, own, own * self.rounds)
            })
        };
        let programs =
            (0..self.nodes).map(|rank| program(&mut cluster, rank).into_iter().flatten()).collect();
        replay(&mut cluster, programs)
    }

    fn settings(&self) -> Settings {
        Settings {
            bucket: BucketSize::new(BUCKET_BYTES.ilog2()).expect("a page is a size that buckets can have"),
            run_max: 16,
            peers_bytes: PEERS_BYTES,
            victims_bytes: PEERS_BYTES / 4,
            victims_borrow: false,
            quota: if self.leases { Quota::Leases { guaranteed: BUCKET_BYTES } } else { Quota::Even },
            order: Order::default(),
            keep: Keep::Firehoses,
            put_in_move_max: 0,
            recall_within: u64::MAX,
        }
    }
}

/// Puts of 8 bytes to random buckets of `own`.
fn puts(seed: u64, local: u64, first: u64, own: u64, count: u64) -> impl Iterator<Item = Act> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(move |_| Act::Transfer {
        direction: Direction::Put,
        peer: 0,
        remote: first + rng.random_range(0..own) * BUCKET_BYTES,
        local,
        len: 8,
    })
}

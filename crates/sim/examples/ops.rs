//! How fast the simulator is, and how much memory a node takes: `ops [NODES] [OPERATIONS] [STRATEGY]
//! [PERCENT]`.
//!
//! Every rank keeps puts of 8 bytes to others under way, until all are done. So many percent (50 if none are
//! given) of what each of them touches may be pinned at a time, where the strategy (`hardware` if none is
//! given) has a budget.

use std::time::Instant;

use engine::registration::{Keep, Order, Quota, Settings, Strategy};
use engine::span::BucketSize;
use engine::{Direction, OpId, Piece, Place};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::{Access, Cluster, Costs, Plan, Reach, Step};

/// Puts that a rank has under way.
const WINDOW: usize = 4;

/// Bytes of each rank's private memory.
const MEMORY: u64 = 1 << 20;

struct Ranks {
    memory: Vec<Place>,
    windows: Vec<Vec<OpId>>,
    dice: ChaCha8Rng,
    started: u64,
    ended: u64,
}

impl Ranks {
    /// Takes what has ended at `rank`, and starts as much again while there are operations left.
    fn turn(&mut self, cluster: &mut Cluster, rank: u32, operations: u64) {
        let (window, size) = (&mut self.windows[rank as usize], self.memory.len() as u32);
        let node = cluster.node(rank);
        let before = window.len();
        window.retain(|id| match node.outcome(*id) {
            Some(outcome) => {
                outcome.expect("nothing goes wrong here");
                false
            }
            None => true,
        });
        self.ended += (before - window.len()) as u64;
        while window.len() < WINDOW && self.started < operations {
            let peer = (rank + self.dice.random_range(1..size)) % size;
            let at = self.dice.random_range(0..MEMORY / 8) * 8;
            let piece = Piece::new(self.memory[peer as usize].plus(at), self.memory[rank as usize], 8);
            let piece = piece.expect("simulated memory does not reach 2^64");
            window.push(node.transfer(peer, Direction::Put, &[piece], None));
            self.started += 1;
        }
    }
}

/// A line of this process's status, in MiB.
fn status_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok());
    kib.unwrap_or(0_u64) / 1024
}

/// Firehose with so many percent of each rank's memory to pin, a quarter of that for victims.
fn budget(percent: u64) -> Settings {
    let bytes = MEMORY * percent / 100;
    Settings {
        bucket: BucketSize::new(14).expect("16 KiB"),
        run_max: 16,
        peers_bytes: bytes / 4 * 3,
        victims_bytes: bytes / 4,
        victims_borrow: true,
        quota: Quota::Leases { guaranteed: MEMORY / 64 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 512,
        recall_within: 1_000_000_000,
    }
}

fn plan(size: u32, strategy: Option<&str>, percent: u64) -> Plan {
    let name = strategy.unwrap_or(Strategy::Hardware.name());
    let strategy = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
    let registration = strategy.expect("a strategy's name").settings(budget(percent));
    let reach = if registration.is_some() { Reach::Heap } else { Reach::Everything };
    Plan { reach, registration, ..Plan::new(size, Costs::infiniband_modern()) }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args.get(index).map(|arg| arg.parse::<u64>().expect("a number"));
    let (size, operations) = (number(0).unwrap_or(16) as u32, number(1).unwrap_or(2_000_000));
    let mut cluster = Cluster::new(plan(size, args.get(2).map(String::as_str), number(3).unwrap_or(50)));
    let memory = (0..size).map(|rank| cluster.map(rank, MEMORY, Access::Full)).collect();
    let mut ranks = Ranks {
        memory,
        windows: vec![Vec::new(); size as usize],
        dice: ChaCha8Rng::seed_from_u64(1),
        started: 0,
        ended: 0,
    };
    for rank in 0..size {
        cluster.poke(rank, ranks.memory[rank as usize], &[rank as u8; 8]).expect("it is mapped");
    }
    let start = Instant::now();
    (0..size).for_each(|rank| ranks.turn(&mut cluster, rank, operations));
    while ranks.ended < operations {
        if let Step::Polled(rank) = cluster.step().expect("operations are under way") {
            ranks.turn(&mut cluster, rank, operations);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{size} nodes, {operations} operations in {:.1} ms of virtual time", cluster.now() as f64 / 1e6);
    println!("{:.2} million operations a second", operations as f64 / seconds / 1e6);
    let pinned = (0..size).map(|rank| cluster.pinned_peak(rank)).max().unwrap_or(0);
    println!("{} KiB pinned at most, {} violations", pinned >> 10, cluster.take_violations().len());
    println!("{} MiB at most", status_mib("VmHWM:"));
}

//! How fast the simulator is, and how much memory a node takes: `ops [NODES] [OPERATIONS]`.
//!
//! Every rank keeps puts of 8 bytes to others under way, until all are done.

use std::time::Instant;

use engine::{Direction, OpId, Piece, Place};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::{Access, Cluster, Costs, Plan, Step};

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

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let size = args.next().unwrap_or(16) as u32;
    let operations = args.next().unwrap_or(2_000_000);
    let mut cluster = Cluster::new(Plan::new(size, Costs::infiniband_modern()));
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
    println!("{} MiB at most", status_mib("VmHWM:"));
}

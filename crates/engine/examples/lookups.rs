//! What finding a registration takes where there are many: run by `cargo xtask lookups`, beside UCX's cache.
//!
//! `lookups [REGIONS]`: nanoseconds to take a reference of a registration and to give it back, in random
//! order, each after the one before; of a peer's registration, of one's own, and of reading one random cache
//! line out of as many.

use std::hint::black_box;
use std::time::Instant;

use standpipe_engine::registration::Order;
use standpipe_engine::registration::firehose::{Firehoses, Found};
use standpipe_engine::registration::table::Table;

use tables::{local, peer_of, remote, settings, shuffled};

mod tables;

/// Each is measured so often, in turns; the median counts.
const ROUNDS: usize = 9;

/// A line of a processor's cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(u64);

fn main() {
    let regions = std::env::args().nth(1).map_or(100_000, |regions| regions.parse().expect("a number"));
    let settings = settings(Order::Lru, regions);
    let (mut table, mut hoses) = (local(settings, regions), remote(settings, regions));
    let order = shuffled(regions);
    let lines = vec![Line(0); regions as usize];
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        rounds[0].push(each(&order, |bucket| use_remote(&mut hoses, bucket)));
        rounds[1].push(each(&order, |bucket| use_local(&mut table, bucket)));
        rounds[2].push(each(&order, |line| black_box(&lines)[line as usize].0));
    }
    for (name, mut rounds) in ["remote_ns", "local_ns", "line_ns"].into_iter().zip(rounds) {
        rounds.sort_by(f64::total_cmp);
        println!("{name} = {:.1}", rounds[ROUNDS / 2]);
    }
}

/// Nanoseconds that one use takes. A use gives 0, which only it knows: so the next one waits for it.
fn each(order: &[u64], mut usage: impl FnMut(u64) -> u64) -> f64 {
    let started = Instant::now();
    let mut last = 0;
    for place in order {
        last = usage(place + last);
    }
    black_box(last);
    started.elapsed().as_nanos() as f64 / order.len() as f64
}

fn use_remote(hoses: &mut Firehoses, bucket: u64) -> u64 {
    let Found::Held(id) = hoses.find(peer_of(bucket), bucket) else { panic!("all are held") };
    let (_, key) = hoses.reach(id);
    hoses.acquire(id);
    black_box(hoses.release(id));
    black_box(key.0) - bucket
}

fn use_local(table: &mut Table, bucket: u64) -> u64 {
    let Some((reg, run)) = table.acquire(bucket) else { panic!("all are registered") };
    table.release(reg);
    black_box(run.first) - bucket
}

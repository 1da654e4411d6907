//! What a hit costs: run under valgrind's callgrind by `cargo xtask hits`, which counts the instructions of
//! the four functions below. By itself it only prints the tables' memory.
//!
//! `hit_cost fifo|lru|sieve`: the order in which idle entries are given up, which is what a hit keeps up.

use std::hint::black_box;

use standpipe_engine::registration::firehose::{Firehoses, Found, HoseId};
use standpipe_engine::registration::table::Table;
use standpipe_engine::registration::{Order, RegId, Run};

use tables::{local, peer_of, remote, settings, shuffled};

mod tables;

/// Buckets of each table.
const BUCKETS: u64 = 10_000;

/// How often every bucket is used.
const ROUNDS: usize = 10;

/// Acquired at once, so that what is given back is not what was taken last.
const BATCH: usize = 100;

fn main() {
    let order = match std::env::args().nth(1).as_deref() {
        None | Some("fifo") => Order::Fifo,
        Some("lru") => Order::Lru,
        Some("sieve") => Order::Sieve,
        Some(other) => panic!("{other} is none of fifo, lru, sieve"),
    };
    let settings = settings(order, BUCKETS);
    let mut table = local(settings, BUCKETS);
    let mut hoses = remote(settings, BUCKETS);
    let buckets = shuffled(BUCKETS);
    let (mut held, mut pinned) = ([None; BATCH], [RegId { index: 0, generation: 0 }; BATCH]);
    for batch in (0..ROUNDS).flat_map(|_| buckets.chunks(BATCH)) {
        acquire_remote(&mut hoses, batch, &mut held);
        held.reverse();
        release_remote(&mut hoses, &held);
        acquire_local(&mut table, batch, &mut pinned);
        pinned.reverse();
        release_local(&mut table, &pinned);
    }
    println!("hits = {}", ROUNDS as u64 * BUCKETS);
    print_memory(&mut table, &hoses);
}

#[inline(never)]
fn acquire_remote(hoses: &mut Firehoses, buckets: &[u64], held: &mut [Option<HoseId>]) {
    for (bucket, held) in buckets.iter().zip(held) {
        if let Found::Held(id) = hoses.find(peer_of(*bucket), *bucket) {
            black_box(hoses.reach(id));
            hoses.acquire(id);
            *held = Some(id);
        }
    }
}

#[inline(never)]
fn release_remote(hoses: &mut Firehoses, held: &[Option<HoseId>]) {
    for id in held {
        black_box(hoses.release(id.expect("all are held")));
    }
}

#[inline(never)]
fn acquire_local(table: &mut Table, buckets: &[u64], pinned: &mut [RegId]) {
    for (bucket, pinned) in buckets.iter().zip(pinned) {
        let Some((reg, run)) = table.acquire(*bucket) else { panic!("all are registered") };
        black_box(run);
        *pinned = reg;
    }
}

#[inline(never)]
fn release_local(table: &mut Table, pinned: &[RegId]) {
    for reg in pinned {
        table.release(*reg);
    }
}

/// Prints bytes of the owner's table a bucket and a holder, and of the initiator's a bucket.
fn print_memory(table: &mut Table, hoses: &Firehoses) {
    let mut got = Vec::new();
    let buckets = table.memory_bytes();
    for bucket in 0..BUCKETS {
        table.attach(1, Run { first: bucket, count: 1 }, &mut got).expect("there is room");
    }
    let with_holders = table.memory_bytes();
    let each = |bytes: usize| bytes as f64 / BUCKETS as f64;
    println!("bucket_bytes = {:.1}", each(buckets));
    println!("holder_bytes = {:.1}", each(with_holders - buckets));
    println!("firehose_bytes = {:.1}", each(hoses.memory_bytes()));
}

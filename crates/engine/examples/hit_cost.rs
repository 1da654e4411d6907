//! What a hit costs: run under valgrind's callgrind by `cargo xtask hits`, which counts the instructions of the four
//! functions below. By itself it only prints the tables' memory.
//!
//! `hit_cost fifo|lru|sieve`: the order in which idle entries are given up, which is what a hit keeps up.

use std::hint::black_box;

use standpipe_engine::Rank;
use standpipe_engine::registration::firehose::{Firehoses, Found, HoseId};
use standpipe_engine::registration::table::{Action, HolderId, Table};
use standpipe_engine::registration::{Keep, Key, Order, Quota, RegId, Run, Settings};
use standpipe_engine::span::BucketSize;

/// Buckets of each table, each a run of its own: the dearest case.
const BUCKETS: u64 = 10_000;

/// Peers, in turn, whose buckets are held.
const PEERS: Rank = 16;

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
    let settings = settings(order);
    let mut table = local(settings);
    let mut hoses = remote(settings);
    let buckets = shuffled();
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

fn settings(order: Order) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 16,
        peers_bytes: BUCKETS << 16,
        victims_bytes: BUCKETS << 16,
        victims_borrow: true,
        quota: Quota::Leases { guaranteed: 0 },
        order,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 0,
    }
}

fn peer_of(bucket: u64) -> Rank {
    (bucket % u64::from(PEERS)) as Rank
}

/// A table of this process's own memory: registered, and idle.
fn local(settings: Settings) -> Table {
    let mut table = Table::new(settings, PEERS);
    let mut pinned = Vec::new();
    for first in 0..BUCKETS {
        table.pin(Run { first, count: 1 }, &mut pinned).expect("there is room");
        serve(&mut table);
    }
    pinned.into_iter().for_each(|reg| table.release(reg));
    serve(&mut table);
    table
}

/// Does at once what the table wants.
fn serve(table: &mut Table) {
    while let Some(action) = table.next_action() {
        if let Action::Register(reg, run) = action {
            table.registered(reg, Ok(Key(run.first)));
        }
    }
}

/// A table of what peers let this process use.
fn remote(settings: Settings) -> Firehoses {
    let mut hoses = Firehoses::new(settings.order, settings.bucket.bytes(), settings.peers_bytes);
    for first in 0..BUCKETS {
        hoses.add(peer_of(first), Run { first, count: 1 }, Key(first), HolderId(first as u32));
    }
    hoses
}

/// Every bucket once, in an order that is the same each time.
fn shuffled() -> Vec<u64> {
    let mut buckets: Vec<u64> = (0..BUCKETS).collect();
    let mut random = 0x5eed_u64;
    for left in (1..buckets.len()).rev() {
        // Knuth's generator; what its low bits lack does not matter here.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        buckets.swap(left, (random >> 33) as usize % (left + 1));
    }
    buckets
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

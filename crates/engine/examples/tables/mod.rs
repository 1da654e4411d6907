//! Tables for the examples that measure them: of one process's memory, and of what its peers let it use.

use standpipe_engine::Rank;
use standpipe_engine::registration::firehose::Firehoses;
use standpipe_engine::registration::table::{Action, HolderId, Table};
use standpipe_engine::registration::{Keep, Key, Order, Quota, Run, Settings};
use standpipe_engine::span::BucketSize;

/// Peers, in turn, whose buckets are held.
pub(crate) const PEERS: Rank = 16;

/// Settings under which so many buckets fit, each a run of its own: the dearest case.
pub(crate) fn settings(order: Order, buckets: u64) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 16,
        peers_bytes: buckets << 16,
        victims_bytes: buckets << 16,
        victims_borrow: true,
        quota: Quota::Leases { guaranteed: 0 },
        order,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 0,
    }
}

/// Whose bucket it is.
pub(crate) fn peer_of(bucket: u64) -> Rank {
    (bucket % u64::from(PEERS)) as Rank
}

/// A table of this process's own memory: registered, and idle.
pub(crate) fn local(settings: Settings, buckets: u64) -> Table {
    let mut table = Table::new(settings, PEERS);
    let mut pinned = Vec::new();
    for first in 0..buckets {
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
pub(crate) fn remote(settings: Settings, buckets: u64) -> Firehoses {
    let mut hoses = Firehoses::new(settings.order, settings.bucket.bytes(), settings.peers_bytes);
    for first in 0..buckets {
        hoses.add(peer_of(first), Run { first, count: 1 }, Key(first), HolderId(first as u32));
    }
    hoses
}

/// Every bucket once, in an order that is the same each time.
pub(crate) fn shuffled(count: u64) -> Vec<u64> {
    let mut buckets: Vec<u64> = (0..count).collect();
    let mut random = 0x5eed_u64;
    for left in (1..buckets.len()).rev() {
        // Knuth's generator; what its low bits lack does not matter here.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        buckets.swap(left, (random >> 33) as usize % (left + 1));
    }
    buckets
}

//! A program that has put much at a time, and then puts little at a time to other memory, which fits.

use engine::registration::{Order, Quota, Settings, Strategy};
use engine::span::BucketSize;
use engine::{Direction, Piece, Place};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::{Access, Cluster, Costs, Plan, Reach};

const MIB: u64 = 1 << 20;

/// Firehose with 4 MiB to register, in runs of as many pages as are wanted.
fn cluster(order: Order) -> Cluster {
    let settings = Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 256,
        peers_bytes: 3 * MIB,
        victims_bytes: MIB,
        victims_borrow: true,
        quota: Quota::Leases { guaranteed: 16 << 12 },
        order,
        keep: engine::registration::Keep::Firehoses,
        // Nothing rides, and so nothing is weighed: each miss moves, and tells what the order gave up.
        put_in_move_max: 0,
        recall_within: u64::MAX / 2,
    };
    let registration = Strategy::Firehose.settings(settings);
    Cluster::new(Plan { reach: Reach::Heap, registration, ..Plan::new(2, Costs::infiniband_modern()) })
}

/// Puts so often at random places of a range, one after the other; how many missed.
fn misses(
    cluster: &mut Cluster,
    [here, there]: [Place; 2],
    len: u64,
    range: u64,
    dice: &mut ChaCha8Rng,
) -> u64 {
    let before = cluster.view(0).registration_counters().misses;
    for _ in 0..400 {
        let at = dice.random_range(0..(range - len) / 8) * 8;
        let piece = Piece::new(there.plus(at), here, len).expect("far below 2^64");
        let id = cluster.node(0).transfer(1, Direction::Put, &[piece], None);
        while cluster.node(0).outcome(id).is_none_or(|outcome| outcome.expect("nothing goes wrong") > 0) {
            cluster.step().expect("a put is under way");
        }
    }
    cluster.view(0).registration_counters().misses - before
}

#[test]
fn what_a_program_turns_to_is_kept_soon_whatever_it_used_before() {
    for order in [Order::Fifo, Order::Lru, Order::Sieve] {
        let (mut cluster, mut dice) = (cluster(order), ChaCha8Rng::seed_from_u64(1));
        let there = cluster.map(1, 8 * MIB, Access::Full);
        let here = cluster.map(0, MIB, Access::Full);
        assert!(misses(&mut cluster, [here, there], 64 << 10, 4 * MIB, &mut dice) > 100);
        let other = there.plus(4 * MIB);
        let rounds = [(); 4].map(|()| misses(&mut cluster, [here, other], 8, MIB, &mut dice));
        assert!(rounds[3] <= 20, "{order:?}: {rounds:?} of 400 puts missed");
    }
}

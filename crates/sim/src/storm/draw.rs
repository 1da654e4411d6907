//! What the seed picks: settings, machines, and everything that ranks do.

use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use super::shadow::WORD;
use crate::costs::Costs;
use crate::faults::Faults;

/// The program's dice, apart from the weather's.
#[derive(Debug)]
pub(super) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(!seed))
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // The highest bits of a product: as even as 64 bits can be, and cheaper than what is quite even.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether something happens that does once in so many times.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A number from 1 to `most`, small ones much more often.
    pub(super) fn small(&mut self, most: u64) -> u64 {
        let bits = u64::from(most.ilog2()) + 1;
        let bound = 1 << self.below(bits + 1).min(self.below(bits + 1));
        1 + self.below(most.min(bound))
    }
}

/// Buckets of either budget: hardly any, so that much goes by message; some; or plenty.
const BUCKETS: [u64; 12] = [0, 1, 2, 3, 5, 8, 16, 40, 100, 200, 400, 800];

/// How nodes register, from hardly any memory to plenty.
pub(super) fn settings(dice: &mut Dice, ranks: u32, costs: &Costs, faults: &Faults) -> Settings {
    let page_bits = costs.page_bytes.ilog2().max(12);
    let bits = page_bits + dice.pick(&[0, 0, 1, 3]);
    let bucket = BucketSize::new(bits).expect("a page, or a few of them");
    let buckets = |dice: &mut Dice| dice.pick(&BUCKETS) << bits;
    let (peers_bytes, victims_bytes) = (buckets(dice), buckets(dice));
    let guaranteed = dice.pick(&[0, 1, 2, 4]) << bits;
    let even = dice.once_in(4);
    // Shared out evenly among many, it would mostly be less than a bucket for each, and nothing ever
    // registered.
    let shares = if even { (ranks / 4).max(1) } else { 1 };
    Settings {
        bucket,
        run_max: dice.pick(&[1, 2, 3, 8, 64]),
        peers_bytes: peers_bytes * u64::from(shares),
        victims_bytes,
        victims_borrow: dice.once_in(2),
        quota: if even { Quota::Even } else { Quota::Leases { guaranteed } },
        order: dice.pick(&[Order::Fifo, Order::Lru, Order::Sieve]),
        keep: dice.pick(&[Keep::Firehoses, Keep::Firehoses, Keep::Registrations, Keep::Nothing]),
        put_in_move_max: dice.pick(&[0, 64, 512, 1 << 16]),
        recall_within: match faults.mute {
            // Nobody is so late by itself.
            0.0 => 10_000_000_000,
            _ => costs.latency_ns * dice.pick(&[500, 3_000, 100_000]),
        },
    }
}

/// A machine: one of those built in, sometimes with narrow lanes or without transfers of unregistered memory.
/// Every third gathers messages.
pub(super) fn costs(dice: &mut Dice, seed: u64) -> Costs {
    let name = dice.pick(&["infiniband-modern", "infiniband-modern", "myrinet-gm-2003", "myrinet-pm-1998"]);
    let mut costs = Costs::named(name).expect("these are built in");
    if dice.once_in(2) {
        costs.lane_messages = dice.pick(&[1, 2, 5]);
    }
    if dice.once_in(3) {
        // Whole words: what a reader finds of one that is cut in two between messages says nothing.
        costs.payload_max_bytes = dice.pick(&[38 * WORD, 125 * WORD]) as usize;
    }
    if dice.once_in(3) {
        costs.unregistered_max_bytes = dice.pick(&[0, 8, 4096]);
    }
    // Rolls no dice: storms of other seeds stay as they are.
    costs.gathers = seed.is_multiple_of(3);
    costs
}

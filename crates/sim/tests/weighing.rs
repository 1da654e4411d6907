//! Small puts to more memory than may be held: moves only as far as they pay beside messages.

use engine::registration::{Keep, Order, Quota, Settings, Strategy};
use engine::span::BucketSize;
use engine::{Direction, Nanos, Piece, Place};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::{Access, Cluster, Costs, Plan, Reach};

const PAGE: u64 = 4096;

/// Bytes that a peer may hold, and all together.
const HELD: u64 = 48 * PAGE;
const BUDGET: u64 = 64 * PAGE;

fn settings() -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 16,
        peers_bytes: HELD,
        victims_bytes: BUDGET - HELD,
        victims_borrow: false,
        quota: Quota::Even,
        order: Order::Sieve,
        keep: Keep::Firehoses,
        put_in_move_max: 4096,
        recall_within: u64::MAX / 2,
    }
}

/// Two processes that do one thing or the other about registration.
struct Pair {
    cluster: Cluster,
    dice: ChaCha8Rng,
    here: Place,
    there: Place,
}

impl Pair {
    fn new(strategy: Strategy, costs: &Costs, pages: u64) -> Pair {
        let registration = strategy.settings(settings());
        let mut cluster =
            Cluster::new(Plan { reach: Reach::Heap, registration, ..Plan::new(2, costs.clone()) });
        let there = cluster.map(1, pages * PAGE, Access::Full);
        let here = cluster.map(0, PAGE, Access::Full);
        Pair { cluster, dice: ChaCha8Rng::seed_from_u64(7), here, there }
    }

    /// Puts of 8 bytes to pages at random, one after the other: the mean time of one, and how many found
    /// their page held.
    fn puts(&mut self, pages: std::ops::Range<u64>, count: u64) -> (Nanos, u64) {
        let held = self.cluster.view(0).registration_counters().hits;
        let begun = self.cluster.now();
        for _ in 0..count {
            let at = self.dice.random_range(pages.clone()) * PAGE;
            let piece = Piece::new(self.there.plus(at), self.here, 8).expect("far below 2^64");
            let id = self.cluster.node(0).transfer(1, Direction::Put, &[piece], None);
            while self
                .cluster
                .node(0)
                .outcome(id)
                .is_none_or(|outcome| outcome.expect("nothing goes wrong") > 0)
            {
                self.cluster.step().expect("a put is under way");
            }
        }
        let held = self.cluster.view(0).registration_counters().hits - held;
        ((self.cluster.now() - begun) / count, held)
    }
}

/// An adapter of today, the paper's machine where unpinning takes milliseconds, and something between.
fn machines() -> [Costs; 3] {
    let modern = Costs::infiniband_modern();
    let slow = Costs { register_fixed_ns: 1_000_000, deregister_fixed_ns: 500_000, ..modern.clone() };
    [modern, Costs::myrinet_gm_2003(), slow]
}

#[test]
fn at_random_it_is_as_fast_as_messages_or_faster_at_every_working_set() {
    for costs in machines() {
        for pages in [32, 96, 256, 1024, 4096] {
            let best = [Strategy::Bounce, Strategy::PinDown, Strategy::RendezvousUnpin].map(|strategy| {
                let mut pair = Pair::new(strategy, &costs, pages);
                pair.puts(0..pages, 2000);
                pair.puts(0..pages, 2000).0
            });
            let best = best.into_iter().min().expect("three of them");
            let mut pair = Pair::new(Strategy::Firehose, &costs, pages);
            pair.puts(0..pages, 2000);
            let (took, held) = pair.puts(0..pages, 2000);
            assert!(
                took * 10 <= best * 13,
                "{}, {pages} pages: {took} ns, the best other strategy {best}; {held} were held",
                costs.name
            );
        }
    }
}

#[test]
fn what_a_program_turns_to_is_held_after_a_while() {
    for costs in machines() {
        let mut pair = Pair::new(Strategy::Firehose, &costs, 4096);
        pair.puts(0..4096, 2000);
        // Each page in its turn, after five times as long by message; and some pages that are not wanted any
        // more go after others that are.
        let exchange = costs.register_ns(PAGE) + costs.deregister_ns(PAGE) + 100_000;
        let (begun, within) = (pair.cluster.now(), 3 * 32 * 6 * exchange);
        loop {
            let held = pair.puts(100..132, 400).1;
            if held >= 396 {
                break;
            }
            let took = pair.cluster.now() - begun;
            assert!(took < within, "{}: {held} of 400 puts found theirs held after {took} ns", costs.name);
        }
    }
}

#[test]
fn of_many_pieces_that_are_not_worth_a_move_a_few_are_under_way_at_a_time() {
    let mut pair = Pair::new(Strategy::Firehose, &machines()[2], 1024);
    pair.puts(0..1024, 500);
    let pieces: Vec<Piece> = (0..1024)
        .map(|page| Piece::new(pair.there.plus(page * PAGE), pair.here, 8).expect("far below 2^64"))
        .collect();
    let bounced = |pair: &Pair| pair.cluster.view(0).registration_counters().bounced;
    let before = bounced(&pair);
    let mut known = before;
    let id = pair.cluster.node(0).transfer(1, Direction::Put, &pieces, None);
    while pair.cluster.node(0).outcome(id).is_none_or(|outcome| outcome.expect("nothing goes wrong") > 0) {
        let more = bounced(&pair) - std::mem::replace(&mut known, bounced(&pair));
        assert!(more <= 16, "{more} at once");
        pair.cluster.step().expect("a transfer is under way");
    }
    assert!(bounced(&pair) - before > 512, "most pages cannot be held");
}

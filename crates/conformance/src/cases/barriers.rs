//! The barrier.

use engine::{OpError, OpId, Rank};

use crate::bench::{Bench, Dice, Make, skipped};
use crate::cluster::Cluster;

/// Whether the transport has no barrier; says so aloud.
fn barrier_is_missing<C: Cluster>(make: Make<'_, C>) -> bool {
    let mut bench = Bench::new(make, 1);
    let id = bench.node(0).barrier(None);
    skipped("barriers", bench.outcome(0, id))
}

pub(crate) fn nobody_passes_a_barrier_early<C: Cluster>(make: Make<'_, C>) {
    if barrier_is_missing(make) {
        return;
    }
    for size in 1..=9 {
        let mut bench = Bench::new(make, size);
        let mut dice = Dice::new(u64::from(size));
        // By rank: barriers entered, and the operation of the one that it waits at.
        let mut ranks: Vec<(u64, Option<OpId>)> = vec![(0, None); size as usize];
        bench.until("every rank to pass every barrier", |bench| {
            let rank = dice.below(u64::from(size)) as Rank;
            step_rank(bench, &mut ranks, rank);
            ranks.iter().all(|rank| *rank == (20, None))
        });
        bench.settle();
        assert_eq!(
            bench.got.iter().map(Vec::len).sum::<usize>(),
            0,
            "the barrier's messages reached a handler"
        );
    }
}

/// Lets one rank see whether its barrier is open, or enter the next.
fn step_rank<C: Cluster>(bench: &mut Bench<C>, ranks: &mut [(u64, Option<OpId>)], rank: Rank) {
    let slowest = ranks.iter().map(|rank| rank.0).min().unwrap_or(0);
    let (entered, waiting) = &mut ranks[rank as usize];
    let Some(id) = *waiting else {
        if *entered < 20 {
            *entered += 1;
            *waiting = Some(bench.node(rank).barrier(None));
        }
        return;
    };
    if let Some(outcome) = bench.node(rank).outcome(id) {
        assert_eq!(outcome, Ok(0));
        assert!(slowest >= *entered, "rank {rank} passed barrier {entered}, which not all have entered");
        *waiting = None;
    }
}

pub(crate) fn a_barrier_without_a_rank_times_out_and_goes_on<C: Cluster>(make: Make<'_, C>) {
    if barrier_is_missing(make) {
        return;
    }
    let mut bench = Bench::new(make, 3);
    let now = bench.cluster.now();
    let early: Vec<OpId> = (0..2).map(|rank| bench.node(rank).barrier(Some(now))).collect();
    bench.settle();
    for rank in 0..2 {
        assert_eq!(bench.node(rank).outcome(early[rank as usize]), None, "the barrier opened too early");
        bench.node(rank).expire(now);
        let outcome = bench.node(rank).outcome(early[rank as usize]);
        assert!(matches!(outcome, Some(Err(OpError::Timeout { .. }))), "{outcome:?}");
    }
    // Rank 0 asks again before the barrier opens, rank 1 after.
    let again = bench.node(0).barrier(None);
    let last = bench.node(2).barrier(None);
    assert_eq!(bench.outcome(2, last), Ok(0));
    assert_eq!(bench.outcome(0, again), Ok(0));
    bench.settle();
    let again = bench.node(1).barrier(None);
    assert_eq!(bench.outcome(1, again), Ok(0));
    let next: Vec<OpId> = (0..3).map(|rank| bench.node(rank).barrier(None)).collect();
    for rank in 0..3 {
        assert_eq!(bench.outcome(rank, next[rank as usize]), Ok(0));
    }
}

pub(crate) fn a_barrier_that_all_reached_opens_despite_a_loss<C: Cluster>(make: Make<'_, C>) {
    if barrier_is_missing(make) {
        return;
    }
    let mut bench = Bench::new(make, 4);
    // Two ranks do not look while the last to arrive passes, and dies before they learn of it.
    let waits: Vec<OpId> = (0..3).map(|rank| bench.node(rank).barrier(None)).collect();
    bench.settle();
    bench.sleep(1);
    bench.sleep(2);
    let last = bench.node(3).barrier(None);
    assert_eq!(bench.outcome(3, last), Ok(0));
    bench.kill(3);
    bench.wake(1);
    bench.wake(2);
    for rank in 0..3 {
        assert_eq!(bench.outcome(rank, waits[rank as usize]), Ok(0), "all had arrived");
    }
}

pub(crate) fn a_barrier_with_a_lost_rank_ends_everywhere<C: Cluster>(make: Make<'_, C>) {
    if barrier_is_missing(make) {
        return;
    }
    for lost in [0, 1, 3] {
        let mut bench = Bench::new(make, 4);
        let all: Vec<OpId> = (0..4).map(|rank| bench.node(rank).barrier(None)).collect();
        for rank in 0..4 {
            assert_eq!(bench.outcome(rank, all[rank as usize]), Ok(0));
        }
        let living: Vec<Rank> = (0..4).filter(|rank| *rank != lost).collect();
        let waits: Vec<OpId> = living.iter().map(|rank| bench.node(*rank).barrier(None)).collect();
        bench.kill(lost);
        for (rank, id) in living.iter().zip(waits) {
            assert_eq!(bench.outcome(*rank, id), Err(OpError::PeerLost { peer: lost }));
        }
        for rank in living {
            let id = bench.node(rank).barrier(None);
            assert_eq!(bench.outcome(rank, id), Err(OpError::PeerLost { peer: lost }));
        }
    }
}

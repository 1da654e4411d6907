//! Bitonic sort (Batcher, 1968) of blocks of keys: each rank sorts its own, and then pairs of ranks exchange
//! all their keys, each keeping its half of them in order, until the blocks are in the order of the ranks.

use anyhow::Result;

use super::{
    job::Job,
    keys::{self, Block},
    plan::BitonicPlan,
};

/// Sorts this rank's block of each round together with the others', and describes what came of each.
///
/// # Errors
/// If a peer is lost, or the recording cannot be written.
pub(super) fn run(job: &mut Job, plan: &BitonicPlan) -> Result<Vec<Block>> {
    let rank = job.rank();
    let inbox = job.inbox("arriving keys", plan.block)?;
    let block = || vec![0; plan.block];
    let (mut keys, mut theirs, mut kept) = (block(), block(), block());
    job.owns("keys", &keys);
    job.owns("other keys", &kept);
    let mut sorted = Vec::with_capacity(plan.rounds);
    job.start()?;
    for round in 0..plan.rounds {
        keys::fill(&mut keys, (round * plan.ranks + rank) * plan.block);
        let hash_before = keys::multiset_hash(&keys);
        keys.sort_unstable();
        for (partner, low) in plan.exchanges(rank) {
            // First both say that they have taken what arrived before, then that all has been put.
            job.meet(partner)?;
            for (at, run) in keys.chunks(plan.put_words).enumerate() {
                job.put(partner, &inbox, at * plan.put_words, run)?;
            }
            job.meet(partner)?;
            inbox.read(&mut theirs);
            if low {
                keys::keep_low(&keys, &theirs, &mut kept)
            } else {
                keys::keep_high(&keys, &theirs, &mut kept)
            }
            std::mem::swap(&mut keys, &mut kept);
        }
        sorted.push(Block::of(&keys, hash_before));
    }
    job.stop()?;
    Ok(sorted)
}

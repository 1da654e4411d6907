//! The keys of the sort: how they are made, how two blocks of them are parted, and whether they are sorted in
//! the end.

use serde::{Deserialize, Serialize};

use crate::pattern;

/// Makes these the keys with the numbers from `first` on.
pub(super) fn fill(keys: &mut [u64], first: usize) {
    (first as u64..).zip(keys).for_each(|(number, key)| *key = pattern::mix(pattern::mix(number)));
}

/// Fills `kept` with the lowest keys of two blocks as long as it.
pub(super) fn keep_low(mine: &[u64], theirs: &[u64], kept: &mut [u64]) {
    let (mut here, mut there) = (0, 0);
    for key in kept {
        let take = mine[here] <= theirs[there];
        *key = if take { mine[here] } else { theirs[there] };
        here += usize::from(take);
        there += usize::from(!take);
    }
}

/// Fills `kept` with the highest keys of two blocks as long as it.
pub(super) fn keep_high(mine: &[u64], theirs: &[u64], kept: &mut [u64]) {
    let (mut here, mut there) = (mine.len(), theirs.len());
    for key in kept.iter_mut().rev() {
        let take = mine[here - 1] >= theirs[there - 1];
        *key = if take { mine[here - 1] } else { theirs[there - 1] };
        here -= usize::from(take);
        there -= usize::from(!take);
    }
}

/// A rank's keys after the sort, in so few words that all ranks' can be judged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Block {
    /// How many keys.
    pub keys: u64,
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// Whether none is below the one before it.
    pub in_order: bool,
    /// Hash of the keys that the rank had before, in whatever order.
    pub hash_before: u64,
    /// Hash of those that it has now, in whatever order.
    pub hash_after: u64,
}

impl Block {
    /// Describes `keys`, of which there is at least one.
    #[must_use]
    pub(super) fn of(keys: &[u64], hash_before: u64) -> Self {
        Self {
            keys: keys.len() as u64,
            first: keys[0],
            last: keys[keys.len() - 1],
            in_order: keys.is_sorted(),
            hash_before,
            hash_after: multiset_hash(keys),
        }
    }
}

/// What is wrong with the sort that the ranks' blocks, in order, came out of; `None` if they are sorted and
/// hold the keys from before.
#[must_use]
pub(super) fn fault(blocks: &[Block]) -> Option<String> {
    if let Some(rank) = blocks.iter().position(|block| !block.in_order) {
        return Some(format!("the keys of rank {rank} are out of order"));
    }
    if let Some(rank) = blocks.windows(2).position(|pair| pair[0].last > pair[1].first) {
        return Some(format!("rank {rank} has a key above the first of rank {}", rank + 1));
    }
    let sum = |of: fn(&Block) -> u64| blocks.iter().map(of).fold(0, u64::wrapping_add);
    let same = sum(|block| block.hash_before) == sum(|block| block.hash_after);
    (!same).then(|| "the keys are not those from before the sort".to_owned())
}

/// A sum of hashes of the keys: equal for equal multisets, for others once in 2^64 by chance.
#[must_use]
pub(super) fn multiset_hash(keys: &[u64]) -> u64 {
    keys.iter().map(|key| pattern::mix(key.wrapping_add(HASH_KEY))).fold(0, u64::wrapping_add)
}

/// Makes the hash another function than the one that the keys come out of.
const HASH_KEY: u64 = 0x5eed_0fba_7c4e_45d1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::plan::BitonicPlan;

    /// The whole sort in one process.
    fn sort(plan: &BitonicPlan, blocks: &mut [Vec<u64>]) {
        blocks.iter_mut().for_each(|block| block.sort_unstable());
        for exchange in 0..plan.exchanges(0).count() {
            let before = blocks.to_vec();
            for (rank, block) in blocks.iter_mut().enumerate() {
                let (partner, low) = plan.exchanges(rank).nth(exchange).expect("all have as many");
                let keep = if low { keep_low } else { keep_high };
                keep(&before[rank], &before[partner], block);
            }
        }
    }

    fn describe(before: &[Vec<u64>], after: &[Vec<u64>]) -> Vec<Block> {
        before.iter().zip(after).map(|(before, after)| Block::of(after, multiset_hash(before))).collect()
    }

    proptest! {
        #[test]
        fn the_exchanges_sort_any_keys(
            stages in 0_u32..5,
            keys in prop::collection::vec(prop_oneof![0_u64..9, any::<u64>()], 16..200),
        ) {
            let ranks = 1 << stages;
            let plan = BitonicPlan::new(ranks, keys.len() / ranks * ranks, 8, 1).expect("it fits");
            let before: Vec<Vec<u64>> = keys.chunks_exact(plan.block).take(ranks).map(<[u64]>::to_vec).collect();
            let mut after = before.clone();
            sort(&plan, &mut after);
            let mut expected = before.concat();
            expected.sort_unstable();
            prop_assert_eq!(after.concat(), expected);
            prop_assert_eq!(fault(&describe(&before, &after)), None);
        }
    }

    #[test]
    fn wrong_sorts_are_told() {
        let before = [vec![4, 2], vec![3, 1]];
        let fault = |after: [[u64; 2]; 2]| fault(&describe(&before, &after.map(Vec::from)));
        assert_eq!(fault([[1, 2], [3, 4]]), None);
        assert_eq!(fault([[2, 1], [3, 4]]).as_deref(), Some("the keys of rank 0 are out of order"));
        assert_eq!(fault([[1, 3], [2, 4]]).as_deref(), Some("rank 0 has a key above the first of rank 1"));
        for lost_or_doubled in [[[1, 2], [3, 5]], [[1, 2], [2, 4]], [[1, 1], [4, 4]]] {
            let told = fault(lost_or_doubled);
            assert_eq!(told.as_deref(), Some("the keys are not those from before the sort"));
        }
    }

    #[test]
    fn keys_are_spread_over_all_values() {
        let mut keys = [0; 1000];
        fill(&mut keys, 0);
        let high = keys.iter().filter(|key| **key > u64::MAX / 2).count();
        assert!((400..600).contains(&high), "{high}");
    }
}

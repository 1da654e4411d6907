//! What a process does with keys by itself.

use super::plan::WIDTH;
use crate::pattern::mix;

/// The keys in order of the processes that they fall to, and where those of each begin; and as the last where
/// all end.
pub(super) fn by_owner(keys: &[u32], ranks: u32) -> (Vec<u32>, Vec<usize>) {
    let mut begins = vec![0; ranks as usize + 1];
    for key in keys {
        begins[(key / WIDTH) as usize + 1] += 1;
    }
    for rank in 0..ranks as usize {
        begins[rank + 1] += begins[rank];
    }
    let (mut ordered, mut next) = (vec![0; keys.len()], begins.clone());
    for key in keys {
        let at = &mut next[(key / WIDTH) as usize];
        ordered[*at] = *key;
        *at += 1;
    }
    (ordered, begins)
}

/// Sorts keys that all fall to `rank`, by counting how often there is each. Those that do not fall to it come
/// last, as they are.
pub(super) fn by_counting(keys: &mut [u32], rank: u32) {
    let mut counts = vec![0_u32; WIDTH as usize];
    let mut strangers = Vec::new();
    for key in &*keys {
        match key / WIDTH == rank {
            true => counts[(key % WIDTH) as usize] += 1,
            false => strangers.push(*key),
        }
    }
    let mut rest = &mut *keys;
    for (key, count) in (rank * WIDTH..).zip(&counts) {
        let (these, others) = rest.split_at_mut(*count as usize);
        these.fill(key);
        rest = others;
    }
    rest.copy_from_slice(&strangers);
}

/// How many keys do not fall to `rank`, or are smaller than the one before.
pub(super) fn misplaced(keys: &[u32], rank: u32) -> u64 {
    let strangers = keys.iter().filter(|key| *key / WIDTH != rank).count();
    let descents = keys.windows(2).filter(|pair| pair[0] > pair[1]).count();
    (strangers + descents) as u64
}

/// The sum of the keys' hashes: the same for the same keys in any order, and for others almost surely
/// another.
pub(super) fn hash(keys: &[u32]) -> u64 {
    keys.iter().fold(0, |sum, key| sum.wrapping_add(mix(u64::from(*key))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Each counts three times as many keys as there may be, unoptimised.
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn keys_go_to_their_owners_and_are_sorted_there(keys in prop::collection::vec(0..3 * WIDTH, 0..300)) {
            let (ordered, begins) = by_owner(&keys, 3);
            prop_assert_eq!(hash(&ordered), hash(&keys));
            prop_assert_eq!(begins[3], keys.len());
            let mut all = Vec::new();
            for rank in 0..3_u32 {
                let mut own = ordered[begins[rank as usize]..begins[rank as usize + 1]].to_vec();
                by_counting(&mut own, rank);
                prop_assert_eq!(misplaced(&own, rank), 0);
                all.extend(own);
            }
            let mut expected = keys;
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn what_is_wrong_is_counted() {
        assert_eq!(misplaced(&[WIDTH, WIDTH + 2, WIDTH + 1], 1), 1);
        assert_eq!(misplaced(&[0, WIDTH, WIDTH + 1], 1), 1);
        let mut keys = [WIDTH + 1, 5, WIDTH];
        by_counting(&mut keys, 1);
        assert_eq!(keys, [WIDTH, WIDTH + 1, 5], "a stranger is not lost");
        assert_ne!(hash(&[1, 2]), hash(&[1, 1]));
    }
}

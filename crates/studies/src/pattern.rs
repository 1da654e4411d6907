//! What is in a block: a keyed function of (hash id, layer, place), so that whoever holds a block's id can
//! check every byte of it without having a second copy, and a byte from any other block, layer or place is
//! found.
//!
//! Eight bytes are made from one 64-bit counter by splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014):
//! two multiplications for eight bytes, so that checking runs near the speed of memory.

/// Fills `piece` with what layer `layer` of block `id` holds.
pub(crate) fn fill(id: u64, layer: u32, piece: &mut [u8]) {
    let key = key(id, layer);
    let (words, tail) = piece.as_chunks_mut::<WORD_BYTES>();
    let end = words.len() as u64;
    for (index, word) in (0..).zip(words) {
        *word = word_at(key, index);
    }
    let last = word_at(key, end);
    tail.copy_from_slice(&last[..tail.len()]);
}

/// How many bytes of `piece` differ from what layer `layer` of block `id` holds.
#[must_use]
pub(crate) fn mismatches(id: u64, layer: u32, piece: &[u8]) -> u64 {
    let key = key(id, layer);
    let (words, tail) = piece.as_chunks::<WORD_BYTES>();
    let mut wrong = 0;
    for (first, run) in (0..).step_by(RUN_WORDS).zip(words.chunks(RUN_WORDS)) {
        // The whole run is folded into one test: a branch on every word would halve the speed.
        let difference = (first..)
            .zip(run)
            .fold(0, |sum, (index, word)| sum | (u64::from_le_bytes(*word) ^ value_at(key, index)));
        if difference != 0 {
            wrong +=
                (first..).zip(run).map(|(index, word)| differing(word, &word_at(key, index))).sum::<u64>();
        }
    }
    wrong + differing(tail, &word_at(key, words.len() as u64)[..tail.len()])
}

const WORD_BYTES: usize = size_of::<u64>();
const RUN_WORDS: usize = 512;
/// The odd step of splitmix64: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn key(id: u64, layer: u32) -> u64 {
    mix(mix(id.wrapping_add(STEP)).wrapping_add(u64::from(layer)))
}

#[inline]
fn value_at(key: u64, index: u64) -> u64 {
    mix(key.wrapping_add(index.wrapping_mul(STEP)))
}

#[inline]
fn word_at(key: u64, index: u64) -> [u8; WORD_BYTES] {
    value_at(key, index).to_le_bytes()
}

/// splitmix64's finaliser: a permutation of 64 bits in which each bit of the input moves half of the
/// output's.
#[inline]
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn differing(got: &[u8], want: &[u8]) -> u64 {
    got.iter().zip(want).filter(|(got, want)| got != want).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(id: u64, layer: u32, len: usize) -> Vec<u8> {
        let mut piece = vec![0; len];
        fill(id, layer, &mut piece);
        piece
    }

    proptest! {
        #[test]
        fn what_was_filled_has_no_mismatch_and_each_wrong_byte_is_one(
            id: u64, layer in 0u32..200, len in 0usize..20_000, hits in prop::collection::btree_set(0usize..20_000, 0..9)
        ) {
            let mut bytes = piece(id, layer, len);
            prop_assert_eq!(mismatches(id, layer, &bytes), 0);
            let hits: Vec<usize> = hits.into_iter().filter(|&at| at < len).collect();
            for &at in &hits {
                bytes[at] ^= 0x40;
            }
            prop_assert_eq!(mismatches(id, layer, &bytes), hits.len() as u64);
        }
    }

    #[test]
    fn another_block_layer_or_place_is_almost_wholly_wrong() {
        let len = 16 << 10;
        let almost_all = len as u64 * 98 / 100;
        let bytes = piece(5, 3, len);
        assert!(mismatches(6, 3, &bytes) > almost_all);
        assert!(mismatches(5, 4, &bytes) > almost_all);
        assert!(mismatches(3, 5, &bytes) > almost_all);
        assert!(mismatches(5, 3, &bytes[8..]) > almost_all - 8);
        assert!(mismatches(5, 3, &vec![0; len]) > almost_all);
    }
}

//! A block's memory as an engine that has run for a while holds it.

use block_directory::Pieces;
use rand::{RngExt, seq::SliceRandom};

/// Allocates `layers` pieces of `piece_bytes` in a random order, so that, as in an engine that has run for a
/// while, neighbouring layers are not neighbours in memory.
pub(crate) fn allocate(layers: usize, piece_bytes: usize, rng: &mut impl RngExt) -> Pieces {
    let mut order: Vec<usize> = (0..layers).collect();
    order.shuffle(rng);
    let mut pieces = vec![Vec::new(); layers];
    for layer in order {
        pieces[layer] = vec![0; piece_bytes];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn pieces_are_whole_and_lie_in_no_order() {
        let pieces = allocate(64, 4096, &mut ChaCha8Rng::seed_from_u64(1));
        assert!(pieces.len() == 64 && pieces.iter().all(|piece| piece.len() == 4096));
        let ascending = pieces.windows(2).filter(|pair| pair[0].as_ptr() < pair[1].as_ptr()).count();
        assert!((10..54).contains(&ascending), "{ascending} of 63 neighbours ascend");
    }
}

//! What a kernel's ranks are to do, checked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A kernel and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kernel {
    /// Cannon's matrix multiply.
    Cannon(CannonPlan),
    /// Bitonic sort.
    Bitonic(BitonicPlan),
}

/// Products of square matrices of `order`, each on a square grid of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CannonPlan {
    /// Rows, and columns, of the grid of ranks.
    pub grid: usize,
    /// Rows, and columns, of one rank's block of a matrix.
    pub block: usize,
    /// Words of one put; the last of a row may have fewer.
    pub put_words: usize,
    /// Products to compute and add up.
    pub rounds: usize,
}

/// Sorts of `ranks` times `block` keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitonicPlan {
    /// Ranks, a power of two.
    pub ranks: usize,
    /// Keys that each rank holds.
    pub block: usize,
    /// Words of one put; the last of a block may have fewer.
    pub put_words: usize,
    /// Sorts, each of other keys.
    pub rounds: usize,
}

/// Bytes of a matrix's entry and of a key.
pub(super) const WORD_BYTES: usize = size_of::<u64>();

impl CannonPlan {
    /// The plan of `rounds` products of matrices of `order` on `ranks` ranks, by puts of `put_bytes`.
    ///
    /// # Errors
    /// What does not fit together, in words.
    pub fn new(ranks: usize, order: usize, put_bytes: usize, rounds: usize) -> Result<Self, String> {
        let grid = ranks.isqrt();
        if grid * grid != ranks {
            return Err(format!(
                "Cannon's ranks form a square: {ranks} is not 1, 4, 9, 16 or another square"
            ));
        }
        if order == 0 || !order.is_multiple_of(grid.max(1)) {
            return Err(format!(
                "a matrix of order {order} cannot be cut into {grid} by {grid} equal blocks"
            ));
        }
        Ok(Self { grid, block: order / grid, put_words: put_words(put_bytes)?, rounds })
    }

    /// Rows, and columns, of a whole matrix.
    #[must_use]
    pub fn order(&self) -> usize {
        self.grid * self.block
    }

    /// Puts of all ranks. In every product, all blocks but those of the first row or column move to their
    /// first place, and then all move on, once for each further place.
    #[must_use]
    pub fn puts(&self) -> u64 {
        let moves = 2 * self.grid * (self.grid - 1) * (self.grid + 1);
        (self.rounds * moves * self.block * self.block.div_ceil(self.put_words)) as u64
    }
}

impl BitonicPlan {
    /// The plan of sorting `keys` keys on `ranks` ranks, by puts of `put_bytes`, and this `rounds` times.
    ///
    /// # Errors
    /// What does not fit together, in words.
    pub fn new(ranks: usize, keys: usize, put_bytes: usize, rounds: usize) -> Result<Self, String> {
        if !ranks.is_power_of_two() {
            return Err(format!("bitonic sort's ranks are a power of two: {ranks} is none"));
        }
        if keys == 0 || !keys.is_multiple_of(ranks) {
            return Err(format!("{keys} keys cannot be shared out evenly to {ranks} ranks"));
        }
        Ok(Self { ranks, block: keys / ranks, put_words: put_words(put_bytes)?, rounds })
    }

    /// The partners of `rank`, in the order in which it exchanges keys with them, and whether it keeps the
    /// lower half of their common keys.
    pub fn exchanges(&self, rank: usize) -> impl Iterator<Item = (usize, bool)> {
        let stages = self.ranks.ilog2();
        let bit = move |at: u32| (rank >> at) & 1 == 1;
        (1..=stages)
            .flat_map(|stage| (0..stage).rev().map(move |step| (stage, step)))
            .map(move |(stage, step)| (rank ^ (1 << step), bit(step) == bit(stage)))
    }

    /// Puts of all ranks: each exchange sends every key.
    #[must_use]
    pub fn puts(&self) -> u64 {
        let a_round = self.ranks * self.exchanges(0).count() * self.block.div_ceil(self.put_words);
        (self.rounds * a_round) as u64
    }
}

impl Kernel {
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cannon(_) => "cannon",
            Self::Bitonic(_) => "bitonic",
        }
    }

    /// How many ranks it runs on.
    #[must_use]
    pub fn ranks(&self) -> usize {
        match self {
            Self::Cannon(plan) => plan.grid * plan.grid,
            Self::Bitonic(plan) => plan.ranks,
        }
    }

    /// The order of the matrices, or the number of keys.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Cannon(plan) => plan.order(),
            Self::Bitonic(plan) => plan.ranks * plan.block,
        }
    }

    /// Memory of all ranks together, in bytes, without what is small: three matrices, or two of each key.
    #[must_use]
    pub fn bytes_min(&self) -> u64 {
        let words = match self {
            Self::Cannon(plan) => 3 * plan.order() * plan.order(),
            Self::Bitonic(plan) => 2 * plan.ranks * plan.block,
        };
        (words * WORD_BYTES) as u64
    }

    /// Puts of all ranks.
    #[must_use]
    pub fn puts(&self) -> u64 {
        match self {
            Self::Cannon(plan) => plan.puts(),
            Self::Bitonic(plan) => plan.puts(),
        }
    }

    /// The parameters by the names of the command line's options.
    #[must_use]
    pub fn parameters(&self) -> BTreeMap<String, u64> {
        let (put_words, rounds) = match self {
            Self::Cannon(plan) => (plan.put_words, plan.rounds),
            Self::Bitonic(plan) => (plan.put_words, plan.rounds),
        };
        let named = [("size", self.size()), ("put-bytes", put_words * WORD_BYTES), ("rounds", rounds)];
        named.into_iter().map(|(name, value)| (name.to_owned(), value as u64)).collect()
    }
}

fn put_words(put_bytes: usize) -> Result<usize, String> {
    if put_bytes == 0 || !put_bytes.is_multiple_of(WORD_BYTES) {
        return Err(format!("puts carry whole words: {put_bytes} bytes are no multiple of {WORD_BYTES}"));
    }
    Ok(put_bytes / WORD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_do_not_fit_are_refused_in_words() {
        let cannon =
            |ranks, order, bytes| CannonPlan::new(ranks, order, bytes, 1).expect_err("it does not fit");
        assert!(cannon(8, 64, 8).contains("8 is not 1, 4, 9"));
        assert!(cannon(4, 63, 8).contains("order 63 cannot be cut into 2 by 2"));
        assert!(cannon(4, 0, 8).contains("order 0"));
        assert!(cannon(4, 64, 12).contains("12 bytes are no multiple of 8"));
        let bitonic =
            |ranks, keys, bytes| BitonicPlan::new(ranks, keys, bytes, 1).expect_err("it does not fit");
        assert!(bitonic(6, 64, 8).contains("6 is none"));
        assert!(bitonic(0, 64, 8).contains("0 is none"));
        assert!(bitonic(4, 63, 8).contains("63 keys cannot be shared out evenly"));
        assert!(bitonic(4, 64, 0).contains("0 bytes are no multiple"));
    }

    #[test]
    fn partners_agree_on_who_keeps_what() {
        let plan = BitonicPlan::new(16, 16, 8, 1).expect("it fits");
        let all: Vec<Vec<_>> = (0..16).map(|rank| plan.exchanges(rank).collect()).collect();
        assert!(all.iter().all(|exchanges| exchanges.len() == 10));
        for (rank, exchanges) in all.iter().enumerate() {
            for (at, (partner, low)) in exchanges.iter().enumerate() {
                assert_eq!(all[*partner][at], (rank, !low), "exchange {at} of {rank}");
            }
        }
    }
}

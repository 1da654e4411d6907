//! The matrices of Cannon's kernel: their entries, the product of blocks, and whether a product is right.

use serde::{Deserialize, Serialize};

use crate::pattern;

/// The factors of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Factor {
    /// The left one.
    A,
    /// The right one.
    B,
}

/// Entries are whole numbers from minus this to this: sums of their products are exact.
const ENTRY_MAX: u64 = 8;

/// An entry of a factor of product number `round`: a fixed function that anyone can compute.
#[must_use]
pub(super) fn entry(factor: Factor, round: usize, row: usize, column: usize) -> i64 {
    let key = pattern::mix(((round as u64) << 1) | factor as u64);
    let word = pattern::mix(key ^ pattern::mix(((row as u64) << 32) | column as u64));
    (word % (2 * ENTRY_MAX + 1)) as i64 - ENTRY_MAX as i64
}

/// Fills a block with the entries whose first row and column these are.
pub(super) fn fill(block: &mut [f64], width: usize, factor: Factor, round: usize, row: usize, column: usize) {
    for (down, line) in block.chunks_exact_mut(width).enumerate() {
        for (right, value) in line.iter_mut().enumerate() {
            *value = entry(factor, round, row + down, column + right) as f64;
        }
    }
}

/// Adds the product of the square blocks `a` and `b`, of `width`, to `c`.
pub(super) fn multiply_add(a: &[f64], b: &[f64], c: &mut [f64], width: usize) {
    for depth in (0..width).step_by(TILE_DEPTH) {
        let depths = depth..width.min(depth + TILE_DEPTH);
        for left in (0..width).step_by(TILE_WIDTH) {
            let columns = left..width.min(left + TILE_WIDTH);
            for (row, sums) in a.chunks_exact(width).zip(c.chunks_exact_mut(width)) {
                let sums = &mut sums[columns.clone()];
                for k in depths.clone() {
                    let (factor, line) = (row[k], &b[k * width..][columns.clone()]);
                    sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
                }
            }
        }
    }
}

/// A tile of the right factor stays in a core's cache: 64 rows of 512 entries are 256 KiB.
const TILE_DEPTH: usize = 64;
const TILE_WIDTH: usize = 512;

/// A rank's block of the sum of all rounds' products.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim<'a> {
    /// The block.
    pub entries: &'a [f64],
    /// Its width.
    pub width: usize,
    /// The whole matrix's order.
    pub order: usize,
    /// The matrix's row and column where the block begins.
    pub at: (usize, usize),
    /// How many products were added up.
    pub rounds: usize,
}

/// Whether a block is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    /// Rows of the block with a wrong entry.
    pub wrong_rows: u64,
    /// How it was found out.
    pub by: Method,
}

/// How a product is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    /// Every entry against the sum of its row's and its column's products.
    NaiveProduct,
    /// Products with random vectors against those of the factors (Freivalds, 1977).
    RandomVectors,
}

/// The largest order for which every entry is computed again.
pub(super) const NAIVE_ORDER_MAX: usize = 512;

impl Claim<'_> {
    /// Verifies the block in the way that suits its size. Nothing that was ever put is used for it.
    #[must_use]
    pub(super) fn verify(&self) -> Verdict {
        let (wrong_rows, by) = match self.order {
            ..=NAIVE_ORDER_MAX => (self.wrong_rows_naively(), Method::NaiveProduct),
            _ => (self.wrong_rows_by_vectors(), Method::RandomVectors),
        };
        Verdict { wrong_rows, by }
    }

    fn wrong_rows_naively(&self) -> u64 {
        let expected = |row: usize, column: usize| -> i64 {
            let terms = |round: usize| {
                (0..self.order)
                    .map(move |k| entry(Factor::A, round, row, k) * entry(Factor::B, round, k, column))
            };
            (0..self.rounds).flat_map(terms).sum()
        };
        let wrong = |(down, line): (usize, &[f64])| {
            let (row, column) = (self.at.0 + down, self.at.1);
            (column..).zip(line).any(|(column, value)| exactly(*value) != Some(expected(row, column)))
        };
        self.entries.chunks_exact(self.width).enumerate().filter(|line| wrong(*line)).count() as u64
    }

    /// Multiplies both sides by vectors of random words, modulo 2^64. A wrong entry differs by less than 2^54
    /// from the right one, so its product with a random word is right by chance once in 2^10; four vectors
    /// miss a wrong row once in 2^40.
    fn wrong_rows_by_vectors(&self) -> u64 {
        let vectors: Vec<Words> = (0..self.width as u64)
            .map(|at| std::array::from_fn(|v| pattern::mix(((at + 1) << 2) | v as u64)))
            .collect();
        let mut expected = vec![[0; VECTORS]; self.width];
        for round in 0..self.rounds {
            let of_b = |k: usize| {
                let column = |right| entry(Factor::B, round, k, self.at.1 + right);
                vectors.iter().enumerate().fold([0; VECTORS], |sum, (right, x)| add(sum, column(right), x))
            };
            let of_b: Vec<Words> = (0..self.order).map(of_b).collect();
            for (down, sum) in expected.iter_mut().enumerate() {
                let row = |k| entry(Factor::A, round, self.at.0 + down, k);
                *sum = of_b.iter().enumerate().fold(*sum, |sum, (k, y)| add(sum, row(k), y));
            }
        }
        let found = |line: &[f64]| {
            line.iter()
                .zip(&vectors)
                .try_fold([0; VECTORS], |sum, (value, x)| exactly(*value).map(|value| add(sum, value, x)))
        };
        let lines = self.entries.chunks_exact(self.width).zip(&expected);
        lines.filter(|(line, expected)| found(line).as_ref() != Some(*expected)).count() as u64
    }
}

const VECTORS: usize = 4;
/// One word of each vector.
type Words = [u64; VECTORS];

fn add(sum: Words, factor: i64, words: &Words) -> Words {
    let factor = factor.cast_unsigned();
    std::array::from_fn(|at| sum[at].wrapping_add(factor.wrapping_mul(words[at])))
}

/// The whole number that `value` is, if it is one that arithmetic on it keeps exact.
fn exactly(value: f64) -> Option<i64> {
    const EXACT_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    (value.fract() == 0.0 && value.abs() < EXACT_MAX).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The upper right block of products of order twice the width.
    fn product(width: usize, rounds: usize) -> Vec<f64> {
        let block = |factor, round, row, column| {
            let mut block = vec![0.0; width * width];
            fill(&mut block, width, factor, round, row, column);
            block
        };
        let mut sum = vec![0.0; width * width];
        for round in 0..rounds {
            for at in [0, width] {
                let (a, b) = (block(Factor::A, round, 0, at), block(Factor::B, round, at, width));
                multiply_add(&a, &b, &mut sum, width);
            }
        }
        sum
    }

    fn claim(entries: &[f64], width: usize, rounds: usize) -> Claim<'_> {
        Claim { entries, width, order: 2 * width, at: (0, width), rounds }
    }

    #[test]
    fn right_products_pass_both_ways() {
        for (width, rounds) in [(1, 1), (7, 3), (70, 1), (TILE_DEPTH, 2)] {
            let entries = product(width, rounds);
            let claim = claim(&entries, width, rounds);
            assert_eq!((claim.wrong_rows_naively(), claim.wrong_rows_by_vectors()), (0, 0), "{width}");
        }
    }

    #[test]
    fn a_product_wider_than_a_tile_is_right() {
        let width = TILE_WIDTH + 3;
        let entries = product(width, 1);
        assert_eq!(claim(&entries, width, 1).verify(), Verdict { wrong_rows: 0, by: Method::RandomVectors });
    }

    #[test]
    fn wrong_entries_are_found_both_ways() {
        let width = 9;
        for spoil in [1.0, -1.0, 0.5, 1e-9, 2_f64.powi(52), 2_f64.powi(60), f64::NAN, f64::INFINITY] {
            let mut entries = product(width, 2);
            entries[width + 4] += spoil;
            entries[5 * width] += spoil;
            let claim = claim(&entries, width, 2);
            assert_eq!((claim.wrong_rows_naively(), claim.wrong_rows_by_vectors()), (2, 2), "{spoil}");
        }
    }

    #[test]
    fn another_round_or_block_is_wrong() {
        let width = 9;
        let entries = product(width, 2);
        let right = claim(&entries, width, 2);
        for wrong in [Claim { rounds: 1, ..right }, Claim { at: (width, width), ..right }] {
            assert_eq!((wrong.wrong_rows_naively(), wrong.wrong_rows_by_vectors()), (9, 9), "{wrong:?}");
        }
    }
}

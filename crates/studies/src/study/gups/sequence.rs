//! The HPC Challenge's random numbers: powers of x modulo a primitive polynomial over GF(2), so that any part
//! of the sequence can be begun at without what comes before it.

/// x^64 + x^2 + x + 1, without its highest power.
const POLYNOMIAL: u64 = 7;

/// The sequence from some place on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence(u64);

impl Sequence {
    /// What comes after the first `skipped` numbers. `HPCC_starts` is the original's name for it.
    pub(super) fn after(skipped: u64) -> Sequence {
        // Square and multiply: squaring doubles each power of x, and x^2, x^4, … are looked up.
        let mut squares = [0; 64];
        let mut power = 1;
        for square in &mut squares {
            *square = power;
            power = step(step(power));
        }
        let mut number = 1;
        for bit in (0..u64::BITS).rev() {
            number = (0..64).filter(|j| number >> j & 1 == 1).fold(0, |sum, j| sum ^ squares[j]);
            if skipped >> bit & 1 == 1 {
                number = step(number);
            }
        }
        Sequence(number)
    }
}

impl Iterator for Sequence {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.0 = step(self.0);
        Some(self.0)
    }
}

/// Times x.
#[inline]
fn step(number: u64) -> u64 {
    number << 1 ^ if number >> 63 == 1 { POLYNOMIAL } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_begun_anywhere() {
        let all: Vec<u64> = Sequence::after(0).take(1000).collect();
        assert_eq!(all[..4], [2, 4, 8, 16]);
        // The 63rd doubling is the last without the polynomial.
        assert_eq!((all[62], all[63]), (1 << 63, POLYNOMIAL));
        for skipped in [0, 1, 2, 62, 63, 64, 65, 500, 998] {
            let from: Vec<u64> = Sequence::after(skipped).take(1000 - skipped as usize).collect();
            assert_eq!(from, all[skipped as usize..], "after {skipped}");
        }
    }

    #[test]
    fn it_comes_round_after_its_period() {
        // As the original says.
        const PERIOD: u64 = 1_317_624_576_693_539_401;
        let first = |skipped| Sequence::after(skipped).next();
        assert_eq!(first(PERIOD), first(0));
        assert_ne!(first(PERIOD / 3), first(0));
    }
}

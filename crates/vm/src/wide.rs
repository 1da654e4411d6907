//! Loops over many numbers, compiled for wider vectors than the oldest processor of an architecture has.

/// Combines each of the first with that at the same place of the second, as far as both go: with the widest vectors that
/// this processor has, if `combine` is something that the compiler makes vectors of.
#[inline]
pub fn each<T: Copy>(into: &mut [T], from: &[T], combine: impl Fn(T, T) -> T) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function was compiled for, as it was asked just before.
        return unsafe { each_by_avx2(into, from, combine) };
    }
    each_at_all(into, from, combine);
}

/// The loop of [`each`], compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn each_by_avx2<T: Copy>(into: &mut [T], from: &[T], combine: impl Fn(T, T) -> T) {
    each_at_all(into, from, combine);
}

#[inline(always)]
fn each_at_all<T: Copy>(into: &mut [T], from: &[T], combine: impl Fn(T, T) -> T) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = combine(*into, *from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `each` makes of two slices of any length, at any alignment, is what a plain loop makes of them.
    fn agrees<T: Copy + PartialEq + std::fmt::Debug>(number: fn(u64) -> T, combine: fn(T, T) -> T) {
        for (start, len) in (0..3).flat_map(|start| [0, 1, 7, 64, 300].map(|len| (start, len))) {
            let numbers = |seed: u64| -> Vec<T> {
                (0..start + len).map(|at| number((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
            };
            let (mut into, from) = (numbers(1), numbers(2000));
            let pairs = into.iter().zip(&from).skip(start as usize);
            let expected: Vec<T> = pairs.map(|(left, right)| combine(*left, *right)).collect();
            each(&mut into[start as usize..], &from[start as usize..], combine);
            assert_eq!(into[start as usize..], expected);
        }
        let mut longer = [number(1), number(2)];
        each(&mut longer, &[number(3)], combine);
        assert_eq!(longer, [combine(number(1), number(3)), number(2)], "as far as both go");
    }

    #[test]
    fn wide_loops_come_to_what_plain_ones_do() {
        agrees(|bits| bits, u64::max);
        agrees(|bits| bits as i64, i64::min);
        agrees(|bits| (bits >> 48) as u16, u16::wrapping_mul);
        agrees(|bits| (bits >> 56) as u8, u8::wrapping_add);
        agrees(|bits| (bits >> 11) as f64, |left, right| left + right);
        agrees(|bits| (bits >> 40) as f32, f32::max);
    }
}

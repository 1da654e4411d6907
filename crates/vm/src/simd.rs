//! Loops over many numbers, compiled for wider vectors than the oldest processor of an architecture has.

use bytemuck::Pod;

use crate::shared::{Outside, SharedMemory};

/// Combines each of the first with that at the same place of the second, as far as both go. It uses the
/// widest vectors that this processor has, if `combine` is something that the compiler makes vectors of.
#[inline]
pub fn each<T: Copy>(into: &mut [T], from: &[T], combine: impl Fn(T, T) -> T) {
    let this = Each { into, from, combine };
    if this.into.len() < FEW { by_oldest(this) } else { by_widest(this) }
}

/// Combines each of `own` with those at the same place in all of `given`, one after the other, and with
/// vectors like [`each`]: results go to `into`, which is what there is to be combined where there is no
/// `own`. Others may write the given memory at any time: each element is read once, whatever it is
/// then.
///
/// # Errors
/// [`Outside`] if one of them has not so many bytes there, or the same bytes as `into`; then nothing is
/// combined.
///
/// # Panics
/// When `own` has not as many as `into`.
pub fn fold<T: Pod>(
    own: Option<&[T]>,
    into: &mut [T],
    given: &[(&SharedMemory, u64)],
    combine: impl Fn(T, T) -> T + Copy,
) -> Result<(), Outside> {
    assert!(own.is_none_or(|own| own.len() == into.len()), "operands are as many as results");
    let given: Vec<*const T> =
        given.iter().map(|(memory, offset)| memory.apart_from(*offset, into)).collect::<Result<_, _>>()?;
    by_widest(Fold { own, into, given: &given, combine });
    Ok(())
}

/// As many cost less than to ask what the processor has.
const FEW: usize = 16;

/// Operands of a [`fold`] that are read in one loop. So many streams of addresses every processor knows to
/// read ahead, and the result is loaded and stored once for all of them.
const TOGETHER: usize = 3;

/// Bytes of a [`fold`] that are combined at a time, about: what they come to stays in the processor's first
/// cache until all that is given for them is combined.
const CHUNK: usize = 4 << 10;

/// A loop, to be compiled for several kinds of vectors.
trait Loop {
    /// Must be inlined, for the function that it is called in has the vectors.
    fn run(self);
}

#[inline]
fn by_widest(this: impl Loop) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
            // SAFETY: the processor has what the function was compiled for, as it was asked just before.
            return unsafe { by_avx512(this) };
        }
        if has!("avx2") {
            // SAFETY: it has these vectors, as it was asked just before.
            return unsafe { by_avx2(this) };
        }
    }
    by_oldest(this);
}

/// Once in a program, for few numbers and old processors: a hundred of such loops are large.
#[inline(never)]
fn by_oldest(this: impl Loop) {
    this.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn by_avx512(this: impl Loop) {
    this.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_avx2(this: impl Loop) {
    this.run();
}

struct Each<'a, T, F> {
    into: &'a mut [T],
    from: &'a [T],
    combine: F,
}

impl<T: Copy, F: Fn(T, T) -> T> Loop for Each<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        for (into, from) in self.into.iter_mut().zip(self.from) {
            *into = (self.combine)(*into, *from);
        }
    }
}

struct Fold<'a, T, F> {
    own: Option<&'a [T]>,
    into: &'a mut [T],
    /// Of each, where as many values begin as `into` has: mapped, and apart from it.
    given: &'a [*const T],
    combine: F,
}

impl<T: Pod, F: Fn(T, T) -> T> Loop for Fold<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        let Fold { own, into, given, combine } = self;
        let each = (CHUNK / size_of::<T>().max(1)).max(1);
        for (chunk, into) in into.chunks_mut(each).enumerate() {
            let start = chunk * each;
            if let Some(own) = own {
                into.copy_from_slice(&own[start..start + into.len()]);
            }
            // SAFETY: each pointer begins as many values as there are in all chunks, which are mapped while
            // the caller borrows the mappings, and are apart from them; `start + i` below is less. Any bytes
            // are a `T`, and what others write there meanwhile only decides which they are.
            let read = |from: *const T, i: usize| unsafe { from.add(start + i).read_unaligned() };
            for together in given.chunks(TOGETHER) {
                match *together {
                    [a] => (0..into.len()).for_each(|i| into[i] = combine(into[i], read(a, i))),
                    [a, b] => (0..into.len())
                        .for_each(|i| into[i] = combine(combine(into[i], read(a, i)), read(b, i))),
                    [a, b, c, ..] => (0..into.len()).for_each(|i| {
                        into[i] = combine(combine(combine(into[i], read(a, i)), read(b, i)), read(c, i));
                    }),
                    [] => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segment;

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

    /// What `fold` makes of slices at any offset is what a plain loop makes of them.
    fn folds<T: Pod + PartialEq + std::fmt::Debug>(number: fn(u64) -> T, combine: fn(T, T) -> T) {
        let segment = Segment::create("fold", 1 << 16).expect("memory");
        let memory = segment.memory();
        for (many, len) in (0..8).flat_map(|many| [0, 1, 7, 64, 700].map(|len| (many, len))) {
            let numbers = |seed: u64| -> Vec<T> {
                (0..len).map(|at| number((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
            };
            let (own, given) = (numbers(1), (0..many).map(|which| numbers(1000 * (which + 2))));
            let mut expected = own.clone();
            // At no multiple of their size.
            let places: Vec<u64> = (0..many).map(|which| 8000 * which + 1 + which).collect();
            for (values, at) in given.zip(&places) {
                memory.copy_in(*at, bytemuck::cast_slice(&values)).expect("it fits");
                expected.iter_mut().zip(values).for_each(|(into, from)| *into = combine(*into, from));
            }
            let places: Vec<_> = places.into_iter().map(|at| (memory, at)).collect();
            let (mut into, mut apart) = (own.clone(), vec![number(0); own.len()]);
            fold(None, &mut into, &places, combine).expect("all of them lie there");
            fold(Some(&own), &mut apart, &places, combine).expect("all of them lie there");
            assert_eq!((&into, &apart), (&expected, &expected), "{many} of {len}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a segment")]
    fn folds_come_to_what_plain_loops_do() {
        folds(|bits| bits, u64::max);
        folds(|bits| (bits >> 48) as u16, u16::wrapping_mul);
        folds(|bits| (bits >> 56) as u8, u8::wrapping_add);
        folds(|bits| (bits >> 11) as f64, |left, right| left + right);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a segment")]
    fn nothing_is_folded_that_is_not_there_or_is_the_result() {
        let segment = Segment::create("fold", 4096).expect("memory");
        let memory = segment.memory();
        let mut into = [7u64; 4];
        let past = fold(None, &mut into, &[(memory, 0), (memory, 4080)], u64::max);
        assert_eq!(past, Err(Outside { offset: 4080, len: 32, size: 4096 }));
        memory.store(0, 9u64).expect("it fits");
        assert_eq!(into, [7; 4], "nothing of the first either");
        // SAFETY: the bytes are mapped while `memory` lives, aligned, and nothing else refers to them.
        let own = unsafe { std::slice::from_raw_parts_mut(memory.base_addr() as *mut u64, 4) };
        let met = fold(None, own, &[(memory, 24)], u64::wrapping_add);
        assert_eq!(met, Err(Outside { offset: 24, len: 32, size: 4096 }));
        assert_eq!(fold(None, own, &[(memory, 32)], u64::wrapping_add), Ok(()));
        assert_eq!(own, [9, 0, 0, 0]);
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

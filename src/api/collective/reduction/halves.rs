//! How half floats are combined: as `f32`, and rounded after each operation.
//!
//! An `f32` has more than twice the digits of either kind, and two more. So a sum or product of two is what
//! one rounding of the exact one would give.

use std::marker::PhantomData;

use engine::collective::Reduction;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::element::{Act, Combined, Element, Half};
use super::numbers::{ActOn, by_f32};

/// An [`Act`] with wide numbers in the place of half ones.
struct Wide<H, A>(A, PhantomData<H>);

impl<H: Half, A: Act> ActOn<f32> for Wide<H, A> {
    type Done = A::Done;

    fn by(self, combine: impl Fn(f32, f32) -> f32 + Copy) -> A::Done {
        self.0.by_halves::<H>(combine)
    }
}

macro_rules! halves {
    ($($half:ty;)*) => {$(
        impl Half for $half {
            fn widen(from: &[$half], into: &mut [f32]) {
                from.convert_to_f32_slice(into);
            }

            fn narrow(from: &[f32], into: &mut [$half]) {
                into.convert_from_f32_slice(from);
            }
        }

        impl Combined for $half {
            fn by<A: Act>(reduction: Reduction, act: A) -> A::Done {
                by_f32(<$half as Element>::TYPE, reduction, Wide::<$half, A>(act, PhantomData))
            }
        }
    )*};
}

halves! {
    f16;
    bf16;
}

/// As many are made wide at a time.
const MANY: usize = 128;

/// Combines each half float of the first with that at the same place of the second, at any alignment.
pub(super) fn each<H: Half>(into: &mut [u8], from: &[u8], combine: impl Fn(f32, f32) -> f32 + Copy) {
    let mut halves = [H::zeroed(); MANY];
    let (mut left, mut right) = ([0.0; MANY], [0.0; MANY]);
    let chunk = size_of_val(&halves);
    for (into, from) in into.chunks_mut(chunk).zip(from.chunks(chunk)) {
        let many = into.len() / size_of::<H>();
        let (halves, left, right) = (&mut halves[..many], &mut left[..many], &mut right[..many]);
        for (bytes, wide) in [(&*into, &mut *left), (from, &mut *right)] {
            bytemuck::cast_slice_mut(halves).copy_from_slice(bytes);
            H::widen(halves, wide);
        }
        vm::simd::each(left, right, combine);
        H::narrow(left, halves);
        into.copy_from_slice(bytemuck::cast_slice(halves));
    }
}

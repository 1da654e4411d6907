//! Reductions that need no function of the caller's.

use bytemuck::Pod;
use vm::simd::{each, fold};
use vm::{Outside, SharedMemory};

/// How elements are combined by [`Team::reduce`](crate::Team::reduce) and
/// [`Team::all_reduce`](crate::Team::all_reduce).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// Their sum; of integers, wrapping.
    Sum,
    /// Their product; of integers, wrapping.
    Product,
    /// The least; of floating-point numbers, one that is a number if there is one.
    Min,
    /// The greatest, likewise.
    Max,
}

/// A number that [`Reduction`]s combine: the integers of 8 to 64 bits, `f32` and `f64`. Nothing else can
/// implement it; other types are combined by functions
/// ([`Team::all_reduce_with`](crate::Team::all_reduce_with)).
pub trait Element: Pod + Number {}

/// What makes a number an [`Element`]. It cannot be named outside, so that nobody else implements it.
pub trait Number: Copy {
    /// Tells types of one size apart.
    const KIND: u16;

    /// Combines each of the first with that at the same place of the second.
    fn combine(reduction: Reduction, into: &mut [Self], from: &[Self]);

    /// As [`Combine::fold`] says.
    fn fold(
        reduction: Reduction,
        own: Option<&[Self]>,
        into: &mut [Self],
        given: &[(&SharedMemory, u64)],
    ) -> Result<(), Outside>;
}

/// What combines the values of a collective: a [`Reduction`], or a function of the caller's.
pub(crate) trait Combine<T> {
    /// Combines each of the first with that at the same place of the second.
    fn combine(&mut self, into: &mut [T], from: &[T]);

    /// Combines each of `own`, or of `into` where there is none, with those at the same place in all of these
    /// memories of others, into `into`: everything or, if that is an error, nothing.
    fn fold(
        &mut self,
        own: Option<&[T]>,
        into: &mut [T],
        given: &[(&SharedMemory, u64)],
    ) -> Result<(), Outside>;
}

impl<T: Element> Combine<T> for Reduction {
    fn combine(&mut self, into: &mut [T], from: &[T]) {
        T::combine(*self, into, from);
    }

    fn fold(
        &mut self,
        own: Option<&[T]>,
        into: &mut [T],
        given: &[(&SharedMemory, u64)],
    ) -> Result<(), Outside> {
        T::fold(*self, own, into, given)
    }
}

impl<T, F: FnMut(&mut [T], &[T])> Combine<T> for F {
    fn combine(&mut self, into: &mut [T], from: &[T]) {
        self(into, from);
    }

    fn fold(&mut self, _: Option<&[T]>, _: &mut [T], _: &[(&SharedMemory, u64)]) -> Result<(), Outside> {
        unreachable!("what a caller's function combines has an order, and is never folded")
    }
}

macro_rules! numbers {
    ($($number:ty, $kind:literal, $add:expr, $multiply:expr;)*) => {$(
        impl Element for $number {}

        impl Number for $number {
            const KIND: u16 = $kind;

            fn combine(reduction: Reduction, into: &mut [$number], from: &[$number]) {
                match reduction {
                    Reduction::Sum => each(into, from, $add),
                    Reduction::Product => each(into, from, $multiply),
                    Reduction::Min => each(into, from, <$number>::min),
                    Reduction::Max => each(into, from, <$number>::max),
                }
            }

            fn fold(
                reduction: Reduction,
                own: Option<&[$number]>,
                into: &mut [$number],
                given: &[(&SharedMemory, u64)],
            ) -> Result<(), Outside> {
                match reduction {
                    Reduction::Sum => fold(own, into, given, $add),
                    Reduction::Product => fold(own, into, given, $multiply),
                    Reduction::Min => fold(own, into, given, <$number>::min),
                    Reduction::Max => fold(own, into, given, <$number>::max),
                }
            }
        }
    )*};
}

numbers! {
    u8, 1, u8::wrapping_add, u8::wrapping_mul;
    u16, 2, u16::wrapping_add, u16::wrapping_mul;
    u32, 3, u32::wrapping_add, u32::wrapping_mul;
    u64, 4, u64::wrapping_add, u64::wrapping_mul;
    i8, 5, i8::wrapping_add, i8::wrapping_mul;
    i16, 6, i16::wrapping_add, i16::wrapping_mul;
    i32, 7, i32::wrapping_add, i32::wrapping_mul;
    i64, 8, i64::wrapping_add, i64::wrapping_mul;
    f32, 9, |a, b| a + b, |a, b| a * b;
    f64, 10, |a, b| a + b, |a, b| a * b;
}

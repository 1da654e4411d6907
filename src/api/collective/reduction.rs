//! Reductions that need no function of the caller's.

mod element;
#[cfg(feature = "half")]
mod halves;
mod located;
mod numbers;

use bytemuck::Pod;
use engine::collective::{ElementType, Elements, Function, NumberType, Reduction};
use vm::SharedMemory;
use vm::simd::{each, fold};

use crate::base::error::Error;

#[cfg(feature = "half")]
use element::Half;
use element::{Act, Combined, refused};

pub use element::Element;
pub use located::Located;

/// Combines the values of a collective: a [`Reduction`], or a function of the caller's.
pub(crate) trait Combine<T> {
    /// Combines each of the first with that at the same place of the second.
    fn combine(&mut self, into: &mut [T], from: &[T]);

    /// Combines each of `own`, or of `into` where there is none, with those at the same place in all of these
    /// memories of others, into `into`. `false`: it cannot be done, and nothing was.
    fn fold(&mut self, own: Option<&[T]>, into: &mut [T], given: &[(&SharedMemory, u64)]) -> bool;

    /// Makes of the only operands, in a team of one, what combining makes of several.
    fn settle(&mut self, values: &mut [T]);
}

/// A reduction of a type that the compiler knows.
pub(crate) struct BuiltIn(Reduction);

/// A reduction of bytes, of a type that is known at run time.
#[derive(Clone, Copy)]
pub(crate) struct BuiltInOf(ElementType, Reduction);

impl BuiltIn {
    /// The function that combines so many elements, and all that members must agree on.
    ///
    /// # Errors
    /// [`Error::NoReduction`].
    pub(crate) fn of<T: Element>(reduction: Reduction, count: u64) -> Result<(BuiltIn, Elements), Error> {
        let (_, elements) = BuiltInOf::new(T::TYPE, reduction, count)?;
        Ok((BuiltIn(reduction), elements))
    }
}

impl BuiltInOf {
    /// As [`BuiltIn::of`].
    pub(crate) fn new(
        of: ElementType,
        reduction: Reduction,
        count: u64,
    ) -> Result<(BuiltInOf, Elements), Error> {
        if !of.has(reduction) {
            return Err(Error::NoReduction { of, reduction });
        }
        let function = Function::BuiltIn(of, reduction);
        let elements = Elements { count, bytes: of.bytes() as u64, function, commutative: true };
        Ok((BuiltInOf(of, reduction), elements))
    }

    fn by<A: Act>(self, act: A) -> A::Done {
        use {ElementType as E, NumberType as N};
        let BuiltInOf(of, reduction) = self;
        macro_rules! dispatch {
            ($($(#[$cfg:meta])? $name:ident $number:ty;)*) => {
                match of {
                    $($(#[$cfg])? E::Number(N::$name) => <$number>::by(reduction, act),
                    $(#[$cfg])? E::Located(N::$name) => <Located<$number>>::by(reduction, act),)*
                    _ => refused(of, reduction),
                }
            };
        }
        dispatch! {
            U8 u8; U16 u16; U32 u32; U64 u64; I8 i8; I16 i16; I32 i32; I64 i64; F32 f32; F64 f64;
            #[cfg(feature = "half")] F16 ::half::f16;
            #[cfg(feature = "half")] Bf16 ::half::bf16;
        }
    }
}

impl<T: Element> Combine<T> for BuiltIn {
    fn combine(&mut self, into: &mut [T], from: &[T]) {
        T::by(self.0, Each { into: bytemuck::cast_slice_mut(into), from: bytemuck::cast_slice(from) });
    }

    fn fold(&mut self, own: Option<&[T]>, into: &mut [T], given: &[(&SharedMemory, u64)]) -> bool {
        let (own, into) = (own.map(bytemuck::cast_slice), bytemuck::cast_slice_mut(into));
        T::by(self.0, Fold { own, into, given })
    }

    fn settle(&mut self, values: &mut [T]) {
        BuiltInOf(T::TYPE, self.0).settle(bytemuck::cast_slice_mut(values));
    }
}

impl Combine<u8> for BuiltInOf {
    fn combine(&mut self, into: &mut [u8], from: &[u8]) {
        self.by(Each { into, from });
    }

    fn fold(&mut self, own: Option<&[u8]>, into: &mut [u8], given: &[(&SharedMemory, u64)]) -> bool {
        self.by(Fold { own, into, given })
    }

    fn settle(&mut self, values: &mut [u8]) {
        let BuiltInOf(of, reduction) = *self;
        if matches!(reduction, Reduction::LogicalAnd | Reduction::LogicalOr | Reduction::LogicalXor) {
            // The false elements, as many at a time.
            const FALSE: [u8; 4096] = [0; 4096];
            for part in values.chunks_mut(FALSE.len() / of.bytes() * of.bytes()) {
                BuiltInOf(of, Reduction::LogicalOr).combine(part, &FALSE[..part.len()]);
            }
        }
    }
}

impl<T, F: FnMut(&mut [T], &[T])> Combine<T> for F {
    fn combine(&mut self, into: &mut [T], from: &[T]) {
        self(into, from);
    }

    fn fold(&mut self, _: Option<&[T]>, _: &mut [T], _: &[(&SharedMemory, u64)]) -> bool {
        unreachable!("what a caller's function combines has an order, and is never folded")
    }

    fn settle(&mut self, _: &mut [T]) {}
}

/// Combines each element of the first with that at the same place of the second.
struct Each<'a> {
    into: &'a mut [u8],
    from: &'a [u8],
}

impl Act for Each<'_> {
    type Done = ();

    #[inline]
    fn by<P: Pod>(self, combine: impl Fn(P, P) -> P + Copy) {
        const { assert!(align_of::<P>() == 1, "bytes lie anywhere") };
        each(bytemuck::cast_slice_mut(self.into), bytemuck::cast_slice(self.from), combine);
    }

    #[cfg(feature = "half")]
    fn by_halves<H: Half>(self, combine: impl Fn(f32, f32) -> f32 + Copy) {
        halves::each::<H>(self.into, self.from, combine);
    }
}

/// As [`Combine::fold`].
struct Fold<'a> {
    own: Option<&'a [u8]>,
    into: &'a mut [u8],
    given: &'a [(&'a SharedMemory, u64)],
}

impl Act for Fold<'_> {
    type Done = bool;

    #[inline]
    fn by<P: Pod>(self, combine: impl Fn(P, P) -> P + Copy) -> bool {
        const { assert!(align_of::<P>() == 1, "bytes lie anywhere") };
        let (own, into) = (self.own.map(bytemuck::cast_slice), bytemuck::cast_slice_mut(self.into));
        fold(own, into, self.given, combine).is_ok()
    }

    /// Half floats are made wide in memory of this process's own, and so combined by strips.
    #[cfg(feature = "half")]
    fn by_halves<H: Half>(self, _: impl Fn(f32, f32) -> f32 + Copy) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;

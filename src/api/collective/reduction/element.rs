//! Types of elements that can be combined.

use bytemuck::Pod;
use engine::collective::{ElementType, Reduction};

/// [`Reduction`]s combine these: the integers of 8 to 64 bits, `f32` and `f64`; with the feature `half` also
/// `half::f16` and `half::bf16`; and each of these with an index, as [`Located`](crate::Located). Nothing
/// else can implement it; other types are combined by functions
/// ([`Team::all_reduce_with`](crate::Team::all_reduce_with)).
pub trait Element: Pod + Combined {
    /// Its name at run time.
    const TYPE: ElementType;
}

/// Makes a type an [`Element`]. It cannot be named outside, so that nobody else implements it.
pub trait Combined {
    /// Lets `act` do with elements of this type what combines them.
    ///
    /// # Panics
    /// When the type has no such reduction.
    fn by<A: Act>(reduction: Reduction, act: A) -> A::Done;
}

/// A task for elements in bytes, once it is known how to combine them.
pub trait Act {
    /// Its result.
    type Done;

    /// Does it, with elements that need no alignment.
    fn by<P: Pod>(self, combine: impl Fn(P, P) -> P + Copy) -> Self::Done;

    /// Does it with half floats.
    #[cfg(feature = "half")]
    fn by_halves<H: Half>(self, combine: impl Fn(f32, f32) -> f32 + Copy) -> Self::Done;
}

/// Half floats of either kind.
#[cfg(feature = "half")]
pub trait Half: Pod {
    /// Makes as many wide ones.
    fn widen(from: &[Self], into: &mut [f32]);

    /// The nearest half floats, of two that are as near the even ones.
    fn narrow(from: &[f32], into: &mut [Self]);
}

/// A combination that no type has is refused before anything is begun.
#[cold]
pub(super) fn refused(of: ElementType, reduction: Reduction) -> ! {
    unreachable!("{of} has no {reduction}, which was to be looked at before")
}

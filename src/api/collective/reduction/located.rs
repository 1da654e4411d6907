//! Numbers with an index.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use engine::collective::{ElementType, NumberType, Reduction};

use super::element::{Act, Combined, Element, refused};

/// A number that may come with an index, as [`Located`].
pub trait Value: Pod + PartialOrd {
    /// Its name at run time.
    const TYPE: NumberType;

    /// Whether it is none, and neither less than any nor greater.
    fn is_nan(self) -> bool;

    /// Tells those apart that are neither less nor greater than each other.
    fn bits(self) -> u64;
}

/// A number with where it was found, such as a rank or a place in an array: of these [`Reduction::Min`] and
/// [`Reduction::Max`] give the least or the greatest number and its index. They have no other reduction.
///
/// Of equal numbers, as `0.0` and `-0.0` are, it is the one with the lowest index. NaN is taken only where
/// all values are NaN, and the one with the lowest index then. So the result is the same in whatever order
/// elements are combined. Where the index is the same, too, it is the one with the lesser bits.
///
/// It is plain old data, without padding and alignment: the bytes of the number, and then those of the index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Located<T> {
    value: T,
    index: u64,
}

impl<T: Copy> Located<T> {
    /// A number that was found there.
    pub const fn new(value: T, index: u64) -> Located<T> {
        Located { value, index }
    }

    /// The number.
    pub const fn value(self) -> T {
        self.value
    }

    /// Where it was found.
    pub const fn index(self) -> u64 {
        self.index
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Located { value, index } = *self;
        f.debug_struct("Located").field("value", &value).field("index", &index).finish()
    }
}

impl<T: Value> Element for Located<T> {
    const TYPE: ElementType = ElementType::Located(T::TYPE);
}

impl<T: Value> Combined for Located<T> {
    fn by<A: Act>(reduction: Reduction, act: A) -> A::Done {
        match reduction {
            Reduction::Min => act.by(|a, b| first(a, b, |a: T, b: T| a < b)),
            Reduction::Max => act.by(|a, b| first(a, b, |a: T, b: T| a > b)),
            _ => refused(Self::TYPE, reduction),
        }
    }
}

/// The first of two in an order of all: by number, by index, and by bits.
#[inline(always)]
fn first<T: Value>(a: Located<T>, b: Located<T>, is_before: impl Fn(T, T) -> bool) -> Located<T> {
    let (left, right) = (a.value, b.value);
    let is_tie = !is_before(left, right) && !is_before(right, left) && left.is_nan() == right.is_nan();
    let is_left = match is_tie {
        true => (a.index, left.bits()) <= (b.index, right.bits()),
        false => is_before(left, right) || right.is_nan(),
    };
    if is_left { a } else { b }
}

//! How numbers are combined.

use bytemuck::{Pod, Zeroable};
use engine::collective::{ElementType, NumberType, Reduction};

use super::element::{Act, Combined, Element, refused};
use super::located::Value;

/// A number at any address.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, packed)]
struct Packed<T>(T);

/// As [`Act`], of numbers of one type.
pub(super) trait ActOn<T> {
    /// Its result.
    type Done;

    /// Does it.
    fn by(self, combine: impl Fn(T, T) -> T + Copy) -> Self::Done;
}

/// An [`Act`] with numbers as they are.
struct Plain<A>(A);

impl<T: Pod, A: Act> ActOn<T> for Plain<A> {
    type Done = A::Done;

    #[inline]
    fn by(self, combine: impl Fn(T, T) -> T + Copy) -> A::Done {
        self.0.by(move |a: Packed<T>, b: Packed<T>| Packed(combine(a.0, b.0)))
    }
}

macro_rules! elements {
    ($($number:ty, $name:ident, $is_nan:expr;)*) => {$(
        impl Element for $number {
            const TYPE: ElementType = ElementType::Number(NumberType::$name);
        }

        impl Value for $number {
            const TYPE: NumberType = NumberType::$name;

            #[inline(always)]
            fn is_nan(self) -> bool {
                $is_nan(self)
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                let mut word = [0; 8];
                word[..size_of::<$number>()].copy_from_slice(&self.to_le_bytes());
                u64::from_le_bytes(word)
            }
        }
    )*};
}

elements! {
    u8, U8, |_| false;
    u16, U16, |_| false;
    u32, U32, |_| false;
    u64, U64, |_| false;
    i8, I8, |_| false;
    i16, I16, |_| false;
    i32, I32, |_| false;
    i64, I64, |_| false;
    f32, F32, f32::is_nan;
    f64, F64, f64::is_nan;
}

#[cfg(feature = "half")]
elements! {
    half::f16, F16, half::f16::is_nan;
    half::bf16, Bf16, half::bf16::is_nan;
}

macro_rules! integers {
    ($($unsigned:ty, $signed:ty;)*) => {$(
        impl Combined for $unsigned {
            #[inline]
            fn by<A: Act>(reduction: Reduction, act: A) -> A::Done {
                type Number = $unsigned;
                let act = Plain(act);
                match reduction {
                    Reduction::Sum => act.by(Number::wrapping_add),
                    Reduction::Product => act.by(Number::wrapping_mul),
                    Reduction::Min => act.by(Number::min),
                    Reduction::Max => act.by(Number::max),
                    Reduction::LogicalAnd => act.by(|a: Number, b| Number::from(a != 0 && b != 0)),
                    Reduction::LogicalOr => act.by(|a: Number, b| Number::from(a != 0 || b != 0)),
                    Reduction::LogicalXor => act.by(|a: Number, b| Number::from((a != 0) != (b != 0))),
                    _ => by_bits(<$unsigned as Element>::TYPE, reduction, act.0),
                }
            }
        }

        impl Combined for $signed {
            #[inline]
            fn by<A: Act>(reduction: Reduction, act: A) -> A::Done {
                match reduction {
                    Reduction::Min => Plain(act).by(<$signed>::min),
                    Reduction::Max => Plain(act).by(<$signed>::max),
                    // All others are the same for the same bits.
                    _ => <$unsigned>::by(reduction, act),
                }
            }
        }
    )*};
}

integers! {
    u8, i8;
    u16, i16;
    u32, i32;
    u64, i64;
}

/// The part that is the same for integers of all types, byte by byte.
fn by_bits<A: Act>(of: ElementType, reduction: Reduction, act: A) -> A::Done {
    match reduction {
        Reduction::BitAnd => act.by(|a: u8, b| a & b),
        Reduction::BitOr => act.by(|a: u8, b| a | b),
        Reduction::BitXor => act.by(|a: u8, b| a ^ b),
        _ => refused(of, reduction),
    }
}

macro_rules! floats {
    ($($number:ty, $by:ident;)*) => {$(
        impl Combined for $number {
            #[inline]
            fn by<A: Act>(reduction: Reduction, act: A) -> A::Done {
                $by(<$number as Element>::TYPE, reduction, Plain(act))
            }
        }

        /// Lets `act` do with numbers of this type, which are what `of` is made to be, what combines them.
        #[inline]
        pub(super) fn $by<A: ActOn<$number>>(of: ElementType, reduction: Reduction, act: A) -> A::Done {
            type Number = $number;
            match reduction {
                Reduction::Sum => act.by(|a, b| a + b),
                Reduction::Product => act.by(|a, b| a * b),
                Reduction::Min => act.by(Number::min),
                Reduction::Max => act.by(Number::max),
                Reduction::LogicalAnd => act.by(|a, b| Number::from(a != 0.0 && b != 0.0)),
                Reduction::LogicalOr => act.by(|a, b| Number::from(a != 0.0 || b != 0.0)),
                Reduction::LogicalXor => act.by(|a, b| Number::from((a != 0.0) != (b != 0.0))),
                _ => refused(of, reduction),
            }
        }
    )*};
}

floats! {
    f32, by_f32;
    f64, by_f64;
}

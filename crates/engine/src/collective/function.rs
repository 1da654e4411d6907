//! The types and operations of reductions, with numbers that all members, and faces in other languages, know
//! them by.

use std::fmt;

/// How elements are combined by the teams' reductions.
///
/// Bitwise operations are of integers only. Logical ones are of any number: zero is false, anything else is
/// true, what is no number (NaN) as well, and the result is 0 or 1. A [located](ElementType::Located) number
/// has the least and the greatest only.
///
/// Half floats are combined two at a time as `f32`, and each result is rounded to the nearest half float. So
/// a sum of two is what rounding the exact sum once gives, and one of many loses as much as 16 bits do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reduction {
    /// Their sum; of integers, wrapping.
    Sum = 1,
    /// Their product; of integers, wrapping.
    Product = 2,
    /// The least; of floating-point numbers, one that is a number if there is one. Of `0.0` and `-0.0` it is
    /// either.
    Min = 3,
    /// The greatest, likewise.
    Max = 4,
    /// The bits that all have.
    BitAnd = 5,
    /// The bits that any has.
    BitOr = 6,
    /// The bits that an odd number of them have.
    BitXor = 7,
    /// Whether all are true.
    LogicalAnd = 8,
    /// Whether any is true.
    LogicalOr = 9,
    /// Whether an odd number of them are true.
    LogicalXor = 10,
}

impl Reduction {
    /// All of them, in the order of their numbers.
    pub const ALL: &'static [Reduction] = &[
        Reduction::Sum,
        Reduction::Product,
        Reduction::Min,
        Reduction::Max,
        Reduction::BitAnd,
        Reduction::BitOr,
        Reduction::BitXor,
        Reduction::LogicalAnd,
        Reduction::LogicalOr,
        Reduction::LogicalXor,
    ];

    /// Its number, from 1, which does not change.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The one of a number; `None`: this version knows none.
    pub fn from_number(number: u8) -> Option<Reduction> {
        Reduction::ALL.iter().copied().find(|reduction| reduction.number() == number)
    }

    /// Its name: lower case, with hyphens.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Product => "product",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::BitAnd => "bit-and",
            Reduction::BitOr => "bit-or",
            Reduction::BitXor => "bit-xor",
            Reduction::LogicalAnd => "logical-and",
            Reduction::LogicalOr => "logical-or",
            Reduction::LogicalXor => "logical-xor",
        }
    }
}

impl fmt::Display for Reduction {
    /// Its [name](Reduction::name).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A type of numbers, for callers who know it at run time only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum NumberType {
    /// `u8`.
    U8 = 1,
    /// `u16`.
    U16 = 2,
    /// `u32`.
    U32 = 3,
    /// `u64`.
    U64 = 4,
    /// `i8`.
    I8 = 5,
    /// `i16`.
    I16 = 6,
    /// `i32`.
    I32 = 7,
    /// `i64`.
    I64 = 8,
    /// `f32`.
    F32 = 9,
    /// `f64`.
    F64 = 10,
    /// `half::f16`: the 16 bits of IEEE 754. Without the feature `half` it has no reductions.
    F16 = 11,
    /// `half::bf16`: the upper 16 bits of an `f32`. Without the feature `half` it has no reductions.
    Bf16 = 12,
}

impl NumberType {
    /// All of them, in the order of their numbers.
    pub const ALL: &'static [NumberType] = &[
        NumberType::U8,
        NumberType::U16,
        NumberType::U32,
        NumberType::U64,
        NumberType::I8,
        NumberType::I16,
        NumberType::I32,
        NumberType::I64,
        NumberType::F32,
        NumberType::F64,
        NumberType::F16,
        NumberType::Bf16,
    ];

    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        match self {
            NumberType::U8 | NumberType::I8 => 1,
            NumberType::U16 | NumberType::I16 | NumberType::F16 | NumberType::Bf16 => 2,
            NumberType::U32 | NumberType::I32 | NumberType::F32 => 4,
            NumberType::U64 | NumberType::I64 | NumberType::F64 => 8,
        }
    }

    /// Its name, as Rust and `half` call it.
    pub const fn name(self) -> &'static str {
        match self {
            NumberType::U8 => "u8",
            NumberType::U16 => "u16",
            NumberType::U32 => "u32",
            NumberType::U64 => "u64",
            NumberType::I8 => "i8",
            NumberType::I16 => "i16",
            NumberType::I32 => "i32",
            NumberType::I64 => "i64",
            NumberType::F32 => "f32",
            NumberType::F64 => "f64",
            NumberType::F16 => "f16",
            NumberType::Bf16 => "bf16",
        }
    }

    const fn is_integer(self) -> bool {
        !matches!(self, NumberType::F32 | NumberType::F64) && !self.is_half()
    }

    const fn is_half(self) -> bool {
        matches!(self, NumberType::F16 | NumberType::Bf16)
    }
}

impl fmt::Display for NumberType {
    /// Its [name](NumberType::name).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of a reduction's elements, for callers that know it at run time only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// Numbers.
    Number(NumberType),
    /// Numbers that each come with where they were found: the bytes of the number, and then, with nothing in
    /// between, those of a `u64`.
    Located(NumberType),
}

impl ElementType {
    /// The number of a located type is that of its number's type and this.
    const LOCATED: u8 = 0x40;

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            ElementType::Number(number) => number.bytes(),
            ElementType::Located(number) => number.bytes() + size_of::<u64>(),
        }
    }

    /// Its number, from 1, which does not change: of a type of numbers its place in [`NumberType::ALL`], and
    /// 64 more where they are located.
    pub const fn number(self) -> u8 {
        match self {
            ElementType::Number(number) => number as u8,
            ElementType::Located(number) => number as u8 + ElementType::LOCATED,
        }
    }

    /// The one of a number; `None`: this version knows none.
    pub fn from_number(number: u8) -> Option<ElementType> {
        let of = |wanted: u8| NumberType::ALL.iter().copied().find(|number| *number as u8 == wanted);
        match number.checked_sub(ElementType::LOCATED) {
            Some(located) => of(located).map(ElementType::Located),
            None => of(number).map(ElementType::Number),
        }
    }

    /// Whether there is such a reduction of it, in a library that was built as this one.
    pub const fn has(self, reduction: Reduction) -> bool {
        let (ElementType::Number(number) | ElementType::Located(number)) = self;
        if number.is_half() && !cfg!(feature = "half") {
            return false;
        }
        match (self, reduction) {
            (_, Reduction::Min | Reduction::Max) => true,
            (ElementType::Located(_), _) => false,
            (_, Reduction::BitAnd | Reduction::BitOr | Reduction::BitXor) => number.is_integer(),
            _ => true,
        }
    }
}

impl From<NumberType> for ElementType {
    fn from(number: NumberType) -> ElementType {
        ElementType::Number(number)
    }
}

impl fmt::Display for ElementType {
    /// The name of its number's type, and whether it is located.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementType::Number(number) => number.fmt(f),
            ElementType::Located(number) => write!(f, "located {number}"),
        }
    }
}

/// The function that combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// One that every member has.
    BuiltIn(ElementType, Reduction),
    /// The caller's.
    Own,
}

/// The bit that the word of a caller's own function has, in front of the elements' size.
const OWN: u32 = 1 << 23;

/// The bit that stands for a size of elements that no word has room for, in front of what is left of it.
const LARGE: u32 = 1 << 22;

impl Function {
    /// Where nothing is combined.
    pub(super) const NONE: u32 = 0;

    /// Bits of a [word](Function::word).
    pub(crate) const BITS: u32 = 24;

    /// A function and the size of its elements, as they stand in messages. Different ones have different
    /// words, but for sizes from 4 MiB on, of which one in four million has the same.
    pub(super) const fn word(self, bytes: u64) -> u32 {
        match self {
            Function::BuiltIn(of, reduction) => (of.number() as u32) << 8 | reduction.number() as u32,
            Function::Own if bytes < LARGE as u64 => OWN | bytes as u32,
            Function::Own => {
                let mixed = bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                OWN | LARGE | (mixed >> (64 - LARGE.trailing_zeros())) as u32
            }
        }
    }

    /// Says what a word stands for, whatever a peer has sent.
    pub(super) fn describe(word: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if word & OWN != 0 {
            f.write_str("by a function of its own on elements of ")?;
            return match word & LARGE {
                0 => write!(f, "{} bytes", word & (LARGE - 1)),
                _ => f.write_str("4 MiB or more"),
            };
        }
        let [_, _, of, by] = word.to_be_bytes();
        match (ElementType::from_number(of), Reduction::from_number(by)) {
            (Some(of), Some(by)) => write!(f, "by {by} of {of}"),
            _ => f.write_str("by an unknown function"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> Vec<ElementType> {
        let numbers = NumberType::ALL.iter().copied();
        numbers.flat_map(|number| [ElementType::Number(number), ElementType::Located(number)]).collect()
    }

    /// What is never to change: programs in other languages have the numbers.
    #[test]
    fn numbers_and_names_are_as_they_ever_were() {
        let numbers: Vec<String> =
            types().iter().map(|of| format!("{} {of} {}", of.number(), of.bytes())).collect();
        assert_eq!(
            numbers.join(", "),
            "1 u8 1, 65 located u8 9, 2 u16 2, 66 located u16 10, 3 u32 4, 67 located u32 12, 4 u64 8, \
             68 located u64 16, 5 i8 1, 69 located i8 9, 6 i16 2, 70 located i16 10, 7 i32 4, \
             71 located i32 12, 8 i64 8, 72 located i64 16, 9 f32 4, 73 located f32 12, 10 f64 8, \
             74 located f64 16, 11 f16 2, 75 located f16 10, 12 bf16 2, 76 located bf16 10"
        );
        let reductions: Vec<String> =
            Reduction::ALL.iter().map(|by| format!("{} {by}", by.number())).collect();
        assert_eq!(
            reductions.join(", "),
            "1 sum, 2 product, 3 min, 4 max, 5 bit-and, 6 bit-or, 7 bit-xor, 8 logical-and, 9 logical-or, \
             10 logical-xor"
        );
    }

    #[test]
    fn numbers_lead_back_to_what_they_are_of() {
        let known = (0..=u8::MAX).filter_map(|number| Some((number, ElementType::from_number(number)?)));
        let known: Vec<_> = known.collect();
        assert_eq!(known.len(), types().len());
        assert!(known.iter().all(|(number, of)| of.number() == *number));
        let known: Vec<_> = (0..=u8::MAX).filter_map(Reduction::from_number).collect();
        assert_eq!(known, Reduction::ALL);
    }

    #[test]
    fn only_integers_have_bits_and_located_numbers_are_the_least_or_the_greatest() {
        let halves = if cfg!(feature = "half") { 2 } else { 0 };
        let have = |by: Reduction| types().into_iter().filter(|of| of.has(by)).count();
        assert_eq!((have(Reduction::Sum), have(Reduction::LogicalXor)), (10 + halves, 10 + halves));
        assert_eq!((have(Reduction::Min), have(Reduction::Max)), (20 + 2 * halves, 20 + 2 * halves));
        assert_eq!((have(Reduction::BitAnd), have(Reduction::BitOr), have(Reduction::BitXor)), (8, 8, 8));
        assert!(!ElementType::Number(NumberType::F64).has(Reduction::BitXor));
        assert!(!ElementType::Located(NumberType::I32).has(Reduction::Sum));
    }

    struct Described(u32);

    impl fmt::Display for Described {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Function::describe(self.0, f)
        }
    }

    #[test]
    fn words_say_what_they_are_of() {
        let said = |function: Function, bytes| Described(function.word(bytes)).to_string();
        let sum = Function::BuiltIn(NumberType::Bf16.into(), Reduction::Sum);
        assert_eq!(said(sum, 2), "by sum of bf16");
        let located = Function::BuiltIn(ElementType::Located(NumberType::F64), Reduction::Max);
        assert_eq!(said(located, 16), "by max of located f64");
        assert_eq!(said(Function::Own, 6), "by a function of its own on elements of 6 bytes");
        let largest = u64::from(LARGE) - 1;
        assert_eq!(said(Function::Own, largest), "by a function of its own on elements of 4194303 bytes");
        for bytes in [largest + 1, 1 << 32, u64::MAX] {
            assert_eq!(said(Function::Own, bytes), "by a function of its own on elements of 4 MiB or more");
        }
        assert_ne!(Function::Own.word(largest + 1), Function::Own.word(2 * (largest + 1)));
        for word in [0, 1, 0xff, 0xd01, 0x4001, u32::MAX >> 9] {
            assert_eq!(Described(word).to_string(), "by an unknown function", "{word:#x}");
        }
    }

    #[test]
    fn all_words_are_different_and_short_enough() {
        let built_in = types().into_iter().flat_map(|of| {
            Reduction::ALL.iter().map(move |by| Function::BuiltIn(of, *by).word(of.bytes() as u64))
        });
        let own = (1..2000).chain([1 << 22, 3 << 22, 1 << 40]).map(|bytes| Function::Own.word(bytes));
        let mut words: Vec<u32> = built_in.chain(own).collect();
        assert!(words.iter().all(|word| *word != Function::NONE && *word < 1 << Function::BITS));
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}

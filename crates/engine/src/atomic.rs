//! Atomics on words of 4 and 8 bytes: what can be done to one, and how that is told to its owner.

use std::cmp::Ordering;
use std::fmt;

use crate::Rights;

/// The type of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WordType {
    /// 4 bytes, unsigned.
    U32,
    /// 4 bytes, signed.
    I32,
    /// 8 bytes, unsigned.
    U64,
    /// 8 bytes, signed.
    I64,
    /// 4 bytes, a floating-point number.
    F32,
    /// 8 bytes, a floating-point number.
    F64,
}

impl WordType {
    /// All of them.
    pub const ALL: [WordType; 6] =
        [WordType::U32, WordType::I32, WordType::U64, WordType::I64, WordType::F32, WordType::F64];

    /// Bytes of the word, which lies at a multiple of them.
    #[inline(always)]
    pub const fn size(self) -> u64 {
        match self {
            WordType::U32 | WordType::I32 | WordType::F32 => 4,
            WordType::U64 | WordType::I64 | WordType::F64 => 8,
        }
    }

    /// Whether the word is a floating-point number.
    #[inline(always)]
    pub const fn is_float(self) -> bool {
        matches!(self, WordType::F32 | WordType::F64)
    }
}

impl fmt::Display for WordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WordType::U32 => "u32",
            WordType::I32 => "i32",
            WordType::U64 => "u64",
            WordType::I64 => "i64",
            WordType::F32 => "f32",
            WordType::F64 => "f64",
        })
    }
}

/// The new word that an atomic makes of a word and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicOp {
    /// Their sum, wrapping; of floating-point numbers, rounded to the nearest.
    Add,
    /// The bits that both have. Of integers only.
    And,
    /// The bits that either has. Of integers only.
    Or,
    /// The bits in which they differ. Of integers only.
    Xor,
    /// The smaller one, as the word's type counts. Of floating-point numbers, -0.0 is less than 0.0, and any
    /// number is taken before a NaN.
    Min,
    /// The greater one, as the word's type counts; of floating-point numbers as for [`AtomicOp::Min`].
    Max,
    /// The value.
    Swap,
}

impl AtomicOp {
    /// All of them.
    pub const ALL: [AtomicOp; 7] = [
        AtomicOp::Add,
        AtomicOp::And,
        AtomicOp::Or,
        AtomicOp::Xor,
        AtomicOp::Min,
        AtomicOp::Max,
        AtomicOp::Swap,
    ];

    /// Whether words of that type have it: floating-point numbers have no operations on bits.
    #[inline(always)]
    pub const fn is_for(self, word: WordType) -> bool {
        !(word.is_float() && matches!(self, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor))
    }
}

/// How a word is changed. Values are the words' bits; of words of 4 bytes the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// By an operation with this value.
    Apply(AtomicOp, u64),
    /// Stores `new` if the word holds `expected`, bit by bit: of floating-point numbers, 0.0 is not -0.0, and
    /// a NaN is itself.
    CompareSwap {
        /// The word that it expects.
        expected: u64,
        /// The word that it then gets.
        new: u64,
    },
}

/// An atomic operation on one aligned word; the old value is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// The word's type.
    pub word: WordType,
    /// How it changes.
    pub change: Change,
    /// Whether threads of the owner that sleep are to look at the word then.
    pub signals: bool,
    /// Whether nobody asks for the word from before. Then a word in a grant need not be granted for reading,
    /// and its owner does not tell it. Words of heaps are told nonetheless.
    pub blind: bool,
}

/// Where the word's type stands in what [`Atomic::to_wire`] says first, and whether it signals; below them
/// the change.
const TYPE_SHIFT: u32 = 8;
const SIGNALS_SHIFT: u32 = 16;

/// The number of [`Change::CompareSwap`], after those of [`AtomicOp::ALL`].
const COMPARE_SWAP: u64 = AtomicOp::ALL.len() as u64;

impl Atomic {
    /// A change of a word of that type.
    #[inline(always)]
    pub const fn new(word: WordType, change: Change) -> Atomic {
        Atomic { word, change, signals: false, blind: false }
    }

    /// Adds to a word of 8 bytes, wrapping.
    #[inline(always)]
    pub const fn fetch_add(value: u64) -> Atomic {
        Atomic::new(WordType::U64, Change::Apply(AtomicOp::Add, value))
    }

    /// Stores `new` in a word of 8 bytes if it holds `expected`.
    #[inline(always)]
    pub const fn compare_swap(expected: u64, new: u64) -> Atomic {
        Atomic::new(WordType::U64, Change::CompareSwap { expected, new })
    }

    /// Leaves a word of that type as it is, so that the old value is all that comes of it. Nothing but a swap
    /// for what is there already leaves words of all types alone: a sum of -0.0 and 0.0 is 0.0.
    #[inline(always)]
    pub const fn load(word: WordType) -> Atomic {
        Atomic::new(word, Change::CompareSwap { expected: 0, new: 0 })
    }

    /// Stores these bits in a word of that type.
    #[inline(always)]
    pub const fn store(word: WordType, bits: u64) -> Atomic {
        Atomic::new(word, Change::Apply(AtomicOp::Swap, bits))
    }

    /// Bytes of the word.
    #[inline(always)]
    pub const fn size(self) -> u64 {
        self.word.size()
    }

    /// The same, of which nobody asks for the word from before.
    #[inline(always)]
    pub const fn without_old(self) -> Atomic {
        Atomic { blind: true, ..self }
    }

    /// Whether it may change the word: all do but a swap of a word for itself, as a [load](Atomic::load) is.
    #[inline(always)]
    pub const fn may_change(self) -> bool {
        !matches!(self.change, Change::CompareSwap { expected, new } if expected == new)
    }

    /// The rights that it needs where its word is in a grant: to read what it tells, and to write what it may
    /// change.
    pub const fn rights(self) -> Rights {
        match (self.blind, self.may_change()) {
            (true, _) => Rights::Write,
            (false, true) => Rights::ReadWrite,
            (false, false) => Rights::Read,
        }
    }

    /// The operation, if words of that type have none such: then nobody does it.
    #[inline(always)]
    pub const fn impossible(self) -> Option<AtomicOp> {
        match self.change {
            Change::Apply(op, _) if !op.is_for(self.word) => Some(op),
            _ => None,
        }
    }

    /// The word that takes the place of `old`: itself, where words of that type have no such operation.
    #[inline]
    pub fn apply(self, old: u64) -> u64 {
        let (op, value) = match self.change {
            Change::Apply(op, value) => (op, value),
            Change::CompareSwap { expected, new } => return if old == expected { new } else { old },
        };
        let value_is_less = match self.word {
            WordType::U32 | WordType::U64 => value < old,
            WordType::I32 => (value as i32) < (old as i32),
            WordType::I64 => (value as i64) < (old as i64),
            WordType::F32 | WordType::F64 => return self.apply_to_float(op, old, value),
        };
        match op {
            AtomicOp::Add if self.size() == 4 => u64::from((old as u32).wrapping_add(value as u32)),
            AtomicOp::Add => old.wrapping_add(value),
            AtomicOp::And => old & value,
            AtomicOp::Or => old | value,
            AtomicOp::Xor => old ^ value,
            AtomicOp::Min if value_is_less => value,
            AtomicOp::Max if !value_is_less => value,
            AtomicOp::Min | AtomicOp::Max => old,
            AtomicOp::Swap => value,
        }
    }

    /// As [`Atomic::apply`], of a floating-point number.
    fn apply_to_float(self, op: AtomicOp, old: u64, value: u64) -> u64 {
        /// Their sum's bits, which of the two is a number, and their order.
        macro_rules! both {
            ($old:expr, $value:expr) => {{
                let (old, value) = ($old, $value);
                (u64::from((old + value).to_bits()), !old.is_nan(), !value.is_nan(), value.total_cmp(&old))
            }};
        }
        let (sum, old_counts, value_counts, order) = match self.word {
            WordType::F32 => both!(f32::from_bits(old as u32), f32::from_bits(value as u32)),
            _ => both!(f64::from_bits(old), f64::from_bits(value)),
        };
        let is_taken = |wanted| value_counts && (!old_counts || order == wanted);
        match op {
            AtomicOp::Add => sum,
            AtomicOp::Min if is_taken(Ordering::Less) => value,
            AtomicOp::Max if is_taken(Ordering::Greater) => value,
            AtomicOp::Swap => value,
            AtomicOp::Min | AtomicOp::Max | AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => old,
        }
    }

    /// Applies it to the word that these bytes are, and returns what they were; `None` where they are not as
    /// many as the word has. For memory that nobody else uses meanwhile.
    pub fn apply_to(self, bytes: &mut [u8]) -> Option<u64> {
        if self.size() == 4 {
            let old = u32::from_ne_bytes((&*bytes).try_into().ok()?);
            bytes.copy_from_slice(&(self.apply(u64::from(old)) as u32).to_ne_bytes());
            return Some(u64::from(old));
        }
        let old = u64::from_ne_bytes((&*bytes).try_into().ok()?);
        bytes.copy_from_slice(&self.apply(old).to_ne_bytes());
        Some(old)
    }

    /// The same, of which the owner's threads that sleep are told.
    pub(crate) const fn signalling(self) -> Atomic {
        Atomic { signals: true, ..self }
    }

    /// The action, and the value, of an operation that signals; `None` for a compare-and-swap, which has two
    /// values.
    pub(crate) const fn to_signal(self) -> Option<(u16, u64)> {
        match self.change {
            Change::Apply(op, value) => Some((op as u16 | (self.word as u16) << TYPE_SHIFT, value)),
            Change::CompareSwap { .. } => None,
        }
    }

    /// Whether [`Atomic::to_signal`] can say it.
    pub(crate) const fn fits_signal(self) -> bool {
        matches!(self.change, Change::Apply(..))
    }

    /// The operation that [`Atomic::to_signal`] says so, if it says one.
    pub(crate) fn from_signal(what: u16, value: u64) -> Option<Atomic> {
        let atomic = Atomic::from_wire([u64::from(what), value, 0])?;
        matches!(atomic.change, Change::Apply(..)).then_some(atomic.signalling())
    }

    /// Three words that say it: what is done, below 2^17, and two values. Whether anybody asks for the word
    /// from before is not among them.
    pub const fn to_wire(self) -> [u64; 3] {
        let (number, first, second) = match self.change {
            Change::Apply(op, value) => (op as u64, value, 0),
            Change::CompareSwap { expected, new } => (COMPARE_SWAP, expected, new),
        };
        let what = number | (self.word as u64) << TYPE_SHIFT | (self.signals as u64) << SIGNALS_SHIFT;
        [what, first, second]
    }

    /// The atomic that three words say, if they say one.
    pub fn from_wire([what, first, second]: [u64; 3]) -> Option<Atomic> {
        let signals = match what >> SIGNALS_SHIFT {
            0 => false,
            1 => true,
            _ => return None,
        };
        let word = *WordType::ALL.get(usize::from((what >> TYPE_SHIFT) as u8))?;
        let change = match what & ((1 << TYPE_SHIFT) - 1) {
            COMPARE_SWAP => Change::CompareSwap { expected: first, new: second },
            number => Change::Apply(*AtomicOp::ALL.get(usize::try_from(number).ok()?)?, first),
        };
        let fits = word.size() == 8 || (first | second) >> 32 == 0;
        let atomic = Atomic { word, change, signals, blind: false };
        (fits && atomic.impossible().is_none()).then_some(atomic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each operation does, written out on the types themselves.
    macro_rules! model {
        ($type:ty, $change:expr, $old:expr) => {{
            let old = $old as $type;
            (match $change {
                Change::Apply(AtomicOp::Add, value) => old.wrapping_add(value as $type),
                Change::Apply(AtomicOp::And, value) => old & value as $type,
                Change::Apply(AtomicOp::Or, value) => old | value as $type,
                Change::Apply(AtomicOp::Xor, value) => old ^ value as $type,
                Change::Apply(AtomicOp::Min, value) => old.min(value as $type),
                Change::Apply(AtomicOp::Max, value) => old.max(value as $type),
                Change::Apply(AtomicOp::Swap, value) => value as $type,
                Change::CompareSwap { expected, new } if old == expected as $type => new as $type,
                Change::CompareSwap { .. } => old,
            })
            .to_ne_bytes()
            .to_vec()
        }};
    }

    /// The same for floating-point numbers.
    macro_rules! float_model {
        ($type:ty, $bits:ty, $change:expr, $old:expr) => {{
            let of = |bits: u64| <$type>::from_bits(bits as $bits);
            let old = of($old);
            // Zeros by their signs; a number before what is none.
            let first = |a: $type, b: $type| match (a == b, a.is_nan(), b.is_nan()) {
                (true, ..) => a.is_sign_negative() >= b.is_sign_negative(),
                (_, false, false) => a < b,
                (_, a_is_nan, _) => !a_is_nan,
            };
            (match $change {
                Change::Apply(AtomicOp::Add, value) => old + of(value),
                Change::Apply(AtomicOp::Min, value) if first(old, of(value)) => old,
                Change::Apply(AtomicOp::Min, value) => of(value),
                Change::Apply(AtomicOp::Max, value)
                    if of(value).is_nan() || !old.is_nan() && first(of(value), old) =>
                {
                    old
                }
                Change::Apply(AtomicOp::Max | AtomicOp::Swap, value) => of(value),
                Change::CompareSwap { expected, new } if $old == expected => of(new),
                Change::CompareSwap { .. } | Change::Apply(..) => old,
            })
            .to_bits()
            .to_ne_bytes()
            .to_vec()
        }};
    }

    /// Whether the bytes are no number; which of those it is, is the processor's to say.
    fn is_nan(word: WordType, bytes: &[u8]) -> bool {
        match word {
            WordType::F32 => f32::from_ne_bytes(bytes.try_into().expect("4 bytes")).is_nan(),
            WordType::F64 => f64::from_ne_bytes(bytes.try_into().expect("8 bytes")).is_nan(),
            _ => false,
        }
    }

    fn atomics() -> impl Strategy<Value = (Atomic, u64)> {
        let edges = prop_oneof![
            any::<u64>(),
            0_u64..3,
            Just(u64::MAX),
            Just(1 << 31),
            Just(1 << 63),
            any::<f64>().prop_map(f64::to_bits),
            any::<f32>().prop_map(|value| u64::from(value.to_bits())),
        ];
        (0_usize..6, 0_usize..8, [edges.clone(), edges.clone(), edges])
            .prop_map(|(word, op, [old, first, second])| {
                let word = WordType::ALL[word];
                let cut = |value: u64| if word.size() == 4 { value & u64::from(u32::MAX) } else { value };
                let (old, first, second) = (cut(old), cut(first), cut(second));
                let change = match AtomicOp::ALL.get(op) {
                    Some(op) => Change::Apply(*op, first),
                    None => Change::CompareSwap { expected: first, new: second },
                };
                (Atomic { word, change, signals: old % 2 == 1, blind: false }, old)
            })
            .prop_filter("an operation of that type", |(atomic, _)| atomic.impossible().is_none())
    }

    #[test]
    fn floats_have_no_operations_on_bits() {
        for (word, op) in WordType::ALL.iter().flat_map(|word| AtomicOp::ALL.map(|op| (*word, op))) {
            let is_impossible = ["f32", "f64"].contains(&word.to_string().as_str())
                && matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
            let atomic = Atomic::new(word, Change::Apply(op, 1));
            assert_eq!(atomic.impossible(), Some(op).filter(|_| is_impossible), "{atomic:?}");
            assert_eq!(Atomic::from_wire(atomic.to_wire()).is_none(), is_impossible, "{atomic:?}");
            let signal = atomic.to_signal().and_then(|(what, value)| Atomic::from_signal(what, value));
            assert_eq!(signal.is_none(), is_impossible, "{atomic:?}");
            if is_impossible {
                assert_eq!(atomic.apply(6), 6, "{atomic:?}");
            }
        }
    }

    #[test]
    fn zeros_and_what_is_no_number_have_their_places() {
        let apply = |op, old: f64, value: f64| {
            f64::from_bits(
                Atomic::new(WordType::F64, Change::Apply(op, value.to_bits())).apply(old.to_bits()),
            )
        };
        let (min, max) = (AtomicOp::Min, AtomicOp::Max);
        assert!(apply(min, 0.0, -0.0).is_sign_negative() && apply(min, -0.0, 0.0).is_sign_negative());
        assert!(apply(max, 0.0, -0.0).is_sign_positive() && apply(max, -0.0, 0.0).is_sign_positive());
        for op in [min, max] {
            for nan in [f64::NAN, -f64::NAN] {
                assert_eq!((apply(op, nan, 7.0), apply(op, 7.0, nan)), (7.0, 7.0), "{op:?}");
                assert_eq!(apply(op, nan, f64::NAN).to_bits(), nan.to_bits(), "{op:?}: the word stays");
            }
        }
        assert!(apply(AtomicOp::Add, f64::NAN, 1.0).is_nan() && apply(AtomicOp::Add, 1.0, f64::NAN).is_nan());
        assert_eq!(apply(AtomicOp::Add, f64::MAX, f64::MAX), f64::INFINITY);
        let swaps = |expected: f64, old: f64| {
            let change = Change::CompareSwap { expected: expected.to_bits(), new: 1_f64.to_bits() };
            Atomic::new(WordType::F64, change).apply(old.to_bits()) == 1_f64.to_bits()
        };
        assert!(swaps(f64::NAN, f64::NAN) && swaps(-0.0, -0.0) && !swaps(-0.0, 0.0) && !swaps(0.0, -0.0));
    }

    #[test]
    fn a_load_changes_no_word_and_a_store_every_one() {
        for word in WordType::ALL {
            let most = if word.size() == 4 { u64::from(u32::MAX) } else { u64::MAX };
            for old in [0, 1, 1 << 31, (1 << 63) & most, f64::NAN.to_bits() & most, most] {
                assert_eq!(Atomic::load(word).apply(old), old, "{word}: {old:#x}");
                assert_eq!(Atomic::store(word, most - old).apply(old), most - old, "{word}: {old:#x}");
            }
        }
    }

    #[test]
    fn a_grant_must_allow_what_an_atomic_does() {
        let store = Atomic::store(WordType::U32, 7);
        for (atomic, rights) in [
            (Atomic::load(WordType::F64), Rights::Read),
            (Atomic::compare_swap(7, 7), Rights::Read),
            (Atomic::compare_swap(7, 8), Rights::ReadWrite),
            (Atomic::fetch_add(0), Rights::ReadWrite),
            (store, Rights::ReadWrite),
            (store.without_old(), Rights::Write),
            (Atomic::fetch_add(1).without_old(), Rights::Write),
        ] {
            assert_eq!(atomic.rights(), rights, "{atomic:?}");
        }
    }

    #[test]
    fn numbers_are_places_in_the_lists() {
        assert!(AtomicOp::ALL.iter().enumerate().all(|(i, op)| *op as usize == i));
        assert!(WordType::ALL.iter().enumerate().all(|(i, word)| *word as usize == i));
        // As peers know them.
        let said = WordType::ALL.map(|word| Atomic::new(word, Change::Apply(AtomicOp::Swap, 9)).to_wire());
        assert_eq!(said, [6, 0x106, 0x206, 0x306, 0x406, 0x506].map(|what| [what, 9, 0]));
    }

    proptest! {
        #[test]
        fn words_become_what_their_types_make_of_them((atomic, old) in atomics(), equal: bool) {
            let old = match atomic.change {
                Change::CompareSwap { expected, .. } if equal => expected,
                _ => old,
            };
            let mut bytes = old.to_ne_bytes().to_vec();
            if atomic.size() == 4 {
                bytes = (old as u32).to_ne_bytes().to_vec();
            }
            let wanted = match atomic.word {
                WordType::U32 => model!(u32, atomic.change, old),
                WordType::I32 => model!(i32, atomic.change, old),
                WordType::U64 => model!(u64, atomic.change, old),
                WordType::I64 => model!(i64, atomic.change, old),
                WordType::F32 => float_model!(f32, u32, atomic.change, old),
                WordType::F64 => float_model!(f64, u64, atomic.change, old),
            };
            prop_assert_eq!(atomic.apply_to(&mut bytes), Some(old));
            prop_assert!(bytes == wanted || is_nan(atomic.word, &bytes) && is_nan(atomic.word, &wanted));
            prop_assert_eq!(atomic.apply_to(&mut [0; 3]), None);
        }

        #[test]
        fn atomics_survive_the_wire((atomic, _) in atomics()) {
            prop_assert_eq!(Atomic::from_wire(atomic.to_wire()), Some(atomic));
        }

        #[test]
        fn signals_survive_the_wire((atomic, _) in atomics()) {
            match atomic.to_signal() {
                Some((what, value)) => {
                    prop_assert_eq!(Atomic::from_signal(what, value), Some(atomic.signalling()));
                }
                None => prop_assert_eq!(atomic.to_wire()[0] as u8, COMPARE_SWAP as u8),
            }
        }

        #[test]
        fn what_any_number_says_would_be_said_so(what in prop_oneof![any::<u16>(), 0_u16..1 << 11], value: u64) {
            if let Some(atomic) = Atomic::from_signal(what, value) {
                prop_assert_eq!(atomic.to_signal(), Some((what, value)));
            }
        }

        #[test]
        fn what_any_words_say_would_be_said_so(what in prop_oneof![any::<u64>(), 0_u64..1 << 11, (0_u64..1 << 11).prop_map(|what| what | 1 << 16)], first: u64, second: u64) {
            if let Some(atomic) = Atomic::from_wire([what, first, second]) {
                let again = atomic.to_wire();
                prop_assert_eq!(again[..2].to_vec(), vec![what, first]);
                prop_assert!(what < 1 << 17);
            }
        }
    }
}

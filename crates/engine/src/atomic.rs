//! Atomics on words of 4 and 8 bytes: what can be done to one, and how that is told to its owner.

/// The type of a word. Signedness matters to minima and maxima.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordType {
    /// 4 bytes, unsigned.
    U32,
    /// 4 bytes, signed.
    I32,
    /// 8 bytes, unsigned.
    U64,
    /// 8 bytes, signed.
    I64,
}

const TYPES: [WordType; 4] = [WordType::U32, WordType::I32, WordType::U64, WordType::I64];

impl WordType {
    /// Bytes of the word, which lies at a multiple of them.
    #[inline(always)]
    pub const fn size(self) -> u64 {
        match self {
            WordType::U32 | WordType::I32 => 4,
            WordType::U64 | WordType::I64 => 8,
        }
    }
}

/// What an atomic makes of a word and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicOp {
    /// Their sum, wrapping.
    Add,
    /// The bits that both have.
    And,
    /// The bits that either has.
    Or,
    /// The bits in which they differ.
    Xor,
    /// The smaller one, as the word's type counts.
    Min,
    /// The greater one, as the word's type counts.
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
}

/// How a word is changed. Values are the words' bits; of words of 4 bytes the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// By an operation with this value.
    Apply(AtomicOp, u64),
    /// Stores `new` if the word holds `expected`.
    CompareSwap {
        /// What the word must hold.
        expected: u64,
        /// What it then gets.
        new: u64,
    },
}

/// An atomic operation on one aligned word; the old value is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// The word's type.
    pub word: WordType,
    /// What becomes of it.
    pub change: Change,
    /// Whether threads of the owner that sleep are to look at the word then.
    pub signals: bool,
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
        Atomic { word, change, signals: false }
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

    /// Bytes of the word.
    #[inline(always)]
    pub const fn size(self) -> u64 {
        self.word.size()
    }

    /// The word that takes the place of `old`.
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

    /// What is done, and the value, of an operation that signals; `None` for a compare-and-swap, which has
    /// two values.
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

    /// Three words that say it: what is done, below 2^17, and two values.
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
        let word = *TYPES.get(usize::from((what >> TYPE_SHIFT) as u8))?;
        let change = match what & ((1 << TYPE_SHIFT) - 1) {
            COMPARE_SWAP => Change::CompareSwap { expected: first, new: second },
            number => Change::Apply(*AtomicOp::ALL.get(usize::try_from(number).ok()?)?, first),
        };
        let fits = word.size() == 8 || (first | second) >> 32 == 0;
        fits.then_some(Atomic { word, change, signals })
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

    fn atomics() -> impl Strategy<Value = (Atomic, u64)> {
        let edges = prop_oneof![any::<u64>(), 0_u64..3, Just(u64::MAX), Just(1 << 31), Just(1 << 63)];
        (0_usize..4, 0_usize..8, [edges.clone(), edges.clone(), edges]).prop_map(
            |(word, op, [old, first, second])| {
                let word = TYPES[word];
                let cut = |value: u64| if word.size() == 4 { value & u64::from(u32::MAX) } else { value };
                let (old, first, second) = (cut(old), cut(first), cut(second));
                let change = match AtomicOp::ALL.get(op) {
                    Some(op) => Change::Apply(*op, first),
                    None => Change::CompareSwap { expected: first, new: second },
                };
                (Atomic { word, change, signals: old % 2 == 1 }, old)
            },
        )
    }

    #[test]
    fn numbers_are_places_in_the_lists() {
        assert!(AtomicOp::ALL.iter().enumerate().all(|(i, op)| *op as usize == i));
        assert!(TYPES.iter().enumerate().all(|(i, word)| *word as usize == i));
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
            };
            prop_assert_eq!(atomic.apply_to(&mut bytes), Some(old));
            prop_assert_eq!(bytes, wanted);
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

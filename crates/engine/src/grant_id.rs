//! How a grant is named, and how many there can be.

use std::fmt;

/// Bits of a place's offset that count in the grant.
pub(crate) const OFFSET_BITS: u32 = 40;
/// No grant has as many bytes.
pub const GRANT_BYTES: u64 = 1 << OFFSET_BITS;
/// Lines that a process may have: grants at a time, at most.
pub const GRANTS_MAX: u32 = 1 << 20;
/// Generations of a line.
pub(crate) const GENERATIONS: u32 = 1 << 28;

/// A grant of some process: it names one grant in that process's life, and never another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId {
    /// The line of the owner's table: below 2^24, and of real grants below [`GRANTS_MAX`].
    pub line: u32,
    /// Which of the grants that the line has had: below 2^28.
    pub generation: u32,
}

impl GrantId {
    /// The id as one word.
    pub const fn to_word(self) -> u64 {
        self.line as u64 | (self.generation as u64) << 32
    }

    /// The id that a word stands for; `None` where it stands for none.
    pub const fn from_word(word: u64) -> Option<GrantId> {
        let (line, generation) = (word as u32, (word >> 32) as u32);
        let fits = line < 1 << (u64::BITS - OFFSET_BITS) && generation < GENERATIONS;
        if fits { Some(GrantId { line, generation }) } else { None }
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:07x}", self.line, self.generation)
    }
}

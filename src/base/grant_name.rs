//! The names of grants, as they go from process to process.

use std::fmt;

use engine::GrantId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a grant of some node: [`Grant::name`](crate::Grant::name) gives it. Plain data: copy it, send
/// it, store it. A peer turns it into memory of that node by [`Remote::granted`](crate::Remote::granted).
///
/// A node gives no two grants the same name in its life, and another node's name is a stranger to it. So an
/// old name reaches nothing, whoever has the memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantName {
    id: GrantId,
    len: u64,
}

impl GrantName {
    pub(crate) const fn new(id: GrantId, len: u64) -> GrantName {
        GrantName { id, len }
    }

    /// The grant's id, as errors have it.
    pub const fn id(self) -> GrantId {
        self.id
    }

    /// Bytes of the memory that was granted, as the name says: the owner looks at what is.
    #[expect(clippy::len_without_is_empty, reason = "no grant is empty")]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// The name as two words, to be stored or sent.
    pub const fn to_words(self) -> [u64; 2] {
        [self.id.to_word(), self.len]
    }

    /// The name that two words stand for; `None` where they stand for none.
    pub const fn from_words(words: [u64; 2]) -> Option<GrantName> {
        match GrantId::from_word(words[0]) {
            Some(id) if words[1] > 0 && words[1] < engine::GRANT_BYTES => {
                Some(GrantName { id, len: words[1] })
            }
            _ => None,
        }
    }

    /// The name as 16 bytes, to be stored or sent: its words, each with the lowest byte first.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (at, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The name that 16 bytes stand for; `None` where they stand for none.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<GrantName> {
        let [low, high] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        });
        GrantName::from_words([low, high])
    }
}

impl fmt::Display for GrantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.id, self.len)
    }
}

/// As its words.
impl Serialize for GrantName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_words().serialize(serializer)
    }
}

/// From its words. Words that are no name's are an error.
impl<'de> Deserialize<'de> for GrantName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GrantName, D::Error> {
        let words = <[u64; 2]>::deserialize(deserializer)?;
        GrantName::from_words(words).ok_or_else(|| serde::de::Error::custom("these words name no grant"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_through_words_bytes_and_serde_and_strangers_do_not() {
        let name = GrantName::new(GrantId { line: 70_000, generation: 0x0abc_def0 }, 4096);
        assert_eq!(GrantName::from_words(name.to_words()), Some(name));
        assert_eq!(GrantName::from_bytes(name.to_bytes()), Some(name));
        let bytes = postcard::to_stdvec(&name).expect("plain values");
        assert_eq!(postcard::from_bytes::<GrantName>(&bytes), Ok(name));
        assert_eq!(name.to_string(), "70000.abcdef0 of 4096 bytes");
        let [id, _] = name.to_words();
        for words in [[id, 0], [id, engine::GRANT_BYTES], [id, u64::MAX], [u64::MAX, 1], [1 << 24, 1]] {
            assert_eq!(GrantName::from_words(words), None, "{words:x?}");
            let bytes = postcard::to_stdvec(&words).expect("plain values");
            assert!(postcard::from_bytes::<GrantName>(&bytes).is_err());
        }
    }
}

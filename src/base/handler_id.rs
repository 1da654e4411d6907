//! How handlers are named.

use std::fmt;

use engine::HandlerKey;

/// Names a handler of Active Messages, here and at every peer, whether this process has it or not: two hashes
/// of its namespace and its name.
///
/// ```
/// use standpipe::HandlerId;
///
/// const COUNT: HandlerId = HandlerId::of("counter", "count");
/// assert_eq!(COUNT, HandlerId::of(&"counter".to_owned(), "count"));
/// assert_ne!(COUNT, HandlerId::of("counter", "counts"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerId(pub(crate) HandlerKey);

impl HandlerId {
    /// The handler with this name in this namespace. Handlers that come with a
    /// [configuration](crate::Config::handler) have the empty namespace.
    pub const fn of(namespace: &str, name: &str) -> HandlerId {
        HandlerId(HandlerKey::of(namespace, name))
    }

    /// The id as a word, to be stored or sent.
    pub const fn to_word(self) -> u64 {
        (self.0.check as u64) << 32 | self.0.number as u64
    }

    /// The id that a word stands for. Of a word that none was made of, nobody has the handler.
    pub const fn from_word(word: u64) -> HandlerId {
        HandlerId(HandlerKey { number: word as u32, check: (word >> 32) as u32 })
    }

    /// Its number in messages. Of 1,000 handlers two have one number in one program of 8,600.
    pub const fn number(self) -> u32 {
        self.0.number
    }
}

impl fmt::Debug for HandlerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandlerId({:#010x})", self.0.number)
    }
}

/// Bytes that a handler's name may have, and its namespace.
pub(crate) const NAME_MAX: usize = 255;

/// A handler's names, as people read them.
pub(crate) fn shown(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

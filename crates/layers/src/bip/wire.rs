//! What processes of a BIP job send each other, as typed messages.
//!
//! All of it comes from peers, and is parsed here and nowhere else. A message that no correct peer sends is
//! refused, and counted by whoever asked for it to be parsed.

use thiserror::Error;

/// Bytes of a word: BIP counts in these.
pub const WORD: usize = 4;

/// The longest message that is short, in words: `BIPSMALLSIZE`.
///
/// The value is ours, as the original one was not found. A short message is copied through the lane to the
/// peer; a long one costs a question, a system call and an answer, which is more than the copies up to here.
pub const SMALL_WORDS: u32 = 1024;

const _: () = assert!(SMALL_WORDS as usize * WORD <= standpipe::MEDIUM_MAX);

/// A message, without a short one's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A short message for a tag, whose bytes are the payload.
    Short {
        /// The tag.
        tag: u32,
        /// Its length.
        words: u32,
    },
    /// A long message waits in its sender's memory.
    Long {
        /// The tag.
        tag: u32,
        /// Its length.
        words: u32,
        /// The sender's number for it, which [`Message::Done`] gives back.
        send: u32,
        /// Where it lies in the sender's memory.
        addr: u64,
    },
    /// The receiver has got a long message.
    Done {
        /// The sender's number for it.
        send: u32,
    },
    /// The receive that a long message came for has less room than the message is long.
    NoRoom {
        /// The sender's number for it.
        send: u32,
        /// The words that there is room for.
        most: u32,
    },
    /// The receiver found no memory where a long message was to lie.
    NoSource {
        /// The sender's number for it.
        send: u32,
    },
    /// How many short messages of the peer's the receiver has taken out of its queues, since the beginning.
    Taken {
        /// The number.
        total: u64,
    },
    /// The peer's program has ended well: it sends nothing more, and receives nothing.
    Leaving,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There is no message of that kind.
    #[error("{kind:#x} is no kind of message")]
    Kind {
        /// What stands in its place.
        kind: u32,
    },
    /// Tags are `int`s of 0 and more.
    #[error("there is no tag {tag:#x}")]
    Tag {
        /// What stands in its place.
        tag: u32,
    },
    /// The length does not go with the kind, or with the payload.
    #[error("{words} words, and {bytes} bytes of payload")]
    Length {
        /// The words that it says it has.
        words: u64,
        /// The bytes that came with it.
        bytes: usize,
    },
    /// The message's memory would reach beyond the end of the address space, or is nowhere.
    #[error("no {words} words lie at {addr:#x}")]
    Address {
        /// Where they should begin.
        addr: u64,
        /// How many.
        words: u32,
    },
    /// Bits are set that mean nothing.
    #[error("{bits:#x} where nothing belongs")]
    Unused {
        /// Those.
        bits: u64,
    },
}

const SHORT: u32 = 1;
const LONG: u32 = 2;
const DONE: u32 = 3;
const TAKEN: u32 = 4;
const LEAVING: u32 = 5;
const NO_ROOM: u32 = 6;
const NO_SOURCE: u32 = 7;

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl Message {
    /// The arguments that it travels in.
    #[inline]
    pub fn args(self) -> [u64; 4] {
        match self {
            Message::Short { tag, words } => [join(SHORT, tag), words.into(), 0, 0],
            Message::Long { tag, words, send, addr } => [join(LONG, tag), join(words, send), addr, 0],
            Message::Done { send } => [join(DONE, 0), send.into(), 0, 0],
            Message::NoRoom { send, most } => [join(NO_ROOM, 0), join(most, send), 0, 0],
            Message::NoSource { send } => [join(NO_SOURCE, 0), send.into(), 0, 0],
            Message::Taken { total } => [join(TAKEN, 0), total, 0, 0],
            Message::Leaving => [join(LEAVING, 0), 0, 0, 0],
        }
    }

    /// Reads what a peer sent, with so many bytes of payload.
    ///
    /// # Errors
    /// [`Malformed`] for whatever [`Message::args`] cannot give.
    #[inline]
    pub fn parse(args: [u64; 4], bytes: usize) -> Result<Message, Malformed> {
        let [first, second, third, fourth] = args;
        let (kind, tag) = (low(first), high(first));
        let message = match kind {
            SHORT => {
                let words = low(second);
                if words > SMALL_WORDS || words as usize * WORD != bytes {
                    return Err(Malformed::Length { words: second, bytes });
                }
                Message::Short { tag, words }
            }
            LONG => parse_long(tag, second, third, bytes)?,
            DONE => Message::Done { send: low(second) },
            NO_ROOM => Message::NoRoom { send: high(second), most: low(second) },
            NO_SOURCE => Message::NoSource { send: low(second) },
            TAKEN => Message::Taken { total: second },
            LEAVING => Message::Leaving,
            _ => return Err(Malformed::Kind { kind }),
        };
        if tag > i32::MAX as u32 {
            return Err(Malformed::Tag { tag });
        }
        if kind != SHORT && bytes != 0 {
            return Err(Malformed::Length { words: 0, bytes });
        }
        let again = message.args();
        let bits = (again[0] ^ first) | (again[1] ^ second) | (again[2] ^ third) | fourth;
        if bits == 0 { Ok(message) } else { Err(Malformed::Unused { bits }) }
    }
}

fn parse_long(tag: u32, second: u64, addr: u64, bytes: usize) -> Result<Message, Malformed> {
    let (words, send) = (low(second), high(second));
    if words <= SMALL_WORDS || words > i32::MAX as u32 {
        return Err(Malformed::Length { words: words.into(), bytes });
    }
    let len = u64::from(words) * WORD as u64;
    if addr == 0 || addr.checked_add(len).is_none() {
        return Err(Malformed::Address { addr, words });
    }
    Ok(Message::Long { tag, words, send, addr })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_WORDS: u32 = SMALL_WORDS + 1;

    #[test]
    fn what_is_sent_is_parsed() {
        let most = i32::MAX as u32;
        for message in [
            Message::Short { tag: most, words: 0 },
            Message::Short { tag: 0, words: SMALL_WORDS },
            Message::Long { tag: 7, words: LONG_WORDS, send: 1, addr: 1 },
            Message::Long { tag: 7, words: most, send: u32::MAX, addr: 4096 },
            Message::Done { send: u32::MAX },
            Message::NoRoom { send: u32::MAX, most: 0 },
            Message::NoRoom { send: 1, most },
            Message::NoSource { send: u32::MAX },
            Message::Taken { total: u64::MAX },
            Message::Leaving,
        ] {
            let words = if let Message::Short { words, .. } = message { words } else { 0 };
            let payload = vec![0; words as usize * WORD];
            assert_eq!(Message::parse(message.args(), payload.len()), Ok(message));
        }
    }

    #[test]
    fn a_message_of_no_kind_is_refused() {
        for kind in [0, NO_SOURCE + 1, 0xff, u32::MAX] {
            assert_eq!(
                Message::parse([join(kind, 0), 0, 0, 0], 0),
                Err(Malformed::Kind { kind }),
                "{kind:#x}"
            );
        }
    }

    #[test]
    fn a_negative_tag_is_refused() {
        let tag = i32::MIN as u32;
        assert_eq!(Message::parse([join(SHORT, tag), 0, 0, 0], 0), Err(Malformed::Tag { tag }));
        let long = [join(LONG, tag), join(LONG_WORDS, 1), 64, 0];
        assert_eq!(Message::parse(long, 0), Err(Malformed::Tag { tag }));
    }

    #[test]
    fn a_short_message_has_the_length_that_it_says() {
        let short = |words: u64, bytes: usize| Message::parse([join(SHORT, 1), words, 0, 0], bytes);
        let refused = |words, bytes| Err(Malformed::Length { words, bytes });
        assert_eq!(short(2, 7), refused(2, 7));
        assert_eq!(short(2, 9), refused(2, 9));
        assert_eq!(short(2, 0), refused(2, 0));
        let beyond = u64::from(LONG_WORDS);
        assert_eq!(short(beyond, LONG_WORDS as usize * WORD), refused(beyond, LONG_WORDS as usize * WORD));
        assert_eq!(short(u64::from(u32::MAX), 4), refused(u64::from(u32::MAX), 4));
    }

    #[test]
    fn a_long_message_is_long_and_lies_somewhere() {
        let long = |words: u32, addr: u64| Message::parse([join(LONG, 1), join(words, 1), addr, 0], 0);
        for words in [0, SMALL_WORDS, i32::MIN as u32, u32::MAX] {
            assert_eq!(long(words, 64), Err(Malformed::Length { words: words.into(), bytes: 0 }));
        }
        for addr in [0, u64::MAX, u64::MAX - u64::from(LONG_WORDS) * 4 + 1] {
            assert_eq!(long(LONG_WORDS, addr), Err(Malformed::Address { addr, words: LONG_WORDS }));
        }
        assert!(long(LONG_WORDS, u64::MAX - u64::from(LONG_WORDS) * 4).is_ok(), "up to the last byte");
    }

    #[test]
    fn bits_without_a_meaning_are_refused() {
        let args = |index: usize, message: Message, bit: u64| {
            let mut args = message.args();
            args[index] |= bit;
            args
        };
        let short = Message::Short { tag: 1, words: 0 };
        assert!(Message::parse(args(1, short, 1 << 32), 0).is_err());
        assert!(Message::parse(args(2, short, 1), 0).is_err());
        for message in
            [short, Message::Long { tag: 1, words: LONG_WORDS, send: 1, addr: 64 }, Message::Done { send: 1 }]
        {
            assert!(Message::parse(args(3, message, 1), 0).is_err(), "{message:?}");
        }
        assert!(Message::parse(args(0, Message::Done { send: 1 }, 1 << 32), 0).is_err());
        assert!(Message::parse(Message::Taken { total: 1 }.args(), 1).is_err());
    }
}

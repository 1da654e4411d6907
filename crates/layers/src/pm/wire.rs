//! What processes tell each other, parsed in one place: whatever a peer sends, it is a message or refused.

use standpipe::MEDIUM_MAX;

/// Bytes that a message of a program may have: PM's 8 KiB \[recalled\], and what one medium message carries.
pub const MTU: usize = 8192;

const _: () = assert!(MTU <= MEDIUM_MAX, "a message travels in one piece");

/// Streams of messages that there may be, over all types of devices.
pub const CHANNELS_MAX: usize = 80;

/// Messages of one sender that a process holds on one channel: the sender waits with more until the receiver
/// has released some.
pub const WINDOW: u32 = 16;

/// Bytes that a message may have to travel in the words of a message instead of a payload.
pub const WORDS_MAX: usize = 16;

const DATA: u64 = 1;
const CREDITS: u64 = 2;
const LEAVE: u64 = 3;
const WORDS: u64 = 4;

/// Each message of a program's carries this along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The stream that the message belongs to.
    pub channel: u16,
    /// So many messages of that stream the sender has released since it last said so: 0 to [`WINDOW`].
    pub credits: u32,
    /// How many regions the sender has unlocked so far.
    pub unlocked: u64,
}

/// A message between two processes' layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// The payload is a message of the program's.
    Data(Head),
    /// The words are one: its first bytes, as memory of this machine has them, and zeros.
    Words {
        /// What goes along.
        head: Head,
        /// 1 to [`WORDS_MAX`].
        len: usize,
        /// The bytes.
        words: [u64; 2],
    },
    /// So many messages of that stream have been released, and as many more may be sent.
    Credits {
        /// The stream.
        channel: u16,
        /// 1 to [`WINDOW`].
        count: u32,
    },
    /// The sender ends in order, and sends nothing any more.
    Leave,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No message is of that kind.
    #[error("no message is of kind {kind}")]
    Kind {
        /// What stands where the kind does.
        kind: u64,
    },
    /// There are not so many channels.
    #[error("there is no channel {channel}")]
    Channel {
        /// The number.
        channel: u64,
    },
    /// A payload of that length does not go with the kind.
    #[error("{len} bytes of payload")]
    Length {
        /// Bytes.
        len: usize,
    },
    /// No window has so many places, or none at all.
    #[error("credits for {count} messages")]
    Credits {
        /// The number.
        count: u64,
    },
    /// Words that mean nothing are 0.
    #[error("a word without a meaning is {word}")]
    Word {
        /// The word.
        word: u64,
    },
}

/// The first word of each message, from its lowest bits on: 8 of the kind, 16 of the channel, 8 of credits, 8
/// of the length of [`Message::Words`].
fn first_word(kind: u64, channel: u16, credits: u32, len: usize) -> u64 {
    kind | u64::from(channel) << 8 | u64::from(credits) << 24 | (len as u64) << 32
}

/// The first `len` bytes of memory that has these words, and zeros.
pub(super) fn first_bytes(words: [u64; 2], len: usize) -> [u64; 2] {
    let kept = |bytes: usize| match bytes {
        8.. => u64::MAX,
        bytes if cfg!(target_endian = "little") => (1 << (8 * bytes)) - 1,
        bytes => !(u64::MAX >> (8 * bytes)),
    };
    [words[0] & kept(len), words[1] & kept(len.saturating_sub(8))]
}

/// Reads a message, which came with so many bytes of payload. Nothing of it is trusted: not its kind, its
/// numbers or its length.
///
/// # Errors
/// See [`Malformed`].
pub fn parse(args: [u64; 4], bytes: usize) -> Result<Message, Malformed> {
    let [first, unlocked, words @ ..] = args;
    let kind = first & 0xFF;
    let (channel, credits, len) = ((first >> 8) & 0xFFFF, (first >> 24) & 0xFF, (first >> 32) & 0xFF);
    if first >> 40 != 0 {
        return Err(Malformed::Word { word: first });
    }
    let number = u16::try_from(channel).ok().filter(|number| usize::from(*number) < CHANNELS_MAX);
    let channel = number.ok_or(Malformed::Channel { channel })?;
    let count = u32::try_from(credits).ok().filter(|count| *count <= WINDOW);
    let count = count.ok_or(Malformed::Credits { count: credits })?;
    let (head, len) = (Head { channel, credits: count, unlocked }, len as usize);
    // Of messages that have no payload, and of their words: what means nothing.
    let is_bare = |meant: usize| match args[meant..].iter().find(|word| **word != 0) {
        Some(word) => Err(Malformed::Word { word: *word }),
        None if bytes != 0 => Err(Malformed::Length { len: bytes }),
        None => Ok(()),
    };
    match kind {
        DATA if words != [0; 2] => Err(Malformed::Word { word: words[0] | words[1] }),
        DATA if len != 0 || !(1..=MTU).contains(&bytes) => Err(Malformed::Length { len: bytes }),
        DATA => Ok(Message::Data(head)),
        WORDS if !(1..=WORDS_MAX).contains(&len) => Err(Malformed::Length { len }),
        WORDS if first_bytes(words, len) != words => Err(Malformed::Word { word: words[0] | words[1] }),
        WORDS => is_bare(args.len()).map(|()| Message::Words { head, len, words }),
        CREDITS if count == 0 => Err(Malformed::Credits { count: 0 }),
        CREDITS if len != 0 => Err(Malformed::Length { len }),
        CREDITS => is_bare(1).map(|()| Message::Credits { channel, count }),
        LEAVE if first != LEAVE => Err(Malformed::Word { word: first }),
        LEAVE => is_bare(1).map(|()| Message::Leave),
        kind => Err(Malformed::Kind { kind }),
    }
}

impl Message {
    /// The words that say it.
    pub fn words(self) -> [u64; 4] {
        let of = |kind, head: Head, len| first_word(kind, head.channel, head.credits, len);
        match self {
            Message::Data(head) => [of(DATA, head, 0), head.unlocked, 0, 0],
            Message::Words { head, len, words: [low, high] } => {
                [of(WORDS, head, len), head.unlocked, low, high]
            }
            Message::Credits { channel, count } => [first_word(CREDITS, channel, count, 0), 0, 0, 0],
            Message::Leave => [LEAVE, 0, 0, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u16 = CHANNELS_MAX as u16 - 1;
    const HEAD: Head = Head { channel: LAST, credits: WINDOW, unlocked: u64::MAX };

    #[test]
    fn what_is_said_is_what_is_read() {
        let head = Head { channel: 0, credits: 0, unlocked: 0 };
        for (message, payload) in [
            (Message::Data(head), &[1_u8][..]),
            (Message::Data(HEAD), &[0; MTU][..]),
            (Message::Words { head, len: 1, words: [255, 0] }, &[]),
            (Message::Words { head: HEAD, len: 8, words: [u64::MAX, 0] }, &[]),
            (Message::Words { head: HEAD, len: WORDS_MAX, words: [u64::MAX; 2] }, &[]),
            (Message::Credits { channel: LAST, count: 1 }, &[]),
            (Message::Credits { channel: 0, count: WINDOW }, &[]),
            (Message::Leave, &[]),
        ] {
            assert_eq!(parse(message.words(), payload.len()), Ok(message));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let none: &[u8] = &[];
        let first = |kind, channel: u64, credits: u64, len: u64| {
            [kind | channel << 8 | credits << 24 | len << 32, 0, 0, 0]
        };
        let with = |mut args: [u64; 4], at: usize, word| {
            args[at] = word;
            args
        };
        let many = CHANNELS_MAX as u64;
        for (args, payload, why) in [
            ([0, 0, 0, 0], none, Malformed::Kind { kind: 0 }),
            ([5, 0, 0, 0], none, Malformed::Kind { kind: 5 }),
            ([u64::MAX, 0, 0, 0], none, Malformed::Word { word: u64::MAX }),
            ([1 << 40 | DATA, 0, 0, 0], &[1], Malformed::Word { word: 1 << 40 | DATA }),
            (first(DATA, many, 0, 0), &[1], Malformed::Channel { channel: many }),
            (first(DATA, 0xFFFF, 0, 0), &[1], Malformed::Channel { channel: 0xFFFF }),
            (first(DATA, 0, 17, 0), &[1], Malformed::Credits { count: 17 }),
            (first(DATA, 0, 0, 0), none, Malformed::Length { len: 0 }),
            (first(DATA, 0, 0, 0), &[0; MTU + 1], Malformed::Length { len: MTU + 1 }),
            (first(DATA, 0, 0, 1), &[1], Malformed::Length { len: 1 }),
            (with(first(DATA, 0, 0, 0), 2, 5), &[1], Malformed::Word { word: 5 }),
            (with(first(DATA, 0, 0, 0), 3, 6), &[1], Malformed::Word { word: 6 }),
            (first(WORDS, 0, 0, 0), none, Malformed::Length { len: 0 }),
            (first(WORDS, 0, 0, 17), none, Malformed::Length { len: 17 }),
            (first(WORDS, 0, 255, 1), none, Malformed::Credits { count: 255 }),
            (first(WORDS, 0, 0, 1), &[1], Malformed::Length { len: 1 }),
            (with(first(WORDS, 0, 0, 8), 3, 1), none, Malformed::Word { word: 1 }),
            (first(CREDITS, many, 1, 0), none, Malformed::Channel { channel: many }),
            (first(CREDITS, 0, 0, 0), none, Malformed::Credits { count: 0 }),
            (first(CREDITS, 0, 17, 0), none, Malformed::Credits { count: 17 }),
            (first(CREDITS, 0, 1, 2), none, Malformed::Length { len: 2 }),
            (first(CREDITS, 0, 1, 0), &[1], Malformed::Length { len: 1 }),
            (with(first(CREDITS, 0, 1, 0), 1, 7), none, Malformed::Word { word: 7 }),
            (first(LEAVE, 1, 0, 0), none, Malformed::Word { word: LEAVE | 1 << 8 }),
            ([LEAVE, 0, 2, 0], none, Malformed::Word { word: 2 }),
            ([LEAVE, 0, 0, 0], &[1, 2], Malformed::Length { len: 2 }),
        ] {
            assert_eq!(parse(args, payload.len()), Err(why), "{args:x?}");
        }
    }

    #[test]
    fn bytes_beyond_the_length_are_not_sent() {
        let bytes = |len: usize| {
            let words = first_bytes([u64::MAX; 2], len);
            words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()
        };
        for len in 0..=WORDS_MAX {
            let bytes = bytes(len);
            assert!(
                bytes[..len].iter().all(|byte| *byte == 255) && bytes[len..].iter().all(|byte| *byte == 0)
            );
        }
    }
}

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

const DATA: u64 = 1;
const CREDITS: u64 = 2;
const LEAVE: u64 = 3;

/// A message between two processes' layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// The payload is a message of the program's.
    Data {
        /// The stream that it belongs to.
        channel: u16,
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

/// Reads a message. Nothing of it is trusted: not its kind, its numbers or its length.
///
/// # Errors
/// See [`Malformed`].
pub fn parse(args: [u64; 4], payload: &[u8]) -> Result<Message, Malformed> {
    let [kind, channel, count, rest] = args;
    if rest != 0 {
        return Err(Malformed::Word { word: rest });
    }
    let (is_data, len) = (kind == DATA, payload.len());
    match kind {
        DATA | CREDITS => {
            let number = u16::try_from(channel).ok().filter(|number| usize::from(*number) < CHANNELS_MAX);
            let channel = number.ok_or(Malformed::Channel { channel })?;
            if is_data && count != 0 {
                return Err(Malformed::Word { word: count });
            }
            if is_data != (1..=MTU).contains(&len) || (!is_data && len > 0) {
                return Err(Malformed::Length { len });
            }
            if is_data {
                return Ok(Message::Data { channel });
            }
            let places = u32::try_from(count).ok().filter(|count| (1..=WINDOW).contains(count));
            Ok(Message::Credits { channel, count: places.ok_or(Malformed::Credits { count })? })
        }
        LEAVE => match (channel, count, len) {
            (0, 0, 0) => Ok(Message::Leave),
            (0, 0, len) => Err(Malformed::Length { len }),
            (0, word, _) | (word, _, _) => Err(Malformed::Word { word }),
        },
        kind => Err(Malformed::Kind { kind }),
    }
}

impl Message {
    /// The words that say it.
    pub fn words(self) -> [u64; 4] {
        match self {
            Message::Data { channel } => [DATA, channel.into(), 0, 0],
            Message::Credits { channel, count } => [CREDITS, channel.into(), count.into(), 0],
            Message::Leave => [LEAVE, 0, 0, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_read() {
        let last = CHANNELS_MAX as u16 - 1;
        for (message, payload) in [
            (Message::Data { channel: 0 }, &[1_u8][..]),
            (Message::Data { channel: last }, &[0; MTU][..]),
            (Message::Credits { channel: last, count: 1 }, &[]),
            (Message::Credits { channel: 0, count: WINDOW }, &[]),
            (Message::Leave, &[]),
        ] {
            assert_eq!(parse(message.words(), payload), Ok(message));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let none: &[u8] = &[];
        let many = CHANNELS_MAX as u64;
        for (args, payload, why) in [
            ([0, 0, 0, 0], none, Malformed::Kind { kind: 0 }),
            ([4, 0, 0, 0], none, Malformed::Kind { kind: 4 }),
            ([u64::MAX, 0, 0, 0], none, Malformed::Kind { kind: u64::MAX }),
            ([DATA, many, 0, 0], &[1], Malformed::Channel { channel: many }),
            ([DATA, 1 << 16, 0, 0], &[1], Malformed::Channel { channel: 1 << 16 }),
            ([DATA, 0, 0, 0], none, Malformed::Length { len: 0 }),
            ([DATA, 0, 0, 0], &[0; MTU + 1], Malformed::Length { len: MTU + 1 }),
            ([DATA, 0, 5, 0], &[1], Malformed::Word { word: 5 }),
            ([DATA, 0, 0, 6], &[1], Malformed::Word { word: 6 }),
            ([CREDITS, many, 1, 0], none, Malformed::Channel { channel: many }),
            ([CREDITS, 0, 0, 0], none, Malformed::Credits { count: 0 }),
            ([CREDITS, 0, 17, 0], none, Malformed::Credits { count: 17 }),
            ([CREDITS, 0, u64::MAX, 0], none, Malformed::Credits { count: u64::MAX }),
            ([CREDITS, 0, 1, 0], &[1], Malformed::Length { len: 1 }),
            ([LEAVE, 1, 0, 0], none, Malformed::Word { word: 1 }),
            ([LEAVE, 0, 2, 0], none, Malformed::Word { word: 2 }),
            ([LEAVE, 0, 0, 0], &[1, 2], Malformed::Length { len: 2 }),
        ] {
            assert_eq!(parse(args, payload), Err(why), "{args:?}");
        }
    }
}

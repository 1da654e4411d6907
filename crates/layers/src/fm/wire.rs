//! What processes of the layer send each other: made and parsed here alone.
//!
//! Every message is an Active Message with four arguments. The first one is the head, in bits: 0–7 the kind,
//! 8 whether the packet begins a message, 9 whether it ends it, 10 whether its bytes are in the arguments,
//! 11–15 how many these are, 16–31 credits that come back, 32–63 the handler that a first packet is for. The
//! second one is where the packet's bytes are in the message; of a first packet it is the announced length.
//! Up to [`INLINE_MAX`] bytes travel in the last two, more in the payload.

use standpipe::MEDIUM_MAX;

/// Bytes that a packet may have.
pub const PACKET_MAX: usize = MEDIUM_MAX;

/// Bytes that travel in a packet's arguments.
pub const INLINE_MAX: usize = 16;

const PACKET: u64 = 1;
const CREDITS: u64 = 2;
const CUT: u64 = 3;
const FIRST: u64 = 1 << 8;
const LAST: u64 = 1 << 9;
const INLINE: u64 = 1 << 10;
const INLINE_LEN_AT: u32 = 11;
const CREDITS_AT: u32 = 16;
const HANDLER_AT: u32 = 32;

/// A message of a peer's, whose parts fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// So many packets of this process have been consumed there.
    pub credits: u16,
    /// What else it says.
    pub what: What,
}

/// What a message says besides credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A part of an FM message.
    Packet(Packet),
    /// Nothing.
    Credits,
    /// The FM message that its sender is at will never be complete.
    Cut,
}

/// A part of an FM message; its bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The handler that a message's first packet names. `None` of later ones.
    pub first: Option<u32>,
    /// The announced length, of a first packet; of others how many bytes went before.
    pub position: u64,
    /// Whether it ends the message.
    pub is_last: bool,
    /// Its bytes, where they are in the arguments, and how many they are.
    pub inline: Option<([u8; INLINE_MAX], u8)>,
}

impl Packet {
    /// Whether it is a message of its own.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.first.is_some() && self.is_last
    }
}

/// Why a message of a peer's is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There is no such kind.
    #[error("a message of kind {0}")]
    Kind(u8),
    /// Bits are set that have no meaning there.
    #[error("bits that mean nothing there: {0:#x}")]
    Bits(u64),
    /// More or fewer bytes than the packet may have.
    #[error("a packet of {0} bytes")]
    Length(u64),
    /// More bytes than the message has.
    #[error("{given} bytes at {position} of a message of {announced}")]
    Beyond {
        /// Where they would be.
        position: u64,
        /// How many.
        given: u64,
        /// The message's announced length.
        announced: u64,
    },
}

/// Parses the arguments of an Active Message, which came with so many bytes of payload.
///
/// # Errors
/// Everything that no process of this layer sends. Nothing is refused that depends on messages before.
pub fn parse(args: [u64; 4], bytes: usize) -> Result<Message, Malformed> {
    let head = args[0];
    let credits = (head >> CREDITS_AT) as u16;
    let what = match head & 0xff {
        PACKET => What::Packet(packet(args, bytes)?),
        kind @ (CREDITS | CUT) => {
            let rest = head & !0xff & !(0xffff << CREDITS_AT);
            if rest != 0 || args[1..] != [0; 3] {
                return Err(Malformed::Bits(rest | args[1] | args[2] | args[3]));
            }
            if bytes != 0 {
                return Err(Malformed::Length(bytes as u64));
            }
            if kind == CUT { What::Cut } else { What::Credits }
        }
        kind => return Err(Malformed::Kind(kind as u8)),
    };
    Ok(Message { credits, what })
}

fn packet(args: [u64; 4], bytes: usize) -> Result<Packet, Malformed> {
    let [head, position, ..] = args;
    let handler = (head >> HANDLER_AT) as u32;
    let first = (head & FIRST != 0).then_some(handler);
    if first.is_none() && handler != 0 {
        return Err(Malformed::Bits(head));
    }
    let inline_len = (head >> INLINE_LEN_AT) & 0x1f;
    let (inline, len) = if head & INLINE != 0 {
        if inline_len > INLINE_MAX as u64 || bytes != 0 {
            return Err(Malformed::Length(inline_len.max(bytes as u64)));
        }
        (Some((bytes_of([args[2], args[3]]), inline_len as u8)), inline_len)
    } else {
        if inline_len != 0 || args[2..] != [0; 2] {
            return Err(Malformed::Bits(head | args[2] | args[3]));
        }
        if bytes == 0 || bytes > PACKET_MAX {
            return Err(Malformed::Length(bytes as u64));
        }
        (None, bytes as u64)
    };
    if first.is_some() && len > position {
        return Err(Malformed::Beyond { position: 0, given: len, announced: position });
    }
    let is_last = head & LAST != 0;
    if len == 0 && !is_last {
        return Err(Malformed::Length(0));
    }
    Ok(Packet { first, position, is_last, inline })
}

/// The arguments of a packet with these bytes, and whether they have all of them: then there is no payload.
#[inline]
pub(crate) fn packet_args(
    first: Option<u32>,
    position: u64,
    is_last: bool,
    credits: u16,
    bytes: &[u8],
) -> ([u64; 4], bool) {
    let mut head = PACKET | u64::from(credits) << CREDITS_AT;
    if let Some(handler) = first {
        head |= FIRST | u64::from(handler) << HANDLER_AT;
    }
    if is_last {
        head |= LAST;
    }
    if bytes.len() > INLINE_MAX {
        return ([head, position, 0, 0], false);
    }
    let mut inline = [0; INLINE_MAX];
    inline[..bytes.len()].copy_from_slice(bytes);
    let [low, high] = words_of(inline);
    ([head | INLINE | (bytes.len() as u64) << INLINE_LEN_AT, position, low, high], true)
}

/// The arguments of a message that gives credits back.
pub(crate) fn credits_args(credits: u16) -> [u64; 4] {
    [CREDITS | u64::from(credits) << CREDITS_AT, 0, 0, 0]
}

/// The arguments of one that cuts a message off.
pub(crate) fn cut_args() -> [u64; 4] {
    [CUT, 0, 0, 0]
}

fn words_of(bytes: [u8; INLINE_MAX]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

fn bytes_of(words: [u64; 2]) -> [u8; INLINE_MAX] {
    (u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(first: Option<u32>, position: u64, is_last: bool, bytes: &[u8]) -> Result<Message, Malformed> {
        let (args, is_inline) = packet_args(first, position, is_last, 7, bytes);
        parse(args, if is_inline { 0 } else { bytes.len() })
    }

    #[test]
    fn what_is_made_is_parsed() {
        for len in [0, 1, 8, 15, 16, 17, 8191, 8192] {
            let bytes: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            let Ok(Message { credits: 7, what: What::Packet(packet) }) =
                sent(Some(u32::MAX), len, true, &bytes)
            else {
                panic!("{len} bytes are a packet")
            };
            assert_eq!((packet.first, packet.position, packet.is_last), (Some(u32::MAX), len, true));
            match packet.inline {
                Some((inline, count)) => assert_eq!(&inline[..usize::from(count)], &bytes[..]),
                None => assert!(len > 16),
            }
        }
        assert!(matches!(sent(None, 8192, false, &[1]), Ok(Message { what: What::Packet(_), .. })));
        assert_eq!(parse(credits_args(65_535), 0), Ok(Message { credits: 65_535, what: What::Credits }));
        assert_eq!(parse(cut_args(), 0), Ok(Message { credits: 0, what: What::Cut }));
    }

    #[test]
    fn what_nobody_sends_is_refused() {
        assert_eq!(parse([0; 4], 0), Err(Malformed::Kind(0)));
        assert_eq!(parse([4, 0, 0, 0], 0), Err(Malformed::Kind(4)));
        assert!(matches!(parse([CREDITS | FIRST, 0, 0, 0], 0), Err(Malformed::Bits(_))));
        assert!(matches!(parse([CUT, 0, 0, 1], 0), Err(Malformed::Bits(1))));
        assert_eq!(parse([CREDITS, 0, 0, 0], 1), Err(Malformed::Length(1)));
        let beyond = Malformed::Beyond { position: 0, given: 5, announced: 4 };
        assert_eq!(sent(Some(1), 4, true, &[0; 5]), Err(beyond));
        assert_eq!(sent(Some(1), 4, false, &[]), Err(Malformed::Length(0)));
        assert_eq!(parse([PACKET | LAST, 0, 0, 0], 0), Err(Malformed::Length(0)));
        assert_eq!(parse([PACKET | LAST, 0, 0, 0], 8193), Err(Malformed::Length(8193)));
        let long = PACKET | LAST | INLINE | 17 << INLINE_LEN_AT;
        assert_eq!(parse([long, 0, 0, 0], 0), Err(Malformed::Length(17)));
        assert_eq!(parse([PACKET | LAST | INLINE, 0, 0, 0], 9), Err(Malformed::Length(9)));
        assert!(matches!(parse([PACKET | LAST, 0, 1, 0], 1), Err(Malformed::Bits(_))));
        assert!(matches!(parse([PACKET | 1 << HANDLER_AT, 0, 0, 0], 1), Err(Malformed::Bits(_))));
    }
}
